"""Run-length arithmetic against a plain dictionary of ticks."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.releases.charges import (
    PER_NAT,
    ChargedTicks,
    clip,
    other_charges,
    peak,
    sum_charges,
    units_above,
    units_below,
)

CHARGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15), st.integers(1, 3)), max_size=12)


def by_tick(runs: list[ChargedTicks]) -> dict[int, int]:
    return {tick: run.charge for run in runs for tick in range(run.first, run.last + 1)}


@given(CHARGES)
def test_every_tick_has_the_sum_of_what_covers_it_in_as_few_runs_as_there_can_be(
    charges: list[tuple[int, int, int]],
) -> None:
    runs, ticks = list[ChargedTicks](), dict[int, int]()
    for first, size, charge in charges:
        runs = sum_charges([*runs, ChargedTicks(first, first + size - 1, charge)])
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
        runs = sum_charges([*runs, ChargedTicks(start, start + length - 1, charge)])
    inside = {tick: charge for tick, charge in by_tick(runs).items() if first <= tick <= first + size}
    assert by_tick(clip(runs, first, first + size)) == inside


def charged(charges: list[tuple[int, int, int]]) -> list[ChargedTicks]:
    runs: list[ChargedTicks] = []
    for first, size, charge in charges:
        runs = sum_charges([*runs, ChargedTicks(first, first + size - 1, charge)])
    return runs


@settings(max_examples=40, deadline=None)
@given(CHARGES)
def test_the_peak_of_runs_that_overlap_is_the_largest_sum_of_a_tick(charges: list[tuple[int, int, int]]) -> None:
    apart = [ChargedTicks(first, first + size - 1, charge) for first, size, charge in charges]
    assert peak(apart) == max((run.charge for run in charged(charges)), default=0)


@settings(max_examples=40, deadline=None)
@given(CHARGES, st.integers(0, 50), st.integers(0, 20), st.integers(-30, 30))
def test_another_device_is_charged_at_the_same_wall_ticks(
    charges: list[tuple[int, int, int]], first: int, size: int, ahead: int
) -> None:
    runs, last = charged(charges), first + size
    there = {tick + ahead: charge for tick, charge in by_tick(runs).items() if first <= tick + ahead <= last}
    assert by_tick(other_charges(runs, first, last, ahead)) == there
    anywhere = dict.fromkeys(range(first, last + 1), peak(runs)) if runs else {}
    assert by_tick(other_charges(runs, first, last, None)) == anywhere, (
        "its clock was set: any of its ticks may be meant"
    )


@settings(max_examples=40, deadline=None)
@given(st.one_of(st.fractions(0, 10**6), st.floats(0.0, 1e6)))
def test_a_charge_is_rounded_up_and_an_allowance_down(loss: float | Fraction) -> None:
    exact = Fraction(loss) * PER_NAT
    assert units_below(loss) <= exact <= units_above(loss)
    assert units_above(loss) - units_below(loss) == (exact.denominator != 1)


@pytest.mark.parametrize("loss", [-1e-300, float("nan"), float("inf"), 10**6 + 1])
def test_what_is_no_loss_is_no_charge(loss: float) -> None:
    for units in (units_above, units_below):
        with pytest.raises(ValueError, match="is no loss in nats"):
            units(loss)
