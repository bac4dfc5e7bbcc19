"""The values of a fleet's registry: documents, reports, plans of rollouts, and the errors of this room.

The devices that get a document follow from the plan and the devices' names and groups alone. A device's rank is the
hash of the plan's seed and its name; p % of n devices are the first ceil(p * n / 100) by rank. So 10 % are among the 20
% of the same seed, and a share above 0 has at least one device. Shares are exact fractions, so that thresholds are
exact.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Literal, NamedTuple

from fugu.contract.errors import FuguError
from fugu.contract.topics import NAME_PATTERN, RESERVED_DEVICES

__all__ = [
    "Document",
    "DueDocument",
    "Event",
    "FleetError",
    "Outcome",
    "PolicyReport",
    "Refusal",
    "RegistryError",
    "RolloutPlan",
    "Sighting",
    "Stage",
    "Target",
    "check_name",
    "parse_share",
    "stages_of",
]


Outcome = Literal["accepted", "refused"]
_NAME = re.compile(NAME_PATTERN)
_SHARE = re.compile("([0-9./]{1,20}) ?(%?)")
_MAX_VERSION = 2**32 - 1


class FleetError(FuguError):
    """A document, a root, a plan or a step of a rollout is refused; nothing was changed."""


class RegistryError(FuguError):
    """The registry's file cannot be used; nothing was changed."""


class Target(NamedTuple):
    """The devices that a document is for; `name` is empty for the whole fleet."""

    kind: Literal["device", "group", "fleet"]
    name: str = ""

    def covers(self, device: str, groups: frozenset[str]) -> bool:
        """Return whether the target includes a device."""
        return self.name in groups if self.kind == "group" else self.kind == "fleet" or self.name == device

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


@dataclass(frozen=True, slots=True)
class Document:
    """A signed policy document, whose payload is not read here.

    Attributes:
        version: its number in the fleet, higher than those of all documents before it.
        target: the devices that it is for, as its signed text says.
        restores: the version whose content it brings back, `None` if it restores none.
    """

    version: int
    target: Target
    digest: str
    payload: bytes
    description: str
    added_by: str = ""
    added_us: int = 0
    restores: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.version <= _MAX_VERSION:
            raise FleetError(f"version {self.version} is not in 1..{_MAX_VERSION}")
        if not self.payload or not re.fullmatch("[0-9a-f]{8,128}", self.digest):
            raise FleetError(f"document {self.version} needs its bytes and their digest in hexadecimal")
        if self.restores is not None and self.restores >= self.version:
            raise FleetError(f"document {self.version} cannot restore version {self.restores}: it is not older")


class Sighting(NamedTuple):
    """A device's status, or its last will (not online), as it arrived."""

    device: str
    online: bool
    outbox_depth: int
    codes: str
    agent_version: str
    time_us: int


class PolicyReport(NamedTuple):
    """A device's answer to a document, as it arrived.

    Attributes:
        version: the judged version; 0 for a document that is not in this registry or, if accepted, for none.
        stale: whether the device says that it has heard of no new document for too long.
        in_force: the version that the device says is in force, 0 for none; `None` if it does not say.
    """

    device: str
    version: int
    outcome: Outcome
    reason: str
    time_us: int
    stale: bool = False
    in_force: int | None = None


class Refusal(NamedTuple):
    """One answer other than `accepted`, which is stored for ever."""

    number: int
    time_us: int
    device: str
    version: int
    outcome: Outcome
    reason: str


class Event(NamedTuple):
    """An action of an operator, or of a rollout by itself."""

    number: int
    time_us: int
    who: str
    what: str
    subject: str
    detail: str


class DueDocument(NamedTuple):
    """A document that a device should get, and that the broker has not acknowledged yet."""

    device: str
    version: int
    payload: bytes


def check_name(name: str, kind: str) -> str:
    """Return a name that can stand in a topic. Raises FuguError for other names."""
    if not _NAME.fullmatch(name) or name in RESERVED_DEVICES:
        raise FuguError(f"{name[:80]!r} cannot be the name of a {kind}: 1 to 64 letters, digits, '_' or '-'")
    return name


WHOLE_FLEET = Target("fleet")
_MAX_STAGES = 100
_MAX_PACE = 1_000_000
_MAX_PATIENCE_SECONDS = 90 * 24 * 3600


def parse_share(text: str) -> Fraction:
    """Parse `3%`, `0.03` or `3/100`, exactly. Raises FleetError for other texts, and for those of over 20 digits."""
    if match := _SHARE.fullmatch(text.strip()):
        with suppress(ValueError, ZeroDivisionError):
            return Fraction(match[1]) / (100 if match[2] else 1)
    raise FleetError(f"{text[:40]!r} is no share: write 3%, 0.03 or 3/100")


def _check_share(subject: str, share: Fraction) -> None:
    if not 0 < share <= 1:
        raise FleetError(f"{subject} of {share} is not above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a rollout.

    Attributes:
        share: the share of the rollout's devices that is reached by the end of this stage, including earlier stages; or
        group: the group whose devices in the rollout are this stage.
        success: the least share of the stage's devices that must accept before the next stage begins.
        gate: whether the stage begins only when an operator has approved it.
    """

    share: Fraction | None = None
    group: str = ""
    success: Fraction = Fraction(9, 10)
    gate: bool = False

    def __post_init__(self) -> None:
        if (self.share is None) == (not self.group):
            raise FleetError("a stage is either a share or a group")
        if self.group:
            check_name(self.group, "group")
        if self.share is not None:
            _check_share("a stage's share", self.share)
        _check_share("a success threshold", self.success)


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """A rollout's plan.

    Attributes:
        stages: one after the other; the last reaches all of the rollout's devices.
        error: the share of a stage's devices whose refusals, failures or silence stop the rollout.
        pace: most devices that get the document in any minute, evenly spread.
        patience_seconds: time to wait for a device's answer.
        groups: the groups whose devices the rollout is for; () for all devices.
        share: the share of these devices that the rollout goes to.
        seed: the seed of the choice of devices.
    """

    version: int
    stages: tuple[Stage, ...]
    error: Fraction
    pace: int
    patience_seconds: int
    groups: tuple[str, ...] = ()
    share: Fraction = Fraction(1)
    seed: str = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.stages) <= _MAX_STAGES:
            raise FleetError(f"a plan has 1 to {_MAX_STAGES} stages, not {len(self.stages)}")
        if self.stages[-1].share != 1:
            raise FleetError("the last stage must reach 100 % of the rollout's devices")
        shares = [stage.share for stage in self.stages if stage.share is not None]
        if any(later_stage <= earlier_stage for earlier_stage, later_stage in pairwise(shares)):
            raise FleetError("every stage's share must be larger than the one before")
        if self.stages[0].gate:
            raise FleetError("the first stage begins with the start: it has no gate")
        _check_share("an error threshold", self.error)
        _check_share("a rollout to a share", self.share)
        if not 1 <= self.pace <= _MAX_PACE:
            raise FleetError(f"a pace of {self.pace} devices per minute is not in 1..{_MAX_PACE}")
        if not 1 <= self.patience_seconds <= _MAX_PATIENCE_SECONDS:
            raise FleetError(f"a patience of {self.patience_seconds} s is not in 1..{_MAX_PATIENCE_SECONDS}")
        for group in self.groups:
            check_name(group, "group")

    def to_json(self) -> str:
        """Return the plan as text, the same for equal plans."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> RolloutPlan:
        """Parse the text of `to_json`."""
        plan_fields = json.loads(text)
        exact_shares = {"error": Fraction(plan_fields["error"]), "share": Fraction(plan_fields["share"])}
        for stage in plan_fields["stages"]:
            stage |= {"share": stage["share"] and Fraction(stage["share"]), "success": Fraction(stage["success"])}
        stages = tuple(Stage(**stage) for stage in plan_fields["stages"])
        return cls(**plan_fields | exact_shares | {"stages": stages, "groups": tuple(plan_fields["groups"])})


def first_devices(devices: tuple[str, ...], share: Fraction) -> tuple[str, ...]:
    """Return the first ceil(share * n) of n devices."""
    return devices[: ceil(share * len(devices))]


def stages_of(
    plan: RolloutPlan, devices: Mapping[str, frozenset[str]], target: Target = WHOLE_FLEET
) -> tuple[tuple[str, ...], ...]:
    """Return the devices that each stage adds, in the order of the offers, out of the devices of `target`.

    Raises FleetError if the rollout, or a stage that is a group, has no device.
    """
    addressed_names = [name for name, groups in devices.items() if target.covers(name, groups)]
    member_names = [name for name in addressed_names if not plan.groups or not devices[name].isdisjoint(plan.groups)]
    member_names.sort(key=lambda name: (hashlib.sha256(f"{plan.seed}\0{name}".encode()).digest(), name))
    ranked_names = first_devices(tuple(member_names), plan.share)
    if not ranked_names:
        raise FleetError(f"document {plan.version} for {target}: none of the devices that it is for is in the plan")
    stages: list[tuple[str, ...]] = []
    assigned_names: set[str] = set()
    for i, stage in enumerate(plan.stages):
        group_members = tuple(name for name in ranked_names if stage.group in devices[name])
        stage_devices = group_members if stage.share is None else first_devices(ranked_names, stage.share)
        if not stage_devices:
            raise FleetError(f"stage {i + 1} has no device: none of the rollout's is in group {stage.group}")
        stages.append(tuple(name for name in stage_devices if name not in assigned_names))
        assigned_names.update(stage_devices)
    return tuple(stages)
