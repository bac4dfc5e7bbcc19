"""Charges: per-tick losses as whole numbers of pico-nats, always rounded to the safe side, and by tick.

Sums of whole numbers are exact, so ten thousand windows that each charge exactly the allowance all pass, and the one
that overlaps another does not. Charges by tick are run-length encoded: disjoint ascending runs, none empty, none of
charge 0, no equal neighbours.

Streams that move together share their charges: given the states of a joint chain, what is told of its streams is
independent, so that charges of a tick add up over all of them, against the allowance of the joint class. Source:
docs/proofs/joint-streams.md, "Streams that move together".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from fugu.contract.chains import ChainClass

__all__ = [
    "PER_NAT",
    "ChargedTicks",
    "Stream",
    "beside",
    "clipped",
    "first_peak",
    "named_streams",
    "nats",
    "overlay",
    "peak",
    "peak_of_sum",
    "together_name",
    "units_above",
    "units_below",
]

Stream = tuple[str, str]
"""A device and one of its streams."""


def named_streams(chains: ChainClass, device: str) -> frozenset[Stream]:
    """The streams that a class of a device's policy is of, if they are several; else none."""
    if len(chains.named_streams) < 2:
        return frozenset()
    parts = [shown.name.rpartition("/") for shown in chains.named_streams]
    return frozenset((owner or device, stream) for owner, _, stream in parts)


def together_name(members: Iterable[Stream]) -> str:
    """What streams that move together are called: their names, with the device once if it is one."""
    streams = sorted(members)
    if len({device for device, _ in streams}) == 1:
        return f"{streams[0][0]}/{'+'.join(stream for _, stream in streams)}"
    return "+".join(f"{device}/{stream}" for device, stream in streams)


PER_NAT = 10**12
_MOST_NATS = 10**6  # far above what any table can lose, and far within SQLite's 64-bit integers


def units_above(loss: float | Fraction) -> int:
    """A loss in nats as a charge: rounded up.

    Raises:
        ValueError: the loss is negative, or not finite.
    """
    return math.ceil(_checked(loss) * PER_NAT)


def units_below(loss: float | Fraction) -> int:
    """A loss in nats as an allowance: rounded down.

    Raises:
        ValueError: the loss is negative, or not finite.
    """
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
    """What of the runs lies in first..last."""
    return [
        ChargedTicks(max(r.first, first), min(r.last, last), r.charge)
        for r in runs
        if r.first <= last and r.last >= first
    ]


def beside(runs: Iterable[ChargedTicks], first: int, last: int, ahead: int | None) -> list[ChargedTicks]:
    """What another device is charged at the wall ticks of the ticks first..last of a device.

    Args:
        runs: of the other one, in its own numbers.
        ahead: by how much these numbers are ahead of the other's; none if that is not known, as after its clock was
            set: then the largest charge of all counts for every tick.
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
    changes = sorted(change for run in runs for change in ((run.first, run.charge), (run.last + 1, -run.charge)))
    return max(accumulate((charge for _, charge in changes), initial=0))


def first_peak(runs: Iterable[ChargedTicks], otherwise: int) -> int:
    """The first tick with the largest sum of charges, of runs that may overlap; without runs another tick."""
    changes = sorted(change for run in runs for change in ((run.first, run.charge), (run.last + 1, -run.charge)))
    sums = list(accumulate(charge for _, charge in changes))
    return changes[sums.index(max(sums))][0] if sums else otherwise


def _append(runs: list[ChargedTicks], run: ChargedTicks) -> None:
    if runs and runs[-1].last == run.first - 1 and runs[-1].charge == run.charge:
        runs[-1] = ChargedTicks(runs[-1].first, run.last, run.charge)
    else:
        runs.append(run)
