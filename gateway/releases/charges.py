"""Charges: per-tick losses as whole numbers of pico-nats, always rounded to the safe side.

Sums are exact, so ten thousand windows that each charge exactly the allowance all pass, and the one that overlaps
another does not. Charges by tick are run-length encoded: disjoint ascending runs, none empty, none of charge 0, and no
equal neighbours.
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
        "beside",
        "clipped",
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
    """A loss in nats as a charge: rounded up. Raises ValueError if the loss is negative, or not finite."""
    return math.ceil(_checked(loss) * PER_NAT)


def units_below(loss: float | Fraction) -> int:
    """A loss in nats as an allowance: rounded down. Raises ValueError if the loss is negative, or not finite."""
    return math.floor(_checked(loss) * PER_NAT)


def nats(units: int) -> float:
    """A charge in nats, for people and for messages."""
    return units / PER_NAT


def _checked(loss: float | Fraction) -> Fraction:
    if not (math.isfinite(loss) and 0 <= loss <= _MOST_NATS):
        raise ValueError(f"{float(loss):g} is no loss in nats: it must be in 0..{_MOST_NATS}")
    return Fraction(loss)


class ChargedTicks(NamedTuple):
    """Ticks first..last, each charged the same; charges are whole units."""

    first: int
    last: int
    charge: int


def overlay(runs: Iterable[ChargedTicks], first: int, last: int, charge: int) -> list[ChargedTicks]:
    """Add a charge above 0 to every tick first..last, both included; runs that do not touch them stay as they are."""
    result: list[ChargedTicks] = []
    reached = first  # ticks of first..last below it are done
    for run in runs:
        if run.last < first:
            _append(result, run)
            continue
        if run.first < first:
            _append(result, ChargedTicks(run.first, first - 1, run.charge))
        stop = min(run.first - 1, last)
        if reached <= stop:
            _append(result, ChargedTicks(reached, stop, charge))
        low, high = max(run.first, first), min(run.last, last)
        if low <= high:
            _append(result, ChargedTicks(low, high, run.charge + charge))
        reached = max(reached, high + 1, stop + 1)
        if run.last > last:
            _append(result, ChargedTicks(max(run.first, last + 1), run.last, run.charge))
    if reached <= last:
        _append(result, ChargedTicks(reached, last, charge))
    return result


def clipped(runs: Iterable[ChargedTicks], first: int, last: int) -> list[ChargedTicks]:
    """Part of the runs in first..last."""
    return [
        ChargedTicks(max(r.first, first), min(r.last, last), r.charge)
        for r in runs
        if r.first <= last and r.last >= first
    ]


def beside(runs: Iterable[ChargedTicks], first: int, last: int, ahead: int | None) -> list[ChargedTicks]:
    """Charge of another device, by its own `runs`, at the wall ticks of the ticks first..last of a device.

    Its numbers are ahead by `ahead`; `None` if unknown, after its clock was set: then its largest charge counts for
    all.
    """
    if ahead is None:
        most = peak(list(runs))
        return [ChargedTicks(first, last, most)] if most else []
    return [ChargedTicks(r.first + ahead, r.last + ahead, r.charge) for r in clipped(runs, first - ahead, last - ahead)]


def peak(runs: Sequence[ChargedTicks]) -> int:
    """The largest charge, 0 without runs."""
    return max((run.charge for run in runs), default=0)


def peak_of_sum(runs: Iterable[ChargedTicks]) -> int:
    """The largest sum of the charges of a tick, of runs that may overlap."""
    return max(accumulate((charge for _, charge in _changes(runs)), initial=0))


def last_above(runs: Iterable[ChargedTicks], limit: int) -> int:
    """The last tick whose charges add up to more than a limit, of runs that may overlap; -1 if there is none."""
    changes = _changes(runs)
    sums = accumulate(charge for _, charge in changes)
    ends = (tick for tick, _ in changes[1:])
    return max((end - 1 for end, charge in zip(ends, sums, strict=False) if charge > limit), default=-1)


def first_peak(runs: Iterable[ChargedTicks], otherwise: int) -> int:
    """The first tick with the largest sum of charges, of runs that may overlap; without runs another tick."""
    changes = _changes(runs)
    sums = list(accumulate(charge for _, charge in changes))
    return changes[sums.index(max(sums))][0] if sums else otherwise


def _changes(runs: Iterable[ChargedTicks]) -> list[tuple[int, int]]:
    return sorted(change for run in runs for change in ((run.first, run.charge), (run.last + 1, -run.charge)))


def _append(runs: list[ChargedTicks], run: ChargedTicks) -> None:
    if runs and runs[-1].last == run.first - 1 and runs[-1].charge == run.charge:
        runs[-1] = ChargedTicks(runs[-1].first, run.last, run.charge)
    else:
        runs.append(run)
