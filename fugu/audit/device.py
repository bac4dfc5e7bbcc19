"""A device's randomness, from the bytes that it publishes: each output against the distribution that it should have."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.audit.draws import (
    Alarm,
    Tested,
    checked,
    count_cells,
    frequencies,
    point_cells,
    related,
    scaled,
    smallest_error,
    symbol_distribution,
)
from fugu.contract.measure_frames import Point
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import StaircaseNoise, TimedTable
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy

__all__ = ["device_tests"]

Changes = Mapping[str | int, tuple[Sequence[int], Sequence[Any]]]

_FAR = 8
"""Ticks before and after, at which a state must not show."""


class _Sample(NamedTuple):
    """Draws of one kind.

    Attributes:
        of: what they are of.
        cells: (n,) what was drawn.
        distribution: (m,) of the cells.
        noise: if they are counts, less what was counted.
        scale: of that.
    """

    of: str
    cells: NDArray[np.integer]
    distribution: NDArray[np.float64]
    noise: Sequence[int] = ()
    scale: Fraction = Fraction(0)

    def tested(self, false_alarms: float) -> Tested:
        """Test them by themselves."""
        if not self.noise:
            return checked(self.of, self.cells, self.distribution, false_alarms)
        one = checked(self.of, self.cells, self.distribution, false_alarms / 2)
        return one._replace(alarms=(*one.alarms, *scaled(self.noise, self.scale, false_alarms / 2)))


def device_tests(
    policy: AnyPolicy,
    symbols: Mapping[int, bytes | bytearray],
    noise: Mapping[tuple[int, str], array[int]],
    points: Mapping[tuple[int, int], Sequence[Point]],
    false_alarms: float,
    script: Sequence[int] = (),
    changes: Changes | None = None,
) -> list[Tested]:
    """Test all outputs of a device whose readings are known: each by itself, every two of them, and at changes.

    Args:
        policy: that it ran.
        symbols: by state, from readings that stayed the same.
        noise: of counts, by state and window, from the same.
        points: by state and number of the table, from the same.
        false_alarms: probability of any alarm at all, if the device is as it should be.
        script: the state of every tick of readings that changed; it begins anew after the last.
        changes: ticks and draws of these: by a window's name as many counts a tick, less what was counted; by the
            number of a table points; under 0 symbols.
    """
    changed = {of: own for of, own in (changes or {}).items() if own[1]}
    samples = [sample for sample in _samples(policy, symbols, noise, points) if sample.cells.size]
    pooled = list(_pooled(policy, noise, changed))
    tested = [sample.tested(false_alarms / 2 / len(samples + pooled)) for sample in samples + pooled]
    pairs = list(combinations(samples, 2))
    for one, other in pairs:
        if alarms := related(one[1:3], other[1:3], false_alarms / 4 / len(pairs)):
            few = min(one.cells.size, other.cells.size)
            tested.append(Tested(f"{one.of}, and {other.of}", few, tuple(alarms), 1.0, None))
    for of, (ticks, drawn) in changed.items():
        tested.append(_at_changes(policy, of, ticks, drawn, np.array(script), false_alarms / 4 / len(changed)))
    for (_, number), released in points.items():
        if _table(policy, number) is None:
            tested.append(_unknown(number, len(released)))
    return tested


def _samples(
    policy: AnyPolicy,
    symbols: Mapping[int, bytes | bytearray],
    noise: Mapping[tuple[int, str], array[int]],
    points: Mapping[tuple[int, int], Sequence[Point]],
) -> Iterator[_Sample]:
    names = policy.discretiser.states
    for state, drawn in symbols.items():
        yield _Sample(f"symbols of {names[state]}", *_cells(policy, 0, state, drawn))
    for (state, name), counts in noise.items():
        yield _Sample(
            f"window {name} of {names[state]}", *_cells(policy, name, state, counts), counts, _scale(policy, name)
        )
    for (state, number), released in points.items():
        if _table(policy, number) is not None:
            yield _Sample(f"points of {names[state]}, table {number}", *_cells(policy, number, state, released))


def _pooled(policy: AnyPolicy, noise: Mapping[tuple[int, str], array[int]], changed: Changes) -> Iterator[_Sample]:
    """The noise of each window, of all states and of the changes."""
    for name in dict.fromkeys(name for _, name in noise):
        every = array("q", changed[name][1] if name in changed else ())
        for (_, of), counts in noise.items():
            every += counts if of == name else array("q")
        yield _Sample(f"window {name}", *_cells(policy, name, 0, every), every, _scale(policy, name))


def _cells(
    policy: AnyPolicy, of: str | int, state: int, drawn: Sequence[Any]
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Cells, and their distribution: of symbols, of a window or of a table, as in `device_tests`."""
    if isinstance(of, str):
        return count_cells(drawn, _scale(policy, of))
    if (table := _table(policy, of)) is not None:
        likely = table.noise.likely if isinstance(table.noise, StaircaseNoise) else 1
        assert isinstance(policy, MeasurePolicy)
        return point_cells(drawn, table.noise, state, policy.measurement.centres(likely)[state])
    assert isinstance(policy, Policy)
    assert policy.table is not None
    return np.frombuffer(bytes(drawn), dtype=np.uint8), symbol_distribution(policy.table, state)


def _scale(policy: AnyPolicy, name: str) -> Fraction:
    assert isinstance(policy, Policy)
    window = policy.window(name)
    assert window is not None
    return Fraction(window.scale)


def _table(policy: AnyPolicy, number: int) -> TimedTable | None:
    return policy.table(number) if isinstance(policy, MeasurePolicy) else None


def _unknown(number: int, draws: int) -> Tested:
    alarm = Alarm("tables", "the policy has no such table")
    return Tested(f"points of table {number}", draws, (alarm,), 1.0, None)


def _at_changes(
    policy: AnyPolicy,
    of: str | int,
    ticks: Sequence[int],
    drawn: Sequence[Any],
    script: NDArray[np.int64],
    false_alarms: float,
) -> Tested:
    """Test that draws are as their own state has them, whatever the states of other ticks were or will be."""
    if isinstance(of, int) and isinstance(policy, MeasurePolicy) and _table(policy, of) is None:
        return _unknown(of, len(drawn))
    names, at = policy.discretiser.states, np.asarray(ticks, dtype=np.int64)
    every, groups = np.unique(script).tolist(), []
    for now in every:
        inside = script[at % script.size] == now
        each_tick = len(drawn) // at.size
        cells, distribution = _cells(policy, of, now, list(compress(drawn, np.repeat(inside, each_tick).tolist())))
        cells = cells.reshape(-1, each_tick)
        for distance in (*range(-_FAR, 0), *range(1, _FAR + 1)):
            then = script[(at[inside] + distance) % script.size]
            for other in every:
                about = f"{names[now]}, {abs(distance)} ticks {'after' if distance < 0 else 'before'} {names[other]}"
                for what, places in _places(each_tick, now, other):
                    chosen = cells[then == other][:, places].ravel()
                    if chosen.size:
                        counts = np.bincount(chosen, minlength=distribution.size)
                        groups.append((what + about, counts, distribution))
    each = false_alarms / max(1, len(groups))
    found = [
        Alarm("changes", f"{about}: {alarm.about}")
        for about, counts, distribution in groups
        for alarm in frequencies(counts, distribution, each)
    ]
    smallest = max(smallest_error(int(counts.sum()), distribution, 3 * each) for _, counts, distribution in groups)
    name = (
        f"window {of}" if isinstance(of, str) else "symbols" if isinstance(policy, Policy) else f"points of table {of}"
    )
    return Tested(f"{name} at changes", len(drawn), tuple(found), min(1.0, smallest), None)


def _places(each_tick: int, now: int, other: int) -> list[tuple[str, list[int]]]:
    """Which counts of a tick are taken together: those of the state of either tick, and all the others."""
    if each_tick == 1:
        return [("", [0])]
    rest = [place for place in range(each_tick) if place not in (now, other)]
    own = [("count of the state, ", [now])]
    return own + [("count of the other state, ", [other])] * (now != other) + [("other counts, ", rest)] * bool(rest)
