"""The three sleepers of the demo, and what their devices do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.contract.discretisers import Baseline
from fugu.contract.errors import FuguError
from fugu.contract.policy import Policy
from fugu.host.csv_file import csv_rows
from fugu.planning.joint_plan import WantedWindow, joint_plan
from fugu.planning.policy_builder import PolicyHeader, build_window_policy
from fugu.planning.recording import states_of
from fugu.privacy.covering_class import Covered, covering_class

__all__ = ["BEATS", "EPSILON", "FLEET", "RECORDINGS", "Person", "load_people", "load_person", "policy_for"]

FLEET = "demo"
RECORDINGS = Path(__file__).parent / "data"
"""The three nights; they keep their own licences."""
EPSILON = 1.0
BEATS = 300
"""Heartbeats of a window, and of the running baseline."""
BASELINE = Baseline(baseline_ticks=BEATS, lowest=30.0, highest=230.0)


@dataclass(frozen=True)
class Person:
    """One recording.

    Attributes:
        recording: the CSV file.
        hours: (n,) time of each heartbeat since the first.
        states: (n,) 1 where the heart rate is above its running baseline, -1 before there is one.
        covered: the class of chains that covers the recording.
    """

    name: str
    recording: Path
    hours: Floats
    states: Ints
    covered: Covered

    @property
    def device(self) -> str:
        """Name of the person's device."""
        return f"watch-{self.name}"

    @property
    def segments(self) -> Ints:
        """The recording has no gaps."""
        return np.zeros_like(self.states)


def load_people() -> list[Person]:
    """All recordings, the most restless night first."""
    return [load_person(name) for name in ("N10", "N05", "N07")]


def load_person(name: str) -> Person:
    """Read a recording, as a device would, and find its class."""
    path = RECORDINGS / f"hr_sleep_{name}.csv.gz"
    with csv_rows(path, FuguError) as (header, rows):
        columns = header.index("t"), header.index("value")
        seconds, values = np.array([[float(row[column]) for column in columns] for _, row in rows]).T
    segments = np.zeros(len(values), dtype=np.int64)
    states = states_of(BASELINE, values, segments)
    return Person(name, path, seconds / 3600.0, states, covering_class(states, segments, 2))


def policy_for(person: Person, *, epoch: float, period_seconds: float, version: int = 1) -> Policy:
    """The policy of the person's device: a noisy count of every 300 heartbeats, and nothing else.

    Args:
        person: whose.
        epoch: Unix time of the first heartbeat, in seconds.
        period_seconds: from one to the next.
        version: of the policy.
    """
    plan = joint_plan(person.covered.chains, EPSILON, "universal", [WantedWindow("above", BEATS, ("above",))])
    header = PolicyHeader(FLEET, person.device, "heart-rate", BASELINE, period_seconds, version=version, epoch=epoch)
    return build_window_policy(plan, header)
