"""Registries, plans and simulated devices that the fleet's tests share."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from gateway.fleet.entries import (
    WHOLE_FLEET,
    Document,
    Outcome,
    PolicyReport,
    RolloutPlan,
    Sighting,
    Stage,
    Target,
    stages_of,
)
from gateway.fleet.registry import Registry
from gateway.fleet.rollouts import DeviceReport as Report
from gateway.fleet.rollouts import Rollouts, operate
from gateway.fleet.rollouts import RolloutState as State

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
PERCENT = Fraction(1, 100)


def document(version: int = 1, target: Target = WHOLE_FLEET, **fields: Any) -> Document:
    """A document whose bytes nobody looks at."""
    defaults = {"digest": f"{version:08x}", "payload": b"signed %d" % version, "description": f"number {version}"}
    return Document(version, target, **(defaults | fields))


def names(count: int) -> list[str]:
    return [f"d{i:03}" for i in range(count)]


def new_registry(
    path: Path, devices: Sequence[str] = (), *, canaries: Sequence[str] = (), versions: int = 1
) -> Registry:
    """A registry with those devices, some of them in group `canary`, and the first documents."""
    registry = Registry(path, fleet="home")
    with registry.transaction():
        for name in devices:
            registry.enrol(name, ["canary"] if name in canaries else [], actor="ann", time_us=START)
        for version in range(1, versions + 1):
            registry.add_document(document(version), actor="ann", time_us=START)
    return registry


def plan(
    *stages: Stage | int,
    version: int = 1,
    success: Fraction | int = 80,
    error: Fraction | int = 20,
    pace: int = 60_000,
    patience_seconds: int = 60,
    **fields: Any,
) -> RolloutPlan:
    """A plan; whole numbers are per cent, and one stage of 100 % unless there are others."""
    threshold = Fraction(success) if isinstance(success, Fraction) else success * PERCENT
    plan_stages = tuple(
        Stage(stage * PERCENT, success=threshold) if isinstance(stage, int) else stage for stage in stages or (100,)
    )
    limit = error if isinstance(error, Fraction) else error * PERCENT
    return RolloutPlan(version, plan_stages, limit, pace, patience_seconds, **fields)


def started(some: RolloutPlan, devices: Sequence[str], canaries: Sequence[str] = ()) -> State:
    """The plan's rollout, at its first moment."""
    groups = {name: frozenset({"canary"} if name in canaries else ()) for name in devices}
    return operate(State(), "start", START, stages_of(some, groups))


@dataclass
class Pretended:
    """Reports of devices for the pure rules, to be changed by a test."""

    version: int = 1
    reports: dict[str, Report] = field(default_factory=dict)

    @classmethod
    def of(cls, devices: Sequence[str], *, online: bool = True) -> Pretended:
        """Devices that have version 0 and say nothing."""
        return cls(reports={name: Report(online, START if online else 0, "", None, 0) for name in devices})

    def say(self, answer: Outcome, *devices: str) -> None:
        for name in devices:
            self.reports[name] = self.reports[name]._replace(answer=answer)

    def go(self, online: bool, *devices: str, at_us: int = 0) -> None:
        """Let them come or go; `at_us` is when they were last known to be there."""
        for name in devices:
            self.reports[name] = self.reports[name]._replace(online=online, last_seen_us=at_us)


class SimulatedFleet:
    """Devices that take documents from a registry and answer, in simulated time; offline ones never do."""

    def __init__(self, registry: Registry, *, refusing: frozenset[str], offline: frozenset[str]) -> None:
        self.registry = registry
        self.rollouts = Rollouts(registry)
        self.refusing, self.offline = refusing, offline
        self.now = START
        self.given: list[tuple[int, str, int]] = []
        self._random = random.Random(5)
        self._answers: list[tuple[int, str, int]] = []
        births = (Sighting(device.name, True, 0, "", "0.1.0", START) for device in registry.devices())
        registry.note_sightings([birth for birth in births if birth.device not in offline])

    def reopen(self, path: Path) -> None:
        """The gateway is killed and comes back: only the file is left."""
        self.registry.close()
        self.registry = Registry(path)
        self.rollouts = Rollouts(self.registry)

    def step(self) -> None:
        """Let a second pass, publish what is due, and let devices answer."""
        self.now += SECOND
        for due in self.rollouts.due(self.now, 50):
            self.given.append((self.now, due.device, due.version))
            self.registry.note_published([(due.device, due.version)])
            if due.device not in self.offline:
                after = self._random.randrange(100_000, 3 * SECOND)
                heapq.heappush(self._answers, (self.now + after, due.device, due.version))
        reports = []
        while self._answers and self._answers[0][0] <= self.now:
            time_us, name, version = heapq.heappop(self._answers)
            refuses = name in self.refusing
            outcome: Outcome = "refused" if refuses else "accepted"
            reports.append(PolicyReport(name, version, outcome, "ceiling" if refuses else "", time_us))
        self.registry.note_reports(reports)
