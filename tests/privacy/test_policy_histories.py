"""Random histories of policies, as a gateway hears of them: no stretch loses more than the newest descriptions say.

Policies get stronger and weaker, some for a few ticks only; clocks jump, devices pause and restart, frames come late,
windows take the place of symbols. What is true comes from recursions that every path confirms.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.dating import PromiseDates, dates_of
from fugu.contract.discretisers import Thresholds
from fugu.contract.guarantee import Guarantee
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.timeline import Drawn, Timeline
from fugu.contract.windows import Window
from fugu.planning.window_plan import WantedWindow, joint_plan
from fugu.privacy.randomised_response import calibrate
from gateway.parts.describe import Described, InForce
from tests.support.changing_noise import sides, stretch_losses
from tests.support.scenes import catalogue

KINDS = ("up", "down", "brief", "jump", "restart", "pause", "late", "windows", "dropped")
ADVERSARIES: tuple[Adversary, ...] = ("ignorant", "informed", "universal")
CLASSES = (
    BinaryChains(q=(0.1, 0.3), r=(0.1, 0.3)),
    BinaryChains(q=(0.25, 0.4), r=(0.2, 0.3)),
    BinaryChains(q=(0.15, 0.6), r=(0.2, 0.7)),
)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
FRAME, WINDOW = 8, 8


@cache
def mechanism(
    chains: BinaryChains, epsilon: float, adversary: Adversary, ticks: int, *, counted: bool
) -> tuple[NoiseTable | None, tuple[Window, ...]]:
    """The table or the windows of a promise, which take a tenth of a second."""
    if not counted:
        return calibrate(chains, epsilon, adversary, stretch_ticks=ticks, slack=True).table, ()
    wanted = [WantedWindow("eight", WINDOW, (1,))]
    return None, joint_plan(chains, epsilon, adversary, wanted, stretch_ticks=ticks).windows


@cache
def draft(
    version: int, chains: BinaryChains, epsilon: float, adversary: Adversary, ticks: int, *, counted: bool
) -> Policy:
    table, windows = mechanism(chains, epsilon, adversary, ticks, counted=counted)
    return Policy(
        fleet="home",
        device="watch",
        stream="hr",
        version=version,
        clock=Clock(epoch_us=0, period_us=60_000_000),
        discretiser=Thresholds(edges=(0.5,), states=("low", "high")),
        table=table,
        chains=chains,
        guarantee=Guarantee(epsilon=epsilon, adversary=adversary, stretch_ticks=ticks),
        windows=windows,
    )


def rates_of(policy: Policy) -> tuple[float, float]:
    first, second = policy.outputs.ratios
    return float(np.log(float(first))), float(np.log(float(second)))


@dataclass
class Life:
    """A device's ticks: `steps` of the chain in turn, each with its tick's number (-1: none) and rates."""

    generator: np.random.Generator
    kinds: set[str] = field(default_factory=set)
    policies: list[Policy] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    rates: list[tuple[float, float]] = field(default_factory=list)
    frames: list[Drawn] = field(default_factory=list)
    dropped: list[Drawn] = field(default_factory=list)
    due: list[int] = field(default_factory=list)
    tick: int = 0
    previous: int = -1

    def live(self) -> None:
        counted = self.generator.random() < 0.15
        if counted:
            self.kinds.add("windows")
        chains, adversary = CLASSES[self.generator.integers(3)], ADVERSARIES[self.generator.integers(3)]
        for version in range(1, int(self.generator.integers(2, 6)) + 1):
            if self.generator.random() < 0.2:
                chains, adversary = CLASSES[self.generator.integers(3)], ADVERSARIES[self.generator.integers(3)]
            epsilon, ticks = float(self.generator.choice(EPSILONS)), int(self.generator.choice([1, 1, 2, 9]))
            policy = draft(version, chains, epsilon, adversary, ticks, counted=counted)
            if self.policies:
                rate, before = (max(policy.outputs.ratios) for policy in (policy, self.policies[-1]))
                self.kinds.add("down" if rate < before else "up" if rate > before else "same")
            self.policies.append(policy)
            ticks = int(self.generator.choice([2, 10, 40, 90]))
            if ticks <= 10:
                self.kinds.add("brief")
            rates = rates_of(policy)
            for _ in range(ticks):
                self._perhaps_skip()
                self._draw(policy, rates)
            self._end_frame(policy)
        if self.generator.random() < 0.3:
            self._drop_frames()

    def _drop_frames(self) -> None:
        """Drop frames that others have received, before the gateway has them; the next frame passes over their ticks.

        The outbox of a device drops its oldest frames, and never the newest.
        """
        if len(self.frames) > 1:
            self.kinds.add("dropped")
            first = int(self.generator.integers(0, len(self.frames) - 1))
            after = int(self.generator.integers(first + 1, len(self.frames)))
            begin = self.frames[first].begin
            self.dropped = self.frames[first:after]
            self.frames[first : after + 1] = [self.frames[after]._replace(begin=begin)]

    def _perhaps_skip(self) -> None:
        if self.generator.random() > 0.01:
            return
        kind = str(self.generator.choice(["jump", "restart", "pause"]))
        self.kinds.add(kind)
        self._end_frame(self.policies[-1])
        skipped = int(self.generator.integers(5, 2000)) if kind == "jump" else int(self.generator.integers(1, 30))
        for _ in range(0 if kind == "jump" else skipped):  # time passes, and nothing is drawn
            self.numbers.append(-1)
            self.rates.append((0.0, 0.0))
        self.tick += skipped

    def _draw(self, policy: Policy, rates: tuple[float, float]) -> None:
        self.numbers.append(self.tick)
        self.rates.append(rates)
        self.due.append(self.tick)
        self.tick += 1
        if len(self.due) == FRAME:
            self._end_frame(policy)

    def _end_frame(self, policy: Policy) -> None:
        if not self.due:
            return
        first, last = self.due[0], self.due[-1]
        self.due = []
        if policy.table is None and last - first + 1 < WINDOW:  # it is never released
            for place, number in enumerate(self.numbers):
                if first <= number <= last:
                    self.rates[place] = (0.0, 0.0)
            return
        self.frames.append(Drawn(first, last, policy.version, self.previous + 1))
        self.previous = last


@dataclass
class Seen:
    """Frames that a gateway hears of it, some of them late; and its descriptions on the way."""

    life: Life
    timeline: Timeline = field(default_factory=Timeline)

    def __post_init__(self) -> None:
        self.known = InForce(catalogue(self.life.policies), rows_of=lambda *_: self.timeline.intervals)
        self.told: list[dict[int, PromiseDates]] = []

    def hear(self) -> None:
        order = [*self.life.frames]
        for place in range(len(order) - 1):
            if self.life.generator.random() < 0.02:
                self.life.kinds.add("late")
                order.insert(min(place + int(self.life.generator.integers(2, 9)), len(order)), order.pop(place))
        newest = 0
        for frame in order:
            if frame.version > newest:
                self.say()
                newest = frame.version
            self.timeline.add(frame)
            self.known.note_version("watch", "hr", frame.version, frame.last)
        self.say()

    def say(self) -> None:
        history = self.known.history("watch", "hr")
        heard = {row.version for row in self.timeline.intervals}
        self.told.append(
            {policy.version: dates_of(policy, history) for policy in self.life.policies if policy.version in heard}
        )

    def withdrawn(self) -> int:
        """How many promises of some interval of ticks were told, and are told of less of it at the end."""
        last, count = self.told[-1], 0
        for dates in self.told[:-1]:
            for version, when in dates.items():
                now = last[version]
                if (
                    when.since is not None
                    and when != now
                    and not (
                        now.since is not None
                        and now.since <= when.since
                        and (now.until is None or (when.until is not None and when.until <= now.until))
                    )
                ):
                    count += 1
        return count


def check(seed: int, counts: Counter[str]) -> None:
    """Live a life, hear of it, and hold every stretch against what the newest descriptions say."""
    life = Life(np.random.default_rng(seed))
    life.live()
    seen = Seen(life)
    seen.hear()
    counts.update(life.kinds)
    counts["withdrawn"] += seen.withdrawn()
    if not life.frames:
        return
    steps, numbers = np.array(life.rates), np.array(life.numbers)
    version_at = {tick: row.version for row in (*life.frames, *life.dropped) for tick in range(row.first, row.last + 1)}
    running = seen.known.running_policy("watch", "hr")
    assert running is not None
    description = Described.of(running).description
    described = {version.version: version for version in (description, *description.others)}
    closest = 0.0
    for policy in life.policies:
        if (when := seen.told[-1].get(policy.version)) is None:
            continue
        if policy.version in described:
            shown = described[policy.version].guarantee
            assert (shown.since, shown.until) == (when.since, when.until)
        promise, bound = policy.guarantee, policy.bound()
        ends = zip(policy.chains.q, policy.chains.r, strict=True)  # all are binary
        pairs = [sides(q, r, steps, promise.adversary) for q, r in {*ends}]  # one of them may be the worst
        for ticks in {1, promise.stretch_ticks, 3}:
            if ticks > len(steps):
                continue
            truth = np.max([stretch_losses(*pair, steps, ticks) for pair in pairs], axis=0)
            inside, outside = bound.epsilon(ticks), when.epsilon(bound, -1, -1, ticks)
            for place, loss in enumerate(truth.tolist()):
                begin = int(numbers[place])
                if version_at.get(begin) != policy.version or numbers[place + ticks - 1] - begin != ticks - 1:
                    continue
                limit = inside if when.covers(begin, begin, ticks) else outside
                assert loss <= limit + 1e-9, (seed, policy.version, begin, ticks, loss, limit)
                closest = max(closest, loss / limit)
                counts["stretches"] += 1
    counts["histories"] += 1
    counts["reached"] += closest >= 0.9


def summary(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))


@pytest.mark.long
def test_no_stretch_of_a_history_loses_more_than_is_told_at_its_end() -> None:
    counts: Counter[str] = Counter()
    for seed in range(60):
        check(seed, counts)
    assert all(counts[kind] for kind in KINDS), summary(counts)
    assert counts["reached"] >= 6
    assert counts["withdrawn"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_histories_lose_no_more_than_is_told(part: int) -> None:
    """A thousand each; at least 20 of each kind, and 100 that come within a tenth of what is told."""
    counts: Counter[str] = Counter()
    for seed in range(1000 * part, 1000 * part + 1000):
        check(1_000_000 + seed, counts)
    print(summary(counts))
    assert all(counts[kind] >= 20 for kind in KINDS), summary(counts)
    assert counts["reached"] >= 100
