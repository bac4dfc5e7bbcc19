"""A device's disk and counts under way, by enumeration: one look at a window loses what it may, two do not.

The device's own counting runs for every course of states and every noise; a view is what somebody sees of that.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

import pytest

import fugu.core.windows
from edge_agent.window_file import RecordedCounter, WindowRecord
from fugu.contract.compiled import AgentWindow
from tests.support.agents import window_plan

pytestmark = pytest.mark.long
TICKS = 4
SCALE = Fraction(3, 2)
ONE = window_plan(length=TICKS, numerator=3, denominator=2)
TWO = window_plan(length=2, stride=1, numerator=3, denominator=2)
Path = tuple[int, ...]
View = tuple[tuple[str, int, int], ...]


class Device:
    """Counts of one definition with given noise by index; its file is as the agent's, and its clock never stands."""

    def __init__(self, plan: AgentWindow, noise: Sequence[int]) -> None:
        self.plan = plan
        self.records: dict[int, WindowRecord] = {}
        self.published: list[tuple[str, int, int]] = []
        self.looks: list[tuple[str, int, int]] = []
        self._released = -1
        self._noise = list(noise)
        self.start(lost=True)

    def start(self, *, lost: bool = False) -> None:
        """Start, or start again: what was in memory is gone, and the records, too, if they are `lost`."""
        if lost:
            self.records.clear()
        records = list(self.records.values())
        self._windows = RecordedCounter(self.plan, lambda _below: 0, self._released, 0, records)

    def tick(self, tick: int, state: int) -> None:
        """Count, blank the records of what has ended, publish it, and write records: the agent's order."""
        fugu.core.windows.discrete_laplace = lambda *_: self._noise.pop(0)
        self._windows.observe(tick, state)
        closed, records = self._windows.close(tick), self._windows.records(tick)
        self.records = {
            index: record
            for index, record in self.records.items()
            if index % self.plan.overlap not in self._windows.to_blank
        }
        self._windows.to_blank.clear()
        for index, _, counts in closed:
            self._released = index
            self.published.append(("frame", index, counts[0]))
        self.records |= {record.index: record for record in records}

    def run(self, path: Path, ticks: range) -> None:
        for tick in ticks:
            self.tick(tick, path[tick])

    def look(self) -> None:
        """Somebody reads the disk."""
        self.looks += [("record", index, record.counts[0]) for index, record in sorted(self.records.items())]


@pytest.fixture(autouse=True)
def _noise_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fugu.core.windows, "discrete_laplace", None)


def loss(plan: AgentWindow, windows: int, life: Callable[[Device, Path], View], ticks: int = TICKS) -> list[float]:
    """For each tick the largest log-ratio of any view between two courses that differ there; infinite if one cannot be.

    Counts of at most 1 need noise from -`ticks` - 1 to 1; views with larger ones have no other ratios.
    """
    noises = list(product(range(-ticks - 1, 2), repeat=windows))
    likelihoods: dict[Path, Counter[View]] = defaultdict(Counter)
    for path in product((0, 1), repeat=ticks):
        for noise in noises:
            view = life(Device(plan, noise), path)
            if all(abs(count) <= 1 for _, _, count in view):
                likelihoods[path][view] += math.exp(-sum(map(abs, noise)) / float(SCALE))
    return [max(_ratio(likelihoods, path, tick) for path in likelihoods if not path[tick]) for tick in range(ticks)]


def _ratio(likelihoods: dict[Path, Counter[View]], path: Path, tick: int) -> float:
    likelihood, other = likelihoods[path], likelihoods[(*path[:tick], 1, *path[tick + 1 :])]
    assert likelihood
    views = likelihood.keys() | other.keys()
    return max(
        abs(math.log(likelihood[view] / other[view])) if likelihood[view] and other[view] else math.inf
        for view in views
    )


BOUND = 1 / float(SCALE) + 1e-9


@pytest.mark.parametrize(("killed", "back"), [(0, 3), (1, 1), (1, 3), (2, 2), (3, 3)])
def test_a_count_that_went_on_after_a_kill_loses_what_any_count_does(killed: int, back: int) -> None:
    """And nothing of ticks that it does not hold, because they were lost or absent."""

    def life(device: Device, path: Path) -> View:
        device.run(path, range(killed))
        device.start()
        device.run(path, range(back, TICKS))
        return tuple(device.published)

    losses = loss(ONE, 2, life)  # where there is no record, noise is drawn anew
    in_record = max([tick + 1 for tick in range(killed) if ONE.is_recorded(0, tick)], default=0)
    counted = [tick < in_record or tick >= back for tick in range(TICKS)]
    assert all(loss <= BOUND if inside else loss < 1e-9 for loss, inside in zip(losses, counted, strict=True))
    assert max(losses) > BOUND - 1e-6


@pytest.mark.parametrize("seen", range(TICKS))
def test_one_look_at_the_disk_and_all_that_was_published_till_then_lose_no_more(seen: int) -> None:
    def life(device: Device, path: Path) -> View:
        device.run(path, range(seen + 1))
        device.look()
        return (*device.published, *device.looks)

    losses = loss(ONE, 1, life)
    assert max(losses) <= BOUND
    assert max(losses) > BOUND - 1e-6 or seen == 0, "a record, or the frame"


@pytest.mark.long
def test_one_look_at_windows_that_overlap_loses_what_their_policy_accounts_for() -> None:
    """Some are in frames then, and others in records; each has noise of its own."""
    killed = 1
    seen = 2

    def life(device: Device, path: Path) -> View:
        for tick in range(seen + 1):
            if tick == killed:
                device.start()
            device.tick(tick, path[tick])
        device.look()
        return (*device.published, *device.looks)

    losses = loss(TWO, 3, life, ticks=3)
    assert max(losses) <= TWO.overlap * BOUND


@pytest.mark.parametrize("killed", range(1, TICKS))
def test_a_look_and_the_count_that_began_anew_without_its_record_lose_no_more(killed: int) -> None:
    """As after a change of policy, or a torn write: no tick is in both."""

    def life(device: Device, path: Path) -> View:
        device.run(path, range(killed))
        device.look()
        device.start(lost=True)
        device.run(path, range(killed, TICKS))
        return (*device.looks, *device.published)

    assert max(loss(ONE, 2, life)) <= BOUND


def test_two_looks_at_one_window_tell_the_ticks_between_them_for_certain() -> None:
    """So nobody may see a record and, later, the frame of its window, or another record: its noise is the same."""

    def record_and_frame(device: Device, path: Path) -> View:
        for tick in range(TICKS):
            device.tick(tick, path[tick])
            if tick == 1:
                device.look()
        return (*device.looks, *device.published)

    def two_records(device: Device, path: Path) -> View:
        for tick in range(3):
            device.tick(tick, path[tick])
            device.look()
        return tuple(device.looks)

    assert [math.isinf(epsilon) for epsilon in loss(ONE, 1, record_and_frame)] == [False, False, True, True]
    assert [math.isinf(epsilon) for epsilon in loss(ONE, 1, two_records)] == [False, True, True, False]
