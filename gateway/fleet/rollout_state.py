"""Where a rollout is, as values: what is known about its devices, and how they stand by the rules of `rollout`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

from gateway.fleet.entries import Outcome
from gateway.fleet.plan import RolloutPlan

__all__ = [
    "ACTIVE",
    "Action",
    "Offer",
    "OfferWayBack",
    "Phase",
    "Report",
    "SetDesired",
    "StageCounts",
    "State",
    "tally",
    "way_back",
]

Phase = Literal["draft", "running", "waiting", "paused", "stopped", "aborted", "completed"]
"""`waiting` is for an operator's approval; `stopped` is by errors."""
ACTIVE: frozenset[Phase] = frozenset({"running", "waiting", "paused"})


class Report(NamedTuple):
    """What is known about a device.

    Attributes:
        last_seen_us: when it was last known to be.
        answer: its last word about the rollout's version, empty if there is none.
        former: the version that it has in force, or should have if it never said; None if there is none.
        newest: the highest version that it should have or has, 0 if there is none.
    """

    online: bool
    last_seen_us: int
    answer: Outcome | Literal[""]
    former: int | None
    newest: int


class Offer(NamedTuple):
    """When a device was offered the document.

    Attributes:
        at_us: on the rollout's clock.
        time_us: on the wall's.
        former: the version to go back to.
        reached_us: when it was first seen to be connected after that, on the rollout's clock.
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
        stage: the one that is under way.
        approved: gates up to this stage are open.
        clock_us, seen_us: the rollout's clock, and the time of the last call.
        slot_us: when the pace allows the next device.
        offers: the devices that were offered the document.
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


class SetDesired(NamedTuple):
    """Let a device have the document."""

    device: str
    version: int


class OfferWayBack(NamedTuple):
    """Tell the operator: for each former version, the devices that had it; None is for those that had none."""

    devices: Mapping[int | None, tuple[str, ...]]


Action = SetDesired | OfferWayBack


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
        """Whether the stage is done."""
        if self.unoffered:
            return False
        return self.size == 0 or (self.accepted > 0 and self.accepted >= success * (self.size - self.absent))

    def lost(self, success: Fraction) -> bool:
        """Whether errors have put the success out of reach."""
        return self.size - self.errors < success * self.size


def way_back(state: State) -> OfferWayBack:
    """For each former version, the devices that were offered the rollout's."""
    devices: dict[int | None, tuple[str, ...]] = {}
    for name, offer in sorted(state.offers.items()):
        devices[offer.former] = (*devices.get(offer.former, ()), name)
    return OfferWayBack(devices)


def tally(plan: RolloutPlan, state: State, reports: Mapping[str, Report]) -> tuple[StageCounts, ...]:
    """How the devices of every stage stand, at the time of the state.

    Args:
        reports: of every device that is enrolled.
    """
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
