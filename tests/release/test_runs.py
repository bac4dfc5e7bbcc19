"""Run-length arithmetic against a plain dictionary of ticks."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.releases.charges import ChargedTicks, clipped, overlay, peak

CHARGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15), st.integers(1, 3)), max_size=12)


def by_tick(runs: list[ChargedTicks]) -> dict[int, int]:
    return {tick: run.charge for run in runs for tick in range(run.first, run.last + 1)}


@given(CHARGES)
def test_every_tick_has_the_sum_of_what_covers_it_in_as_few_runs_as_there_can_be(
    charges: list[tuple[int, int, int]],
) -> None:
    runs, ticks = list[ChargedTicks](), dict[int, int]()
    for first, size, charge in charges:
        runs = overlay(runs, first, first + size - 1, charge)
        for tick in range(first, first + size):
            ticks[tick] = ticks.get(tick, 0) + charge
    assert by_tick(runs) == ticks
    assert sum(run.last - run.first + 1 for run in runs) == len(ticks)
    for before, after in pairwise(runs):
        assert before.last < after.first
        assert before.last + 1 < after.first or before.charge != after.charge
    assert peak(runs) == max(ticks.values(), default=0)


@given(CHARGES, st.integers(0, 50), st.integers(0, 20))
def test_clipping_keeps_the_charges_of_the_ticks_inside(
    charges: list[tuple[int, int, int]], first: int, size: int
) -> None:
    runs: list[ChargedTicks] = []
    for start, length, charge in charges:
        runs = overlay(runs, start, start + length - 1, charge)
    inside = {tick: charge for tick, charge in by_tick(runs).items() if first <= tick <= first + size}
    assert by_tick(clipped(runs, first, first + size)) == inside
