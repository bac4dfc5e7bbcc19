"""Charges: per-tick losses as whole numbers of pico-nats, always rounded to the safe side.

Sums are exact: ten thousand windows that each charge exactly the allowance all pass, and a window that overlaps another
does not. Charges by tick are run-length encoded: disjoint ascending runs, none empty, none of charge 0, and no equal
neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

__all__ = [
    *(
        "PER_NAT",
        "ChargedTicks",
        "charges_beside",
        "clip",
        "first_peak",
        "last_above",
        "nats",
        "overlay",
        "peak",
        "peak_of_sum",
    ),
    *("units_above", "units_below"),
]


PER_NAT = 10**12
_MOST_NATS = 10**6  # far above what any table can lose, and far within SQLite's 64-bit integers


def units_above(loss: float | Fraction) -> int:
    """Convert a loss in nats to a charge, rounded up. ValueError unless the loss is in 0..10^6."""
    return math.ceil(_checked_loss(loss) * PER_NAT)


def units_below(loss: float | Fraction) -> int:
    """Convert a loss in nats to an allowance, rounded down. ValueError unless the loss is in 0..10^6."""
    return math.floor(_checked_loss(loss) * PER_NAT)


def nats(units: int) -> float:
    """Convert a charge to nats, for people and for messages."""
    return units / PER_NAT


def _checked_loss(loss: float | Fraction) -> Fraction:
    if not (math.isfinite(loss) and 0 <= loss <= _MOST_NATS):
        raise ValueError(f"{float(loss):g} is no loss in nats: it must be in 0..{_MOST_NATS}")
    return Fraction(loss)


class ChargedTicks(NamedTuple):
    """A run of ticks first..last, each with the same charge, in whole pico-nats."""

    first: int
    last: int
    charge: int


def overlay(runs: Iterable[ChargedTicks], first: int, last: int, charge: int) -> list[ChargedTicks]:
    """Add a charge above 0 to every tick first..last, both included; runs that do not touch those ticks stay."""
    new_runs: list[ChargedTicks] = []
    next_tick = first  # earlier ticks of first..last are done
    for run in runs:
        if run.last < first:
            _append(new_runs, run)
            continue
        if run.first < first:
            _append(new_runs, ChargedTicks(run.first, first - 1, run.charge))
        gap_end = min(run.first - 1, last)
        if next_tick <= gap_end:
            _append(new_runs, ChargedTicks(next_tick, gap_end, charge))
        low, high = max(run.first, first), min(run.last, last)
        if low <= high:
            _append(new_runs, ChargedTicks(low, high, run.charge + charge))
        next_tick = max(next_tick, high + 1, gap_end + 1)
        if run.last > last:
            _append(new_runs, ChargedTicks(max(run.first, last + 1), run.last, run.charge))
    if next_tick <= last:
        _append(new_runs, ChargedTicks(next_tick, last, charge))
    return new_runs


def clip(runs: Iterable[ChargedTicks], first: int, last: int) -> list[ChargedTicks]:
    """The parts of runs within ticks first..last."""
    return [
        ChargedTicks(max(run.first, first), min(run.last, last), run.charge)
        for run in runs
        if run.first <= last and run.last >= first
    ]


def charges_beside(runs: Iterable[ChargedTicks], first: int, last: int, ahead: int | None) -> list[ChargedTicks]:
    """The charges of another device at the ticks first..last of a device, in this device's tick numbers.

    `runs` have the other device's tick numbers, which this device's are ahead of by `ahead`. `None` says that the other
    clock was set, so that nobody knows by how much: the largest of `runs` counts for all ticks.
    """
    if ahead is None:
        charge = peak(list(runs))
        return [ChargedTicks(first, last, charge)] if charge else []
    clipped = clip(runs, first - ahead, last - ahead)
    return [ChargedTicks(run.first + ahead, run.last + ahead, run.charge) for run in clipped]


def peak(runs: Sequence[ChargedTicks]) -> int:
    """The largest charge, 0 without runs."""
    return max((run.charge for run in runs), default=0)


def peak_of_sum(runs: Iterable[ChargedTicks]) -> int:
    """The largest sum of charges of a tick; the runs may overlap."""
    return max(accumulate((charge for _, charge in _changes(runs)), initial=0))


def last_above(runs: Iterable[ChargedTicks], limit: int) -> int:
    """The last tick whose charges add up to more than a limit, -1 if there is none; the runs may overlap."""
    changes = _changes(runs)
    sums = accumulate(charge for _, charge in changes)
    ends = (tick for tick, _ in changes[1:])
    return max((end - 1 for end, charge in zip(ends, sums, strict=False) if charge > limit), default=-1)


def first_peak(runs: Iterable[ChargedTicks], default: int) -> int:
    """The first tick with the largest sum of charges, `default` without runs; the runs may overlap."""
    changes = _changes(runs)
    sums = list(accumulate(charge for _, charge in changes))
    return changes[sums.index(max(sums))][0] if sums else default


def _changes(runs: Iterable[ChargedTicks]) -> list[tuple[int, int]]:
    """The changes of the summed charge, as pairs (tick, change), by tick: a run ends at the tick after its last."""
    return sorted(change for run in runs for change in ((run.first, run.charge), (run.last + 1, -run.charge)))


def _append(runs: list[ChargedTicks], run: ChargedTicks) -> None:
    """Append a run, or lengthen the last one if the two are neighbours of the same charge."""
    if runs and runs[-1].last == run.first - 1 and runs[-1].charge == run.charge:
        runs[-1] = ChargedTicks(runs[-1].first, run.last, run.charge)
    else:
        runs.append(run)
