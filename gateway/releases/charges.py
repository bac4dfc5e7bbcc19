"""Charges: per-tick losses as whole numbers of pico-nats, always rounded to the safe side.

Sums are exact: ten thousand windows that each charge exactly the allowance all pass, and a window that overlaps another
does not. Charges by tick are run-length encoded: disjoint ascending runs, none empty, none of charge 0, and no equal
neighbours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import NamedTuple

__all__ = [
    "PER_NAT",
    "ChargedTicks",
    "clip",
    "first_peak",
    "last_tick_above",
    "nats",
    "other_charges",
    "peak",
    "sum_charges",
    "units_above",
    "units_below",
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


def sum_charges(runs: Iterable[ChargedTicks]) -> list[ChargedTicks]:
    """Add up the charges of runs that may overlap."""
    charge_changes = Counter[int]()
    for run in runs:
        charge_changes[run.first] += run.charge
        charge_changes[run.last + 1] -= run.charge
    ticks = sorted(tick for tick, charge_change in charge_changes.items() if charge_change)
    charges = accumulate(charge_changes[tick] for tick in ticks)
    spans = zip(pairwise(ticks), charges, strict=False)  # from the last change on the charge is 0
    return [ChargedTicks(first, end - 1, charge) for (first, end), charge in spans if charge]


def clip(runs: Iterable[ChargedTicks], first: int, last: int) -> list[ChargedTicks]:
    """Cut runs to ticks first..last."""
    return [
        ChargedTicks(max(run.first, first), min(run.last, last), run.charge)
        for run in runs
        if run.first <= last and run.last >= first
    ]


def other_charges(runs: Iterable[ChargedTicks], first: int, last: int, lead: int | None) -> list[ChargedTicks]:
    """The charges of another device at the ticks first..last of a device, in this device's tick numbers.

    `runs` have the other device's tick numbers, which this device's are ahead of by `lead`. `None` says that the other
    clock was set, so that nobody knows by how much: the largest of `runs` counts for all ticks.
    """
    if lead is None:
        charge = peak(runs)
        return [ChargedTicks(first, last, charge)] if charge else []
    clipped_runs = clip(runs, first - lead, last - lead)
    return [ChargedTicks(run.first + lead, run.last + lead, run.charge) for run in clipped_runs]


def peak(runs: Iterable[ChargedTicks]) -> int:
    """The largest sum of charges of a tick, 0 without runs; the runs may overlap."""
    return max((run.charge for run in sum_charges(runs)), default=0)


def last_tick_above(runs: Iterable[ChargedTicks], limit: int) -> int:
    """The last tick whose charges add up to more than a limit, -1 if there is none; the runs may overlap."""
    return max((run.last for run in sum_charges(runs) if run.charge > limit), default=-1)


def first_peak(runs: Iterable[ChargedTicks], default: int) -> int:
    """The first tick with the largest sum of charges, `default` without runs; the runs may overlap."""
    return max(sum_charges(runs), key=attrgetter("charge"), default=ChargedTicks(default, default, 0)).first
