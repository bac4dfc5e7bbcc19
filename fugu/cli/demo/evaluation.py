"""The subscriber's answers held against the recordings, and attackers on them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from fugu.attackers.evaluation import Attack, attack, furthest_learner, odds_change
from fugu.attackers.learning import COUNT_ATTACKERS
from fugu.attackers.outputs import CountOutputs, Knowledge, release_symbols
from fugu.chains.arrays import Floats, Ints
from fugu.cli.demo.processes import DemoError
from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Baseline
from fugu.contract.errors import FuguError
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.sentences import epsilon_to_odds
from fugu.host.csv_file import csv_rows
from fugu.planning.answers import window_error
from fugu.planning.policy_builder import PolicyHeader, build_window_policy
from fugu.planning.recording import states_of
from fugu.planning.window_plan import WantedWindow, joint_plan
from fugu.privacy.covering_class import Covered, covering_class
from fugu.privacy.quilts import group_dp_scale, mqm_exact

__all__ = [
    "BEATS",
    "EPSILON",
    "FLEET",
    "PROMISE",
    "RECORDINGS",
    "Night",
    "Person",
    "evaluate",
    "load_people",
    "night_so_far",
    "policy_for",
    "summary",
]


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


PROMISE = epsilon_to_odds(EPSILON)
"""By how much the odds on a heartbeat may change, at the most."""


@dataclass(frozen=True)
class Night:
    """One device's night; shares are of the heartbeats of a window, in 0..1.

    Attributes:
        name: of the recording.
        expected: number of windows of the recording, but for those before there is a baseline.
        hours: (w,) middle of each of them that arrived.
        truth: (w,) the true shares.
        released: (w,) the shares that arrived.
        band: half the width of a 95 % interval of a released share.
        quilts: the same with the noise of quilts, for chains inside those of the class that do not change, and an
            adversary who knows no state.
        group: the same if all heartbeats of a window are protected as one.
        ordinary: (n,) ln of the factor by which symbols of ordinary randomised response change the odds on each
            heartbeat, for an attacker who uses all of them (forward-backward with the average chain of the class).
        ours: (n,) the same of the windows that arrived.
        learner: (n,) the same, for the attacker who learns the sleeper's habits and moves furthest beyond the promise,
            which is not made to him; `None` while the night goes on.
        attack: the most successful attacker on those windows; `None` while the night goes on.
    """

    name: str
    expected: int
    hours: Floats
    truth: Floats
    released: Floats
    band: float
    quilts: float
    group: float
    ordinary: Floats
    ours: Floats
    learner: Floats | None
    attack: Attack | None

    @property
    def error(self) -> float:
        """Mean absolute error of the released shares."""
        return float(np.abs(self.released - self.truth).mean())

    @property
    def inside(self) -> float:
        """How often the truth was inside the band."""
        return float((np.abs(self.released - self.truth) <= self.band).mean())

    @property
    def broken(self) -> float:
        """The share of heartbeats on which ordinary randomised response goes beyond the promise."""
        return float((self.ordinary > EPSILON).mean())

    @property
    def learned(self) -> float | None:
        """The share of heartbeats on which the attacker who learns habits goes beyond the promise."""
        return None if self.learner is None else float((self.learner > EPSILON).mean())


def evaluate(people: Sequence[Person], policies: Mapping[str, Policy], readings: Path) -> list[Night]:
    """Compare what arrived with the recordings, and attack it; without those of whom no window did.

    Args:
        people: the recordings.
        policies: by device.
        readings: what `fugu subscribe --json` printed.

    Raises:
        DemoError: no window of any device arrived.
    """
    windows: dict[str, dict[int, Mapping[str, Any]]] = {person.device: {} for person in people}
    text = readings.read_text()
    for line in text[: text.rfind("\n")].splitlines():  # whoever was killed may have written half of one
        reading = json.loads(line)
        # Of a window with fewer ticks than its length nobody can say what was counted.
        if reading["kind"] == "window" and reading["observed"] == reading["length"]:
            windows[reading["device"]][reading["first"]] = reading
    # Before there is a baseline nobody is above it.
    some = [person for person in people if max(windows[person.device], default=0) >= BEATS]
    if not some:
        raise DemoError(f"no window of {people[0].device} reached the subscriber")
    return [_night(person, policies[person.device], windows[person.device], attacked=True) for person in some]


def night_so_far(person: Person, policy: Policy, windows: Mapping[int, Mapping[str, Any]]) -> Night:
    """A night until the end of the newest window.

    Args:
        windows: what has arrived, by first tick, one at least that begins when there is a baseline.
    """
    end = max(windows) + policy.windows[0].length
    return _night(replace(person, hours=person.hours[:end], states=person.states[:end]), policy, windows)


def _night(
    person: Person, policy: Policy, windows: Mapping[int, Mapping[str, Any]], *, attacked: bool = False
) -> Night:
    states, segments, [window] = person.states, person.segments, policy.windows
    first = np.array(sorted(windows), dtype=np.int64)
    useful = first >= BEATS
    length, scale = window.length, Fraction(window.scale)
    counts = np.array([windows[at]["counts"] for at in first.tolist()], dtype=np.int64)
    above = np.append(0, np.cumsum(states == 1))
    present = (states >= 0).astype(np.int64)
    outputs = CountOutputs(counts, first, length, scale, ((1,),), states.size, 2, present)
    knowledge, seen = Knowledge(person.covered.transition, segments), states >= 0
    low, high = person.covered.low, person.covered.high
    chains = BinaryChains(q=(low[0, 1], high[0, 1]), r=(low[1, 0], high[1, 0]))
    flip = round(2**32 / (1.0 + PROMISE))
    ordinary = release_symbols(states, NoiseTable.binary(flip, flip), np.random.default_rng(2026))
    attacks = attack(states, segments, outputs, EPSILON) if attacked else ()
    learner, told = furthest_learner(attacks), replace(knowledge, truth=states)
    tail = -math.log(0.05) / length  # of Laplace noise of scale 1: as far as its 95 % reach
    return Night(
        person.name,
        states.size // length - 1,
        person.hours[first + length // 2][useful],
        ((above[first + length] - above[first]) / length)[useful],
        np.clip(counts[:, 0] / length, 0.0, 1.0)[useful],
        window_error(scale, length).share_95,
        tail * mqm_exact(chains, None, EPSILON).scale,
        tail * group_dp_scale(length, EPSILON),
        odds_change(ordinary, knowledge)[seen],
        odds_change(outputs, knowledge)[seen],
        None if learner is None else odds_change(outputs, told, COUNT_ATTACKERS[learner.attacker])[seen],
        attacks[0] if attacks else None,
    )


def summary(night: Night) -> tuple[str, ...]:
    """A night in a sentence about use, and one about privacy; once it is over, one each about learners and success."""
    most, ours, found = math.exp(night.ordinary.max()), math.exp(night.ours.max()), night.attack
    said = (
        f"Useful: the released shares are off by {100 * night.error:.1f} points on average (a share of 40 % reads "
        f"{40 - 100 * night.error:.0f} to {40 + 100 * night.error:.0f} %), and {100 * night.inside:.0f} % of them by "
        f"at most {100 * night.band:.0f} points.",
        "Private: for an attacker who already knows the sleeper's habits, what is released changes the odds on a "
        f"heartbeat by at most x {ours:.1f}, where x {PROMISE:.1f} is promised; ordinary randomised response goes "
        f"beyond that promise on {100 * night.broken:.0f} % of the heartbeats, up to x {most:.0f}.",
    )
    if found is None or night.learner is None or night.learned is None:
        return said
    return (
        *said,
        f"Habits are not protected: for an attacker who learns them, odds change by up to "
        f"x {math.exp(night.learner.max()):.1f}, and by more than x {PROMISE:.1f} on {100 * night.learned:.0f} % of "
        "the heartbeats.",
        f"The strongest of {len(COUNT_ATTACKERS)} attackers on what was released ({found.attacker}) is right on "
        f"{100 * found.success:.1f} % of the heartbeats ({100 * found.low:.1f} to {100 * found.high:.1f}), always "
        f"guessing on {100 * found.guess:.1f} %; epsilon allows {100 * found.ceiling:.1f} %, if the readings are in "
        "the class.",
    )
