"""Rollouts in the registry's file: every step is one transaction, and the due work is always read from the file.

So a gateway that is killed at any point continues there: a step is stored with all its desired versions, or not at all.
Operators' actions come from another process, the command line, and take effect at the next step.

The rules of a rollout are a pure state machine, which is given the time and the devices' reports, and returns actions.

A device that the document was offered to (it is the device's desired version) is, at any time, one of:

- accepted, refused: its answer says so;
- pending: it has not answered, and has had less than `patience` for it;
- silent: it was connected after the offer, and has not answered for `patience` since it was first seen there. A device
  that goes off under a new document is silent, not absent: that may be what the document does to it;
- absent: it has not been connected since the offer, and `patience` is over. It catches up by the retained message.

Devices that should have, or have, a newer version by now, and removed devices, are out: they count nowhere. With `size`
devices of a stage that are not out:

- Errors are refused + silent. The rollout stops when errors >= error * size in any stage that has begun; just
  below it goes on. It also stops when errors put the stage's success out of reach: size - errors < success * size. It
  then offers the way back: which devices had which version before. It takes nothing back by itself.
- A stage is done when the document was offered to all of it, at least one device has accepted, and
  accepted >= success * (size - absent). So for `patience` success is a share of all the stage's devices, then of those
  that could answer. Devices that are off hold a stage up for no longer. A stage where no device answers is never done;
  one whose devices are all out is.
- Then the next stage begins, once it is approved if it has a gate; or the rollout is completed.
- The pace: in any minute at most `pace` devices are offered the document, and one every minute / pace. A delay of more
  than a few seconds is not made up for.

Patience and pace are measured on the rollout's own clock. It stands still while the rollout is paused. More than a
minute between two calls counts as one minute: while the gateway was away, no device kept silent. If the wall clock is
set back, it does not move.

While a rollout is paused nothing happens; stopped, aborted and completed are final. Everything is a function of the
arguments: the same call again gives no action, and rarer calls make a rollout slower, never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from fugu.contract.errors import FuguError
from gateway.fleet.entries import DueDocument, FleetError, Outcome, RolloutPlan, stages_of
from gateway.fleet.registry import Registry

__all__ = ["ACTIVE", "Rollout", "Rollouts", "StageCounts", "operate", "tally"]


Phase = Literal["draft", "running", "waiting", "paused", "stopped", "aborted", "completed"]
"""`waiting`: for an operator's approval; `stopped`: because of errors."""
ACTIVE: frozenset[Phase] = frozenset({"running", "waiting", "paused"})


class DeviceReport(NamedTuple):
    """A device's state, for a rollout.

    Attributes:
        last_seen_us: the last time when it was connected.
        answer: its last answer about the rollout's version, empty if there is none.
        former: the version that it has in force, or should have if it never said; `None` if there is none.
        newest: the highest version that it should have or has, 0 if there is none.
    """

    online: bool
    last_seen_us: int
    answer: Outcome | Literal[""]
    former: int | None
    newest: int


class _Offer(NamedTuple):
    """The offer of the document to a device: `at_us` by the rollout's clock, `time_us` by the wall's.

    `former` is the version to go back to, `reached_us` the rollout's time of the device's first connection since.
    """

    at_us: int
    time_us: int
    former: int | None
    reached_us: int | None


@dataclass(frozen=True, slots=True)
class RolloutState:
    """The state of a rollout.

    Attributes:
        stages: the devices of each, in order; chosen at the start.
        approved: index of the last stage whose gate is open.
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
    offers: Mapping[str, _Offer] = field(default_factory=dict)
    cause: str = ""

    def way_back(self) -> dict[int | None, tuple[str, ...]]:
        """Return the devices that were offered the document, by their former version, `None` without one."""
        devices: dict[int | None, tuple[str, ...]] = {}
        for name, offer in sorted(self.offers.items()):
            devices[offer.former] = (*devices.get(offer.former, ()), name)
        return devices


class StageCounts(NamedTuple):
    """The number of a stage's devices in each state; `size` does not count those that are out."""

    size: int = 0
    unoffered: int = 0
    accepted: int = 0
    refused: int = 0
    silent: int = 0
    pending: int = 0
    absent: int = 0
    out: int = 0

    @property
    def errors(self) -> int:
        """The number of devices that refused or keep silent."""
        return self.refused + self.silent

    def reaches(self, success: Fraction) -> bool:
        """Return whether the stage is done, with `success` the share of devices that must accept."""
        if self.unoffered:
            return False
        return self.size == 0 or (self.accepted > 0 and self.accepted >= success * (self.size - self.absent))

    def is_success_lost(self, success: Fraction) -> bool:
        """Return whether errors keep the stage from reaching the share `success`."""
        return self.size - self.errors < success * self.size


def tally(plan: RolloutPlan, state: RolloutState, reports: Mapping[str, DeviceReport]) -> tuple[StageCounts, ...]:
    """Count the devices of every stage by their standing; `reports` has every enrolled device."""
    stage_counts = []
    for stage in state.stages:
        count_of = dict.fromkeys(StageCounts._fields, 0)
        for name in stage:
            count_of[_device_standing(plan, state, state.offers.get(name), reports.get(name))] += 1
        count_of["size"] = len(stage) - count_of["out"]
        stage_counts.append(StageCounts(**count_of))
    return tuple(stage_counts)


def _device_standing(plan: RolloutPlan, state: RolloutState, offer: _Offer | None, report: DeviceReport | None) -> str:
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
_PHASES_BEFORE: dict[str, tuple[Phase, ...]] = {
    "start": ("draft",),
    "pause": ("running", "waiting"),
    "resume": ("paused",),
    "approve": ("waiting",),
    "abort": ("draft", "running", "waiting", "paused"),
}


def operate(state: RolloutState, action: str, now_us: int, stages: tuple[tuple[str, ...], ...] = ()) -> RolloutState:
    """Return the state after an action of an operator; `stages` are for `start`. FleetError in a wrong phase."""
    if state.phase not in _PHASES_BEFORE[action]:
        phases = " or ".join(_PHASES_BEFORE[action])
        raise FleetError(f"cannot {action} a rollout that is {state.phase}: only one that is {phases}")
    match action:
        case "start":
            return replace(state, phase="running", stages=stages, seen_us=now_us, offers={})
        case "resume":
            return replace(state, phase="running", seen_us=now_us)
        case "approve":
            return replace(state, phase="running", approved=state.stage + 1, cause="")
    return replace(state, phase="paused" if action == "pause" else "aborted", cause="")


def advance(
    plan: RolloutPlan, state: RolloutState, reports: Mapping[str, DeviceReport], now_us: int
) -> tuple[tuple[str, ...], RolloutState]:
    """Do a rollout's due work. Return the devices that get the document, and the state to store with their versions."""
    if state.phase not in ("running", "waiting"):
        return (), state
    elapsed_us = min(max(now_us - state.seen_us, 0), MINUTE_US)
    state = replace(state, clock_us=state.clock_us + elapsed_us, seen_us=now_us)
    state = _note_connections(state, reports)
    if cause := _stop_cause(plan, state, tally(plan, state, reports)):
        return (), replace(state, phase="stopped", cause=cause)
    offered_names: tuple[str, ...] = ()
    while True:  # the offer to a stage's last device may complete the stage
        state = _next_stage(plan, state, tally(plan, state, reports))
        new_names, state = _offer(plan, state, reports, elapsed_us) if state.phase == "running" else ((), state)
        if not new_names:
            return offered_names, state
        offered_names += new_names


def _note_connections(state: RolloutState, reports: Mapping[str, DeviceReport]) -> RolloutState:
    reached_offers = {
        name: offer._replace(reached_us=state.clock_us)
        for name, offer in state.offers.items()
        if offer.reached_us is None
        and (report := reports.get(name)) is not None
        and (report.online or report.last_seen_us > offer.time_us)
    }
    return replace(state, offers={**state.offers, **reached_offers}) if reached_offers else state


def _stop_cause(plan: RolloutPlan, state: RolloutState, counts: tuple[StageCounts, ...]) -> str:
    for i, (stage, stage_counts) in enumerate(zip(plan.stages[: state.stage + 1], counts, strict=False)):
        detail = (
            f"stage {i + 1}: {stage_counts.errors} of {stage_counts.size} devices refused ({stage_counts.refused}) "
            f"or keep silent ({stage_counts.silent})"
        )
        if stage_counts.errors and stage_counts.errors >= plan.error * stage_counts.size:
            return f"{detail}; the error threshold is {float(plan.error):.6g}"
        if i == state.stage and stage_counts.errors and stage_counts.is_success_lost(stage.success):
            return f"{detail}; its success threshold of {float(stage.success):.6g} is out of reach"
    return ""


def _next_stage(plan: RolloutPlan, state: RolloutState, counts: tuple[StageCounts, ...]) -> RolloutState:
    """Go on to the first stage that is not done, if its gate is open."""
    while counts[state.stage].reaches(plan.stages[state.stage].success):
        next_stage = state.stage + 1
        if next_stage == len(plan.stages):
            return replace(state, phase="completed", cause="")
        if plan.stages[next_stage].gate and state.approved < next_stage:
            return replace(state, phase="waiting", cause=f"stage {next_stage + 1} waits for approval")
        state = replace(state, stage=next_stage)
    return replace(state, phase="running", cause="")


def _offer(
    plan: RolloutPlan, state: RolloutState, reports: Mapping[str, DeviceReport], elapsed_us: int
) -> tuple[tuple[str, ...], RolloutState]:
    """Offer the document to as many devices of the begun stages as the pace allows. Return them and the new state."""
    interval_us = -(-MINUTE_US // plan.pace)
    slot_us = max(state.slot_us, state.clock_us - min(elapsed_us, CATCH_UP_US))
    quota = plan.pace - sum(offer.at_us > state.clock_us - MINUTE_US for offer in state.offers.values())
    offers: dict[str, _Offer] = {}
    for name in chain.from_iterable(state.stages[: state.stage + 1]):
        if len(offers) >= quota or slot_us > state.clock_us:
            break
        if name in state.offers or (report := reports.get(name)) is None or report.newest > plan.version:
            continue
        offers[name] = _Offer(state.clock_us, state.seen_us, report.former, state.clock_us if report.online else None)
        slot_us += interval_us
    return tuple(offers), replace(state, slot_us=slot_us, offers={**state.offers, **offers}) if offers else state


_GATEWAY = "gateway"
_KEEP_CLOCK_US = 20_000_000
"""Least time between writes of steps that change only the clock, to spare the disk."""
_STATE = ("phase", "stage", "approved", "clock_us", "seen_us", "slot_us", "cause")
_row_of = attrgetter(*_STATE)
_IS_ACTIVE = "phase IN ('running', 'waiting', 'paused')"  # as the index of these rollouts has it
_REPORTS = """
SELECT m.device, d.online, d.last_seen_us, w.version, r.in_force, r.version, r.outcome,
    (SELECT outcome FROM refusals f WHERE f.device=m.device AND f.version=:version
        AND f.time_us>=d.enrolled_us ORDER BY number DESC LIMIT 1)
FROM rollout_devices m JOIN devices d ON d.name=m.device LEFT JOIN desired w ON w.device=m.device
LEFT JOIN reported r ON r.device=m.device WHERE m.rollout=:rollout
"""


class Rollout(NamedTuple):
    """A rollout. `ended_us` is when it was completed, stopped or aborted; only `show` fills `tallies`, by stage."""

    plan: RolloutPlan
    state: RolloutState
    created_us: int
    ended_us: int | None
    tallies: tuple[StageCounts, ...] = ()


class Rollouts:
    """The rollouts of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._db = registry.db

    def preview(self, plan: RolloutPlan) -> tuple[tuple[str, ...], ...]:
        """Return the devices that each stage of a plan would add, if it started now.

        Raises FleetError if the rollout or a stage has no device, or all have a newer version already; FuguError
        without the document.
        """
        with self._registry.snapshot():
            document = self._registry.document(plan.version)
            devices = {device.name: device for device in self._registry.devices()}
            stages = stages_of(plan, {name: device.groups for name, device in devices.items()}, document.target)
            desired = [devices[name].desired for stage in stages for name in stage]
            if all(document is not None and document.version > plan.version for document in desired):
                raise FleetError(f"every device of the plan should have a newer version than {plan.version} already")
            return stages

    def draft(self, plan: RolloutPlan, *, actor: str, time_us: int) -> int:
        """Store a plan, and return its number; its devices are chosen at the start. Raises as `preview`."""
        with self._registry.transaction():
            self.preview(plan)
            query = f"INSERT INTO rollouts (plan, {', '.join(_STATE)}, created_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            number = int(self._db.execute(query, (plan.to_json(), *_row_of(RolloutState()), time_us)).lastrowid or 0)
            self._record(number, actor, "draft", plan.to_json(), time_us)
            return number

    def start(self, number: int, *, actor: str, time_us: int) -> None:
        """Choose the devices, and begin with the first stage.

        Raises as `preview`; also FleetError if it was started before, or another rollout is active at one of its
        devices.
        """
        with self._registry.transaction():
            plan, state, *_ = self._load(number)
            started_state = operate(state, "start", time_us, self.preview(plan))
            stages = enumerate(started_state.stages)
            device_rows = [(number, name, stage, i) for stage, names in stages for i, name in enumerate(names)]
            query = "INSERT INTO rollout_devices (rollout, device, stage, place) VALUES (?, ?, ?, ?)"
            self._db.executemany(query, device_rows)
            device_count = len(device_rows)
            query = (
                f"SELECT rollout, COUNT(*) FROM rollout_devices JOIN rollouts ON rollout=number WHERE {_IS_ACTIVE} "
                "AND device IN (SELECT device FROM rollout_devices WHERE rollout=?) GROUP BY rollout"
            )
            if conflict_row := self._db.execute(query, (number,)).fetchone():
                raise FleetError(
                    f"rollout {conflict_row[0]} is under way at {conflict_row[1]} of the {device_count} devices: "
                    "let it end, or abort it"
                )
            self._save(number, state, started_state)
            self._record(number, actor, "start", f"version {plan.version} for {device_count} devices", time_us)

    def operate(self, number: int, action: str, *, actor: str, time_us: int) -> None:
        """Pause, resume, approve or abort a rollout. FleetError if it is in another phase."""
        with self._registry.transaction():
            state = self._load(number).state
            self._save(number, state, operate(state, action, time_us), time_us)
            self._record(number, actor, action, "", time_us)

    def step(self, number: int, time_us: int) -> tuple[str, ...]:
        """Do the due work of one rollout. Return the devices that get the document; all is durable, or did not happen.

        Raises FuguError if there is no such rollout; RegistryError if the file cannot be used, and nothing was changed.
        """
        with self._registry.transaction():
            plan, state, *_ = self._load(number)
            devices, next_state = advance(plan, state, self._reports(number, plan.version), time_us)
            is_clock_only = replace(next_state, clock_us=state.clock_us, seen_us=state.seen_us) == state
            if next_state == state or (is_clock_only and abs(time_us - state.seen_us) < _KEEP_CLOCK_US):
                return ()
            for device in devices:
                self._registry.raise_desired(device, plan.version, time_us, number)
            self._save(number, state, next_state, time_us)
            if (stage := next_state.stage) != state.stage:
                self._record(number, _GATEWAY, "stage", f"stage {stage + 1} of {len(next_state.stages)}", time_us)
            if next_state.phase != state.phase:
                self._record(number, _GATEWAY, next_state.phase, next_state.cause, time_us)
            return devices

    def due(self, time_us: int, limit: int = 100) -> list[DueDocument]:
        """Do the due work of all rollouts. Return the documents to publish now, longest waiting first.

        Raises RegistryError if the file cannot be used; nothing was changed in the rollout that failed.
        """
        for number in self.active():
            self.step(number, time_us)
        return self._registry.unpublished(limit)

    def active(self) -> list[int]:
        """Return the numbers of the active rollouts."""
        return self.numbers(f"WHERE {_IS_ACTIVE}")

    def numbers(self, condition: str = "") -> list[int]:
        """Return the numbers of all rollouts, or of those that fulfil a condition in SQL."""
        with self._registry.snapshot():
            return [row[0] for row in self._db.execute(f"SELECT number FROM rollouts {condition} ORDER BY number")]

    def show(self, number: int) -> Rollout:
        """Return a rollout with the counts of its stages. Raises FuguError if there is no such rollout."""
        with self._registry.snapshot():
            rollout = self._load(number)
            reports = self._reports(number, rollout.plan.version)
            return rollout._replace(tallies=tally(rollout.plan, rollout.state, reports))

    def _record(self, number: int, actor: str, action: str, detail: str, time_us: int) -> None:
        self._registry.record(actor, action, f"rollout {number}", detail, time_us=time_us)

    def _load(self, number: int) -> Rollout:
        with self._registry.snapshot():
            query = f"SELECT plan, created_us, ended_us, {', '.join(_STATE)} FROM rollouts WHERE number=?"
            if (row := self._db.execute(query, (number,)).fetchone()) is None:
                raise FuguError(f"there is no rollout {number} in fleet {self._registry.fleet}")
            plan_text, created_us, ended_us, *state_values = row
            members: dict[int, list[str]] = {}
            offers: dict[str, _Offer] = {}
            query = "SELECT stage, device, at_us, time_us, former, reached_us FROM rollout_devices "
            query += "WHERE rollout=? ORDER BY stage, place"
            for stage_index, device, *offer in self._db.execute(query, (number,)):
                members.setdefault(stage_index, []).append(device)
                if offer[0] is not None:
                    offers[device] = _Offer(*offer)
        plan = RolloutPlan.from_json(plan_text)
        stages = tuple(tuple(members.get(i, ())) for i in range(len(plan.stages))) if members else ()
        state = RolloutState(stages=stages, offers=offers, **dict(zip(_STATE, state_values, strict=True)))
        return Rollout(plan, state, created_us, ended_us)

    def _save(self, number: int, old_state: RolloutState, new_state: RolloutState, time_us: int | None = None) -> None:
        """Write a new state, and the offers that differ from the old state's."""
        columns = ", ".join(f"{column}=?" for column in _STATE)
        ended_us = None if new_state.phase in ACTIVE or new_state.phase == "draft" else time_us
        query = f"UPDATE rollouts SET {columns}, ended_us=? WHERE number=?"
        self._db.execute(query, (*_row_of(new_state), ended_us, number))
        old_offers, new_offers = old_state.offers, new_state.offers.items()
        offers = [(*offer, number, name) for name, offer in new_offers if old_offers.get(name) != offer]
        query = "UPDATE rollout_devices SET at_us=?, time_us=?, former=?, reached_us=? WHERE rollout=? AND device=?"
        self._db.executemany(query, offers)

    def _reports(self, number: int, version: int) -> Mapping[str, DeviceReport]:
        """Return by device the reports of a rollout's devices about a version."""
        reports = {}
        report_rows = self._db.execute(_REPORTS, {"rollout": number, "version": version})
        for device, online, last_seen, desired, in_force, answered_version, outcome, refusal_outcome in report_rows:
            answer: Any = (outcome if answered_version == version else refusal_outcome) or ""
            answer = "accepted" if in_force == version else answer  # a refusal before it does not count
            newest_version = max(desired or 0, in_force or 0)
            reports[device] = DeviceReport(bool(online), last_seen, answer, in_force or desired, newest_version)
        return reports
