"""Loss of a release over symbols about states: golden numbers, every subset of symbols, and sums of several."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fugu.contract.chains import BinaryChains
from fugu.contract.guarantee import tick_ratios
from fugu.contract.losses import float_up
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.privacy.randomised_response import allowed_ratios
from gateway.releases.allowance import LEAST_SCALE, amplified_loss, charge, scale_above, smallest_scale
from gateway.releases.charges import PER_NAT, units_above
from tests.support.work import lines_run

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "mqm.json").read_text())["7_sanitised"]
THETA = {"theta1": (0.1, 0.4), "theta2": (0.2, 0.3)}


def binary(rho0: float, rho1: float) -> NoiseTable:
    return NoiseTable.binary(round(rho0 * SCALE), round(rho1 * SCALE))


def close(value: float) -> Any:
    """1e-9, and once more that for rho in 32 bits."""
    return pytest.approx(value, rel=2e-9, abs=1e-9)


def named(text: str) -> tuple[float, NoiseTable]:
    number, rho0, rho1 = text.partition("=")[2].split("|")
    return float(number), binary(float(rho0), float(rho1))


@settings(max_examples=40, deadline=None)
@given(st.fractions(Fraction(1, 10**9), 10**9))
def test_a_scale_is_rounded_up_to_few_digits(scale: Fraction) -> None:
    fraction = scale_above(scale)
    assert fraction >= max(scale, LEAST_SCALE)
    assert (fraction - scale) * 10**6 < 10**6 if scale >= 100 else fraction in (LEAST_SCALE, scale_above(fraction))
    assert (fraction * 10**6).denominator == 1


@settings(max_examples=40, deadline=None)
@given(st.fractions(0, 10**9))
def test_a_float_up_is_the_next_one_that_is_no_less(value: Fraction) -> None:
    rounded = float_up(value)
    assert math.nextafter(rounded, -1.0) < value <= rounded


def test_the_noise_for_several_tables_is_that_of_the_one_that_needs_most() -> None:
    """And is found without a search."""
    tables, scales = [binary(0.4, 0.4), binary(0.1, 0.2), binary(0.3, 0.45)], list[Fraction]()
    lines_run(lambda: scales.append(smallest_scale(tables, 2, PER_NAT // 2)), 20_000)
    assert scales[0] == max(smallest_scale([table], 2, PER_NAT // 2) for table in tables)
    assert all(units_above(charge(table, float_up(2 / scales[0]))) <= PER_NAT // 2 for table in tables)


@pytest.mark.parametrize("name", GOLDEN["rr_lambda"])
def test_golden_losses(name: str) -> None:
    scale, table = named(name)
    assert amplified_loss(table, 1 / scale) == close(GOLDEN["rr_lambda"][name])


def loses(table: NoiseTable, scale: float, loss: float) -> bool:
    """True if a release of a scale loses this; of scale 0: if the table alone does not lose more."""
    return amplified_loss(table, 1 / scale) == close(loss) if scale else amplified_loss(table, math.inf) < loss


@pytest.mark.parametrize("name", GOLDEN["rr_scale"])
def test_golden_scales(name: str) -> None:
    loss, table = named(name)
    assert loses(table, GOLDEN["rr_scale"][name], loss)


@pytest.mark.parametrize("name", [name for name in GOLDEN if "|eps=" in name])
def test_golden_scales_of_chains(name: str) -> None:
    theta, rho, epsilon = (part.rpartition("=")[2] for part in name.split("|"))
    q, r = THETA[theta]
    allowed = allowed_ratios(BinaryChains(q=(q, q), r=(r, r)), float(epsilon), "ignorant")
    loss = math.log(min(allowed))
    assert 1 / loss == close(GOLDEN[name]["s_coupling_plain"])
    expected = GOLDEN[name]["s_coupling_rr"]
    table = binary(float(rho), float(rho))
    assert loses(table, expected, loss)
    scale = smallest_scale([table], 1, int(loss * PER_NAT))
    assert scale == (LEAST_SCALE if expected == 0.0 else pytest.approx(expected, abs=2e-6))


@st.composite
def tables(draw: st.DrawFn) -> NoiseTable:
    states, symbols = draw(st.integers(2, 4)), draw(st.integers(2, 5))
    rows = []
    for _ in range(states):
        cells = draw(st.lists(st.integers(1, 1000) | st.just(10**6), min_size=symbols, max_size=symbols))
        edges = np.cumsum(cells)[:-1] * (SCALE / sum(cells))
        rows.append(tuple(int(edge) for edge in edges))
    return NoiseTable(rows=tuple(rows))


SPREADS = st.floats(1e-6, 30.0)


def enumerated(table: NoiseTable, spread: float) -> float:
    """The largest of all pairs of states and all sets of symbols, to the last digit of a float."""
    growth, worst = Decimal(spread).exp(), Decimal(1)
    symbols = range(table.symbols)
    for above, below in permutations(table.weights(), 2):
        for size in range(1, table.symbols):
            for chosen in combinations(symbols, size):
                factors = [growth if z in chosen else Decimal(1) for z in symbols]
                mean = [sum(w * factor for w, factor in zip(row, factors, strict=True)) for row in (above, below)]
                worst = max(worst, mean[0] / mean[1])
    return float(worst.ln())


@pytest.mark.long
@given(tables(), SPREADS)
@settings(max_examples=40, deadline=None)
def test_thresholds_find_the_worst_set_of_symbols(table: NoiseTable, spread: float) -> None:
    amplified, worst = amplified_loss(table, spread), enumerated(table, spread)
    assert amplified == pytest.approx(worst, rel=1e-9, abs=1e-12)
    assert amplified <= spread
    assert amplified <= math.log(max(tick_ratios(table))) * (1 + 1e-9)


@pytest.mark.long
@example(binary(0.3, 0.26), [0.05, 0.05])  # nearly symmetric
@given(tables(), st.lists(SPREADS, min_size=2, max_size=5))
@settings(max_examples=40, deadline=None)
def test_charges_of_several_releases_add_up_to_no_less_than_they_lose_together(
    table: NoiseTable, spreads: list[float]
) -> None:
    together = sum(spreads)
    assert charge(table, together) >= amplified_loss(table, together) * (1 - 1e-15)
    assert sum(charge(table, spread) for spread in spreads) >= enumerated(table, together)
    assert all(charge(table, spread) <= spread for spread in spreads)


def test_amplified_losses_do_not_add_up_and_charges_do() -> None:
    """Two counts with scale 2 and outputs far outside: each has the likelihood e^(z/2), both together e^z."""
    table = binary(0.3, 0.1)
    both = math.log((0.3 + 0.7 * math.e) / (0.9 + 0.1 * math.e))  # states 0 and 1, a factor e on symbol 0
    assert both > 2 * amplified_loss(table, 0.5) + 0.008
    assert both <= 2 * charge(table, 0.5)
    assert amplified_loss(table, 1.0) == pytest.approx(both, rel=1e-8)


@pytest.mark.parametrize("rho", [0.05, 0.1, 0.3, 0.45])
def test_for_symmetric_randomised_response_a_charge_is_what_one_release_loses(rho: float) -> None:
    for spread in (0.01, 0.3, 2.0, 9.0):
        assert charge(binary(rho, rho), spread) == pytest.approx(amplified_loss(binary(rho, rho), spread), rel=1e-12)


@pytest.mark.long
@given(tables(), st.integers(1, 4), st.integers(10**8, 5 * 10**12))
@settings(max_examples=40, deadline=None)
def test_the_smallest_scale_is_within_the_budget_and_a_smaller_one_is_not(
    table: NoiseTable, sensitivity: int, budget: int
) -> None:
    scale = smallest_scale([table], sensitivity, budget)
    assert units_above(charge(table, sensitivity / float(scale) * (1 + 1e-15))) <= budget
    if scale > LEAST_SCALE:
        less = scale - (Fraction(3, 10**6) if scale < 100 else Fraction(3, 10**3) if scale < 10**6 else 3)
        assert units_above(charge(table, sensitivity / float(less))) > budget
    assert smallest_scale([table, binary(0.001, 0.001)], sensitivity, budget) >= scale


def test_symbols_that_say_nothing_are_charged_nothing_to_speak_of() -> None:
    table = NoiseTable(rows=((SCALE // 2,), (SCALE // 2,)))
    assert amplified_loss(table, 5.0) == charge(table, 5.0) == 0.0
    assert smallest_scale([table], 1, 1) == LEAST_SCALE


@pytest.mark.long
def test_many_states_take_no_time() -> None:
    table = NoiseTable.randomised_response(120, SCALE // 1000)
    assert amplified_loss(table, 0.1) < charge(table, 0.1) * (1 + 1e-9) < 0.1
