"""The guarantee check at its edges: unusual chains and tables, intervals, refusals, and the time it takes.

That losses are never exceeded is judged by enumeration in tests/privacy.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from pydantic import ValidationError

from fugu.contract.chains import BinaryChains, BoundedChains, odds_ratio
from fugu.contract.errors import GuaranteeError
from fugu.contract.guarantee import Guarantee, StreamOutputs, check_outputs, loss, tick_ratios
from fugu.contract.losses import Adversary, exp_up
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.windows import Window
from tests.support.oracle import best_attack
from tests.support.recursions import lost
from tests.support.work import lines_run

ADVERSARIES: tuple[Adversary, ...] = ("ignorant", "informed", "universal")


def point(q: float, r: float) -> BinaryChains:
    return BinaryChains(q=(q, q), r=(r, r))


def flips(rho0: float, rho1: float) -> NoiseTable:
    return NoiseTable.binary(round(rho0 * SCALE), round(rho1 * SCALE))


def emission(table: NoiseTable) -> np.ndarray:
    return np.array(table.weights()) / SCALE


# Classes of chains


def test_the_worst_alternating_chain_for_a_direction_can_be_inside_its_interval() -> None:
    """So the highest corner does not bound the class: an actual attack on a member beats both ends of its interval."""
    table = flips(0.4242594, 2.02831e-5)
    inside, ends, r = 0.9938877, (0.9638877, 0.9997976), 0.9241383
    attack = best_attack(inside, r, emission(table), 0, informed=True)
    assert attack > max(loss(point(q, r), table, "informed").epsilon_01 for q in ends) + 0.5
    assert attack <= loss(BinaryChains(q=ends, r=(r, r)), table, "informed").epsilon_01


def test_the_worst_alternating_chain_for_both_directions_can_be_inside_its_interval() -> None:
    table = flips(0.9132475, 5.597e-6)
    low, high, r = 0.99311841, 0.99905555, 0.9574038
    attack = max(best_attack(low, r, emission(table), way, informed=True) for way in (0, 1))
    assert attack > loss(point(high, r), table, "informed").epsilon + 0.3
    assert attack <= loss(BinaryChains(q=(low, high), r=(r, r)), table, "informed").epsilon


# Chains and tables at the edge


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_independent_readings_lose_what_one_symbol_says(adversary: Adversary) -> None:
    lost = loss(point(0.25, 0.75), flips(0.25, 0.25), adversary)
    assert math.log(3) <= lost.epsilon <= math.log(3) * (1 + 1e-15)


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize(("q", "r"), [(0.2, 0.35), (0.9, 0.8), (1e-9, 1e-9)])
def test_a_symbol_that_says_nothing_loses_nothing(adversary: Adversary, q: float, r: float) -> None:
    assert loss(point(q, r), flips(0.25, 0.75), adversary).epsilon == 0.0


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize(("q", "r"), [(0.2, 0.35), (0.95, 0.9), (1e-3, 0.5), (0.5, 0.5)])
def test_one_threshold_step_is_told_apart(adversary: Adversary, q: float, r: float) -> None:
    chains = point(q, r)
    for thresholds, fewer in (
        ((1 << 30, 1 << 29), ((1 << 30) - 1, (1 << 29) - 1)),
        ((SCALE // 2, SCALE // 2 - 1), (SCALE // 2 - 1, SCALE // 2 - 1)),
    ):
        more_noise, less_noise = (loss(chains, NoiseTable.binary(*pair), adversary) for pair in (thresholds, fewer))
        assert more_noise.epsilon < less_noise.epsilon


def test_the_ratios_of_a_tick_are_exact() -> None:
    assert tick_ratios(NoiseTable.binary(1 << 30, 1 << 31)) == (Fraction(3, 2), Fraction(2))
    assert tick_ratios(NoiseTable.randomised_response(3, 1 << 30)) == (Fraction(2), Fraction(2))


@pytest.mark.parametrize("ratio", [Fraction(3), 1 + Fraction(1, 10**6), Fraction(10**6)])
@pytest.mark.parametrize(
    ("q", "r"),
    [(1e-3, 1e-3), (1e-6, 1e-6), (1e-12, 0.3), (1e-300, 1e-300), (0.49, 0.002), (0.4, 1e-4), (0.5, 0.499999)],
)
def test_sticky_chains_are_checked_quickly_and_in_order(q: float, r: float, ratio: Fraction) -> None:
    """A policy for a chain that hardly ever moves must not hang the device that reads it."""
    epsilons: list[float] = []

    def check() -> None:
        epsilons.extend(point(q, r).ratio_loss(ratio, ratio, adversary).epsilon for adversary in ADVERSARIES)

    lines_run(check, 1_000_000)
    assert math.log(ratio) <= epsilons[0] <= epsilons[1] <= epsilons[2] < math.inf


def test_the_result_does_not_depend_on_the_callers_decimal_context() -> None:
    from decimal import ROUND_DOWN, Context

    table = flips(0.3, 0.2)
    expected = [loss(point(0.2, 0.35), table, adversary) for adversary in ADVERSARIES]
    with localcontext(Context(prec=5, rounding=ROUND_DOWN)):
        assert [loss(point(0.2, 0.35), table, adversary) for adversary in ADVERSARIES] == expected


# Refusals


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_a_table_above_its_guarantee_is_refused_with_both_numbers(adversary: Adversary) -> None:
    """To the last bit."""
    chains, outputs = point(0.2, 0.35), StreamOutputs(flips(0.3, 0.3))
    real = loss(chains, flips(0.3, 0.3), adversary).epsilon
    below = math.nextafter(real, 0)
    with pytest.raises(
        GuaranteeError, match=f"loses epsilon {real!r} to the {adversary} adversary, above the {below!r} "
    ):
        check_outputs(chains, outputs, Guarantee(epsilon=below, adversary=adversary))
    assert check_outputs(chains, outputs, Guarantee(epsilon=real, adversary=adversary)).epsilon == real


@pytest.mark.parametrize("table", [None, flips(0.3, 0.3)])
def test_windows_count_beside_the_table_to_the_last_digit(table: NoiseTable | None) -> None:
    window = Window(name="w", length=60, stride=60, states=(1,), scale="40")
    chains, outputs = point(0.2, 0.35), StreamOutputs(table, (window,))
    real = check_outputs(chains, outputs, Guarantee(epsilon=20.0, adversary="informed")).epsilon
    assert real > (0.0 if table is None else loss(chains, table, "informed").epsilon)
    assert check_outputs(chains, outputs, Guarantee(epsilon=real, adversary="informed")).epsilon == real
    with pytest.raises(GuaranteeError, match=f"loses epsilon {real!r}"):
        check_outputs(chains, outputs, Guarantee(epsilon=math.nextafter(real, 0), adversary="informed"))


@pytest.mark.parametrize(("chains", "states"), [(point(0.1, 0.1), 3), (BoundedChains(states=3, odds_ratio=9.0), 2)])
def test_a_table_with_another_number_of_states_is_refused(chains: BinaryChains | BoundedChains, states: int) -> None:
    with pytest.raises(GuaranteeError, match=f"the table has {states} states and its class of chains {5 - states}"):
        loss(chains, NoiseTable.randomised_response(states, 1 << 28), "informed")


@pytest.mark.parametrize("text", ["0.0", "-1.0", "NaN", "Infinity", '"1"'])
def test_a_guarantee_needs_a_positive_finite_epsilon(text: str) -> None:
    with pytest.raises(ValidationError):
        Guarantee.model_validate_json(f'{{"epsilon":{text},"adversary":"informed"}}')


def test_a_guarantee_names_its_adversary() -> None:
    with pytest.raises(ValidationError):
        Guarantee.model_validate_json('{"epsilon":1.0,"adversary":"weak"}')
    with pytest.raises(ValidationError):
        Guarantee.model_validate_json('{"epsilon":1.0}')


def test_a_bounded_class_answers_for_every_adversary_with_the_universal_bound() -> None:
    chains, table = BoundedChains(states=3, odds_ratio=16.0), NoiseTable.randomised_response(3, 1 << 28)
    lost = [loss(chains, table, adversary) for adversary in ADVERSARIES]
    assert {f.epsilon for f in lost} == {f.epsilon_01 for f in lost} == {f.epsilon_10 for f in lost}
    assert [f.adversary for f in lost] == list(ADVERSARIES)
    assert {f.bound for f in lost} == {"odds-ratio bound"}


# What an adversary really learns


@pytest.mark.parametrize("informed", [False, True])
@pytest.mark.parametrize("rho", [(0.3, 0.2), (0.05, 0.6)])
@pytest.mark.parametrize(("q", "r"), [(0.02, 0.03), (0.3, 0.1), (0.5, 0.9), (0.9, 0.7), (0.97, 0.2), (0.98, 0.95)])
def test_what_the_worst_attack_learns_is_what_is_reported(
    q: float, r: float, rho: tuple[float, float], informed: bool
) -> None:
    """Each direction by itself, below and above q+r = 1; the universal adversary learns as much at least."""
    table = flips(*rho)
    adversary: Adversary = "informed" if informed else "ignorant"
    own, wider = loss(point(q, r), table, adversary), loss(point(q, r), table, "universal")
    for direction in (0, 1):
        reached = best_attack(q, r, emission(table), direction, informed=informed, ticks=300)
        assert own[1 + direction] == pytest.approx(reached, abs=1e-9)
        assert wider[1 + direction] >= reached - 1e-9


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_a_direction_of_a_sticky_chain_loses_by_its_own_ratio_whatever_the_other_is(adversary: Adversary) -> None:
    alone, beside = (point(0.1, 0.2).ratio_loss(Fraction(2), Fraction(other), adversary) for other in (1, 3))
    assert alone.epsilon_01 == beside.epsilon_01 > math.log(2) + 0.1


@pytest.mark.parametrize("ratio", range(2, 60))
def test_a_loss_is_a_float_that_is_not_below_it(ratio: int) -> None:
    epsilon = point(0.5, 0.5).ratio_loss(Fraction(ratio), Fraction(ratio), "ignorant").epsilon
    assert Decimal(ratio).ln() <= Decimal(epsilon) <= Decimal(ratio).ln() + Decimal("1e-15") * ratio


def test_mechanisms_that_take_turns_are_held_to_the_larger_ratio_where_some_chain_alternates() -> None:
    fraction, other = Fraction(2), Fraction(3)
    assert BinaryChains(q=(0.2, 0.6), r=(0.3, 0.6)).lasting_ratios(fraction, other) == (other, other)
    assert BinaryChains(q=(0.2, 0.5), r=(0.3, 0.5)).lasting_ratios(fraction, other) == (fraction, other)


def test_of_two_states_with_bounded_odds_neighbours_count_with_their_larger_ratio() -> None:
    chains = BoundedChains(states=2, odds_ratio=16.0)
    both = chains.ratio_loss(Fraction(5), Fraction(5), "universal")
    for ratios in ((Fraction(2), Fraction(5)), (Fraction(5), Fraction(2))):
        loss = chains.ratio_loss(*ratios, "universal")
        assert loss.epsilon == both.epsilon
        assert min(loss[1:3]) == pytest.approx(both.epsilon - math.log(2.5))


def test_the_ratio_of_many_states_is_that_of_the_most_telling_symbol() -> None:
    table = NoiseTable(((SCALE // 2, SCALE // 4 * 3), (SCALE // 4, SCALE // 4 * 3), (SCALE // 8, SCALE // 4 * 3)))
    assert tick_ratios(table) == (Fraction(4), Fraction(4))


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (0, 2, 1)])
def test_the_odds_ratio_is_of_any_two_rows(order: tuple[int, ...]) -> None:
    rows = (0.5, 0.25, 0.25), (0.375, 0.375, 0.25), (0.25, 0.5, 0.25)
    assert 4.0 <= odds_ratio(tuple(rows[place] for place in order)) <= 4.0 * (1 + 1e-14)


def test_a_ratio_below_one_is_refused_in_either_direction() -> None:
    for ratios in ((Fraction(1, 2), Fraction(2)), (Fraction(2), Fraction(1, 2))):
        with pytest.raises(GuaranteeError, match="at least 1"):
            point(0.1, 0.1).ratio_loss(*ratios, "ignorant")


@pytest.mark.parametrize("adversary", ["ignorant", "informed"])
@pytest.mark.parametrize(("q", "r"), [(1e-16, 1e-16), (1e-12, 3e-12), (1e-3, 1e-3), (0.2, 0.3)])
def test_no_claim_is_below_what_symbols_of_one_kind_lose(q: float, r: float, adversary: Adversary) -> None:
    for rate in (1e-16, 3e-14, 1e-3, 1.0):
        truth = lost(q, r, rate, adversary) * (1.0 - 1e-15)
        assert truth <= point(q, r).ratio_loss(*(exp_up(Fraction(rate)),) * 2, adversary).epsilon
