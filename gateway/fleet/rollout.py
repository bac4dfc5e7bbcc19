"""The rules of a rollout: a pure state machine. Time and what devices say are passed in; it says what to do.

A device that the document was offered to (it is the device's desired version) is, at any time, one of:

- accepted, refused, failed: it has said so;
- pending: it has not answered, and has had less than `patience` for it;
- silent: it was connected after the offer, and has not answered for `patience` since it was first seen there. A device
  that goes off under a new document is silent, not absent: that may be what the document does to it;
- absent: it has not been connected since the offer, and `patience` is over. It catches up by the retained message.

Devices that should have, or have, a newer version by now, and those that were removed, are out: they count nowhere.
With `size` devices of a stage that are not out:

- Errors are refused + failed + silent. The rollout stops when errors >= error * size in any stage that has begun (just
  below it goes on), or when the stage's success is out of reach because of them: size - errors < success * size. It
  then offers the way back: which devices had which version before. It takes nothing back by itself.
- A stage is done when the document was offered to all of it, at least one device has accepted, and
  accepted >= success * (size - absent). So for `patience` success is a share of all the stage's devices, and after
  that of those that could answer: devices that are off hold a stage up for no longer. A stage where nobody answers is
  never done; one whose devices are all out is.
- Then the next stage begins, if it has a gate once it is approved; or the rollout is completed.
- The pace: in any minute at most `pace` devices are offered the document, and one every minute / pace; what was missed
  for more than a few seconds is not made up for.

Patience and pace are measured on the rollout's own clock. It stands still while the rollout is paused, and a step of
more than a minute between two calls counts as one minute: while nobody was listening, no device kept silent. A wall
clock that is set back moves it by nothing.

Paused means that nothing happens; stopped, aborted and completed are ends. Everything is a function of the arguments:
the same call again gives no action, and calling less often makes a rollout slower, never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from typing import Literal, NamedTuple

from gateway.fleet.entries import FleetError, Outcome, RolloutPlan

__all__ = [
    "ACTIVE",
    "Offer",
    "Report",
    "StageCounts",
    "State",
    "advance",
    "operated",
    "tally",
    "way_back",
]

Phase = Literal["draft", "running", "waiting", "paused", "stopped", "aborted", "completed"]
"""`waiting` is for an operator's approval; `stopped` is by errors."""
ACTIVE: frozenset[Phase] = frozenset({"running", "waiting", "paused"})


class Report(NamedTuple):
    """Report about a device.

    Attributes:
        last_seen_us: when it was last known to be connected.
        answer: its last word about the rollout's version, empty if there is none.
        former: the version that it has in force, or should have if it never said; `None` if there is none.
        newest: the highest version that it should have or has, 0 if there is none.
    """

    online: bool
    last_seen_us: int
    answer: Outcome | Literal[""]
    former: int | None
    newest: int


class Offer(NamedTuple):
    """When a device was offered the document: `at_us` by the rollout's clock, `time_us` by the wall's.

    `former` is the version to go back to; `reached_us` when it was first seen connected since, by the rollout's clock.
    """

    at_us: int
    time_us: int
    former: int | None
    reached_us: int | None


@dataclass(frozen=True, slots=True)
class State:
    """Where a rollout is.

    Attributes:
        stages: the devices of each, in order; chosen at the start.
        approved: gates up to this stage are open.
        clock_us, seen_us: the rollout's clock, and the time of the last call.
        slot_us: when the pace allows the next device.
        cause: why it is in this phase, for people.
    """

    phase: Phase = "draft"
    stages: tuple[tuple[str, ...], ...] = ()
    stage: int = 0
    approved: int = 0
    clock_us: int = 0
    seen_us: int = 0
    slot_us: int = 0
    offers: Mapping[str, Offer] = field(default_factory=dict)
    cause: str = ""


class StageCounts(NamedTuple):
    """How the devices of a stage stand; `size` leaves out those that are out."""

    size: int = 0
    unoffered: int = 0
    accepted: int = 0
    refused: int = 0
    failed: int = 0
    silent: int = 0
    pending: int = 0
    absent: int = 0
    out: int = 0

    @property
    def errors(self) -> int:
        """Devices that refused, failed, or keep silent."""
        return self.refused + self.failed + self.silent

    def reaches(self, success: Fraction) -> bool:
        """True if the stage is done."""
        if self.unoffered:
            return False
        return self.size == 0 or (self.accepted > 0 and self.accepted >= success * (self.size - self.absent))

    def lost(self, success: Fraction) -> bool:
        """True if errors have put the success out of reach."""
        return self.size - self.errors < success * self.size


def way_back(state: State) -> dict[int | None, tuple[str, ...]]:
    """The devices that were offered the document, by the version that they had before; `None` if they had none."""
    devices: dict[int | None, tuple[str, ...]] = {}
    for name, offer in sorted(state.offers.items()):
        devices[offer.former] = (*devices.get(offer.former, ()), name)
    return devices


def tally(plan: RolloutPlan, state: State, reports: Mapping[str, Report]) -> tuple[StageCounts, ...]:
    """How the devices of every stage stand, at the time of the state; `reports` has every enrolled device."""
    found = []
    for stage in state.stages:
        counts = dict.fromkeys(StageCounts._fields, 0)
        for name in stage:
            counts[_standing(plan, state, state.offers.get(name), reports.get(name))] += 1
        counts["size"] = len(stage) - counts["out"]
        found.append(StageCounts(**counts))
    return tuple(found)


def _standing(plan: RolloutPlan, state: State, offer: Offer | None, report: Report | None) -> str:
    if report is None or report.newest > plan.version:
        return "out"
    if offer is None:
        return "unoffered"
    if report.answer:
        return report.answer
    patience_us = plan.patience_seconds * 1_000_000
    if offer.reached_us is None:
        return "absent" if state.clock_us - offer.at_us >= patience_us else "pending"
    return "silent" if state.clock_us - offer.reached_us >= patience_us else "pending"


MINUTE_US = 60_000_000
CATCH_UP_US = 5_000_000


_STEPS: dict[str, tuple[Phase, ...]] = {
    "start": ("draft",),
    "pause": ("running", "waiting"),
    "resume": ("paused",),
    "approve": ("waiting",),
    "abort": ("draft", "running", "waiting", "paused"),
}


def operated(state: State, what: str, now_us: int, stages: tuple[tuple[str, ...], ...] = ()) -> State:
    """The state after a step of an operator; `stages` are the devices of a start. FleetError if it is not its phase.

    A pause counts for neither patience nor pace. After an abort devices stay where they are.
    """
    if state.phase not in _STEPS[what]:
        phases = " or ".join(_STEPS[what])
        raise FleetError(f"cannot {what} a rollout that is {state.phase}: only one that is {phases}")
    match what:
        case "start":
            return replace(state, phase="running", stages=stages, seen_us=now_us, offers={})
        case "resume":
            return replace(state, phase="running", seen_us=now_us)
        case "approve":
            return replace(state, phase="running", approved=state.stage + 1, cause="")
    return replace(state, phase="paused" if what == "pause" else "aborted", cause="")


def advance(
    plan: RolloutPlan, state: State, reports: Mapping[str, Report], now_us: int
) -> tuple[tuple[str, ...], State]:
    """Do what is due; returns the devices that get the document, and the state to keep together with that.

    Reports are of all enrolled devices.
    """
    if state.phase not in ("running", "waiting"):
        return (), state
    passed = min(max(now_us - state.seen_us, 0), MINUTE_US)
    state = replace(state, clock_us=state.clock_us + passed, seen_us=now_us)
    state = _noticed(state, reports)
    if cause := _stopping(plan, state, tally(plan, state, reports)):
        return (), replace(state, phase="stopped", cause=cause)
    offered: tuple[str, ...] = ()
    while True:  # the last device of a stage that gets its offer may be all that the stage waited for
        state = _next_stage(plan, state, tally(plan, state, reports))
        more, state = _offer(plan, state, reports, passed) if state.phase == "running" else ((), state)
        if not more:
            return offered, state
        offered += more


def _noticed(state: State, reports: Mapping[str, Report]) -> State:
    reached = {
        name: offer._replace(reached_us=state.clock_us)
        for name, offer in state.offers.items()
        if offer.reached_us is None
        and (report := reports.get(name)) is not None
        and (report.online or report.last_seen_us > offer.time_us)
    }
    return replace(state, offers={**state.offers, **reached}) if reached else state


def _stopping(plan: RolloutPlan, state: State, counts: tuple[StageCounts, ...]) -> str:
    for i, (stage, count) in enumerate(zip(plan.stages[: state.stage + 1], counts, strict=False)):
        detail = (
            f"stage {i + 1}: {count.errors} of {count.size} devices refused ({count.refused}), failed "
            f"({count.failed}) or keep silent ({count.silent})"
        )
        if count.errors and count.errors >= plan.error * count.size:
            return f"{detail}; the error threshold is {float(plan.error):.6g}"
        if i == state.stage and count.errors and count.lost(stage.success):
            return f"{detail}; its success threshold of {float(stage.success):.6g} is out of reach"
    return ""


def _next_stage(plan: RolloutPlan, state: State, counts: tuple[StageCounts, ...]) -> State:
    """Go on to the first stage that is not done, if its gate is open."""
    while counts[state.stage].reaches(plan.stages[state.stage].success):
        following = state.stage + 1
        if following == len(plan.stages):
            return replace(state, phase="completed", cause="")
        if plan.stages[following].gate and state.approved < following:
            return replace(state, phase="waiting", cause=f"stage {following + 1} waits for approval")
        state = replace(state, stage=following)
    return replace(state, phase="running", cause="")


def _offer(
    plan: RolloutPlan, state: State, reports: Mapping[str, Report], passed: int
) -> tuple[tuple[str, ...], State]:
    """Offer the document to as many devices of the stages that have begun as the pace allows."""
    interval = -(-MINUTE_US // plan.pace)
    slot = max(state.slot_us, state.clock_us - min(passed, CATCH_UP_US))
    quota = plan.pace - sum(offer.at_us > state.clock_us - MINUTE_US for offer in state.offers.values())
    made: dict[str, Offer] = {}
    for name in chain.from_iterable(state.stages[: state.stage + 1]):
        if len(made) >= quota or slot > state.clock_us:
            break
        if name in state.offers or (report := reports.get(name)) is None or report.newest > plan.version:
            continue
        made[name] = Offer(state.clock_us, state.seen_us, report.former, state.clock_us if report.online else None)
        slot += interval
    return tuple(made), replace(state, slot_us=slot, offers={**state.offers, **made}) if made else state
