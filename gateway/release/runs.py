"""Charges by tick, run-length encoded: disjoint ascending runs, none empty, none of charge 0, no equal neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Run", "clipped", "overlay", "peak"]


class Run(NamedTuple):
    """Ticks first..last, each charged the same; charges are whole units of `gateway.release.charges`."""

    first: int
    last: int
    charge: int


def overlay(runs: Iterable[Run], first: int, last: int, charge: int) -> list[Run]:
    """Add a charge to every tick first..last.

    Args:
        runs: of any stretch of ticks; what does not overlap or touch the ticks stays as it is.
        first, last: both included.
        charge: above 0.
    """
    result: list[Run] = []
    reached = first  # ticks of first..last below it are done
    for run in runs:
        if run.last < first:
            _append(result, run)
            continue
        if run.first < first:
            _append(result, Run(run.first, first - 1, run.charge))
        stop = min(run.first - 1, last)
        if reached <= stop:
            _append(result, Run(reached, stop, charge))
        low, high = max(run.first, first), min(run.last, last)
        if low <= high:
            _append(result, Run(low, high, run.charge + charge))
        reached = max(reached, high + 1, stop + 1)
        if run.last > last:
            _append(result, Run(max(run.first, last + 1), run.last, run.charge))
    if reached <= last:
        _append(result, Run(reached, last, charge))
    return result


def clipped(runs: Iterable[Run], first: int, last: int) -> list[Run]:
    """What of the runs lies in first..last."""
    return [Run(max(r.first, first), min(r.last, last), r.charge) for r in runs if r.first <= last and r.last >= first]


def peak(runs: Sequence[Run]) -> int:
    """The largest charge, 0 without runs."""
    return max((run.charge for run in runs), default=0)


def _append(runs: list[Run], run: Run) -> None:
    if runs and runs[-1].last == run.first - 1 and runs[-1].charge == run.charge:
        runs[-1] = Run(runs[-1].first, run.last, run.charge)
    else:
        runs.append(run)
