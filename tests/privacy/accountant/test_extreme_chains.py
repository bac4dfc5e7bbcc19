"""Chains at the edge of what is a chain, which once lost more than was claimed; small losses to their last digit."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from fugu.chains.model import stationary_distribution
from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.losses import Adversary, exp_up
from fugu.privacy.accountant import ChainAccountant, endless_leakage
from fugu.privacy.accountant.bounded import odds_ratio_loss
from fugu.privacy.accountant.endless_leakage import EndlessLeakage
from fugu.privacy.accountant.inner_maximum import odds_ratio_step
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilts import mqm_exact
from gateway.releases.allowance import joint_loss
from gateway.releases.charges import PER_NAT
from tests.support.oracle import Array, count_density, enumerated_losses, symbol_density
from tests.support.recursions import DIGITS, lost

NEAR_AN_END = np.array([[1.0 - few, few] for few in (1e-10, 1e-7, 1e-4)] + [[few, 1.0 - few] for few in (1e-10, 1e-7)])
ANYHOW_WITH_ZEROS = [  # transition, ticks (None: endless), a scale, and the loss that the scale really has
    ([[0.4, 0.6], [0.0, 1.0]], 3, 1.7671201426803047, 1.698),
    ([[0.1, 0.9], [0.0, 1.0]], 3, 1.9277335004814948, 1.556),
    ([[0.9, 0.1], [0.0, 1.0]], 10, 7.254013223307203, 1.379),
    ([[0.0, 1.0], [0.2, 0.8]], None, 1.684125832075883, 1.375),
    ([[0.68, 0.32], [1.0, 0.0]], None, 2.2028440432784153, 1.155),
]


def two_symbols(rate: float) -> Array:
    return np.array([[math.exp(rate), 1.0], [1.0, math.exp(rate)]]) / (1.0 + math.exp(rate))


@pytest.mark.parametrize(("rows", "ticks", "scale", "real"), ANYHOW_WITH_ZEROS)
def test_any_start_counts_with_its_limits(
    rows: list[list[float]], ticks: int | None, scale: float, real: float
) -> None:
    """Where a step is impossible the worst start is a limit that none attains; leaving it out claimed 1 here."""
    transition, n = np.array(rows), ticks or 7
    density = count_density(scale, 0, n - 1) if ticks else symbol_density(two_symbols(1.0 / scale), n)
    exact = float(enumerated_losses(NEAR_AN_END, transition, n, density, informed=False).max())
    assert exact == pytest.approx(real, abs=6e-4)
    accountant = ChainAccountant((MarkovChain(transition, None),))
    assert exact <= accountant.loss(1.0 / scale, length=ticks).epsilon
    assert exact == pytest.approx(accountant.loss(1.0 / scale, length=n).epsilon, rel=0.02)
    assert 1.0 / accountant.allowance(1.0, length=ticks) > 1.1 * scale


def test_a_step_that_hardly_ever_happens_is_possible() -> None:
    """Start [1, 0]: what happens with probability 5e-16 is a secret like any other; not the stationary distribution."""
    chain = MarkovChain(np.array([[1.0 - 5e-16, 5e-16], [0.05, 0.95]]), np.array([1.0, 0.0]))
    assert not chain.is_stationary
    lost = enumerated_losses(chain.initial[None], chain.transition, 6, count_density(1.0, 0, 5), informed=False).max()
    assert lost == pytest.approx(4.825, abs=1e-3)
    density = count_density(mqm_exact((chain,), 6, 1.0).scale, 0, 5)
    assert enumerated_losses(chain.initial[None], chain.transition, 6, density, informed=False).max() <= 1.0
    assert ChainAccountant((chain,)).loss(1.0, length=6).epsilon >= lost


@pytest.mark.parametrize("few", [1e-6, 1e-13, 1e-200])
def test_the_stationary_distribution_of_a_rare_state_is_right_beside_states_that_die_out(few: float) -> None:
    """Least squares gave it to within 1e-16, which is nothing for a state as rare as that."""
    distribution = stationary_distribution([[0.5, 0.25, 0.25], [0.0, 1.0 - few, few], [0.0, 0.5, 0.5]])
    assert distribution[0] == 0.0
    assert distribution[2] / distribution[1] == pytest.approx(2.0 * few, rel=1e-14)


def test_a_stationary_distribution_too_small_for_a_float_is_refused() -> None:
    with pytest.raises(ChainClassError, match="does not fit a float"):
        MarkovChain.stationary([[1.0, 1e-200, 0.0], [0.5, 0.5, 1e-200], [0.0, 0.5, 0.5]])


def test_near_the_stationary_distribution_is_not_stationary() -> None:
    transition = np.array([[0.9, 0.1], [0.4, 0.6]])
    assert MarkovChain(transition, np.array([0.8, 0.2])).is_stationary
    assert not MarkovChain(transition, np.array([0.8 + 1e-12, 0.2 - 1e-12])).is_stationary


@pytest.mark.parametrize("start", [None, [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
@pytest.mark.parametrize("informed", [False, True])
def test_products_too_small_for_a_float_are_possible(start: list[float] | None, informed: bool) -> None:
    """1e-200 twice is 0 in a float: the ratios of what is left are read off nothing."""
    transition = np.array([[1.0, 1e-200, 0.0], [1e-200, 1.0, 1e-200], [0.5, 0.0, 0.5]])
    chain = MarkovChain(transition, None if start is None else np.array(start))
    starts = np.eye(3) if start is None else chain.initial[None]
    adversary = "informed" if informed else "ignorant"
    for n, scale in ((2, 0.5), (3, 0.5), (4, 2.0)):
        for counted in ((0,), (1,), (2,)):
            density = count_density(scale, 0, n - 1, counted)
            exact = enumerated_losses(starts, chain.transition, n, density, informed=informed).max()
            claim = ChainAccountant((chain,)).schedule_loss(np.full(n, 1.0 / scale), adversary)
            assert exact <= claim.epsilon * (1.0 + 1e-12)
            assert claim.epsilon <= n / scale * (1.0 + 1e-9)


@pytest.mark.parametrize("rate", [300.0, 800.0, 1e5])
@pytest.mark.parametrize("rows", [[[0.4, 0.6], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.1], [0.4, 0.6]]])
@pytest.mark.parametrize("start", [None, [0.3, 0.7], "stationary"])
def test_huge_rates_lose_all_that_they_can(rate: float, rows: list[list[float]], start: object) -> None:
    """e^800 is infinite in a float, and inf / inf was passed over: nothing was claimed for what the past adds."""
    chain = MarkovChain.stationary(rows) if start == "stationary" else MarkovChain(np.array(rows), start)
    claim = ChainAccountant((chain,)).schedule_loss(np.full(3, rate))
    certain = rate if start != "stationary" or rows[1][0] else 0.0
    assert certain <= claim.epsilon <= 3.0 * rate * (1.0 + 1e-9)
    if start is None and not rows[1][0]:
        assert claim.epsilon >= 3.0 * rate * (1.0 - 1e-9)


@pytest.mark.parametrize("adversary", ["ignorant", "universal"])
def test_huge_rates_of_an_interval_of_chains_are_a_number(adversary: str) -> None:
    """Infinity over infinity is no number, and no number is above a promise."""
    claim = ChainAccountant(BinaryChains(q=(0.1, 0.2), r=(0.3, 0.4))).schedule_loss(np.full(3, 800.0), adversary)
    assert 800.0 < claim.epsilon <= 2400.0 * (1.0 + 1e-9)
    if adversary == "ignorant":  # what certainty about both neighbours adds
        assert abs(claim.epsilon - (800.0 + 2.0 * math.log(0.7 / 0.1))) < 1e-9


def test_a_rate_that_is_not_finite_is_refused() -> None:
    accountant = ChainAccountant((MarkovChain.stationary([[0.9, 0.1], [0.4, 0.6]]),))
    with pytest.raises(ChainClassError, match="finite"):
        accountant.schedule_loss([0.1, math.inf, 0.1])


# What is called exact


@pytest.mark.parametrize("informed", [False, True])
def test_a_count_of_alternating_readings_is_a_bound(informed: bool) -> None:
    """Symbols reach it and a count cannot: 3.300 was said to be exact where .753 is lost."""
    transition, adversary = np.array([[0.1, 0.9], [0.6, 0.4]]), "informed" if informed else "ignorant"
    chain = MarkovChain.stationary(transition)
    for accountant in (ChainAccountant((chain,)), ChainAccountant(BinaryChains(q=(0.9, 0.9), r=(0.6, 0.6)))):
        for length in (None, 6):
            loss = accountant.loss(1.0, adversary, length)
            assert loss.bound in ("alternating bound", "odds-ratio bound")
    counted = enumerated_losses(chain.initial[None], transition, 6, count_density(1.0, 0, 5), informed=informed).max()
    exact = enumerated_losses(
        chain.initial[None], transition, 6, symbol_density(two_symbols(1.0), 6), informed=informed
    ).max()
    claim = ChainAccountant((chain,)).loss(1.0, adversary, 6).epsilon
    assert counted < 0.6 * claim
    assert exact <= claim * (1.0 + 1e-12) <= exact * (1.1 if informed else 1.0 + 1e-9)


def test_what_an_endless_stream_loses_is_only_a_bound_for_one_that_ends() -> None:
    """A stream too long to follow gets the loss of one without end, which it may be far from."""
    ticks, q, rate = 257, 0.003, 0.02
    accountant = ChainAccountant((MarkovChain.stationary(np.array([[1.0 - q, q], [q, 1.0 - q]])),))
    claim, real = accountant.loss(rate, length=ticks), accountant.schedule_loss([rate] * ticks)
    assert (real.bound, claim.bound) == ("exact", "endless bound")
    assert real.epsilon < 0.9 * claim.epsilon < ticks * rate


HARDLY_EVER_LEFT = np.array(  # 0 -> 1 -> 3 -> 0, and hardly anything else
    [
        [0.0, 0.9999999999889341, 0.0, 1.1065965148271736e-11],
        [5.066242689306818e-06, 1.5136197831284357e-07, 2.3133293787193574e-08, 0.9999947592620386],
        [0.03765830197214619, 0.0001995224226111758, 0.00018412539549690635, 0.9619580502097458],
        [0.9999491808521611, 3.324059541713089e-06, 4.7495088296767445e-05, 3.840201695534968e-16],
    ]
)


@pytest.mark.long
def test_an_endless_stream_over_a_cycle_that_is_hardly_ever_left_loses_what_a_tick_tells_and_more() -> None:
    """The recursion's changes went below 0, and a limit that was guessed from them was certified, below 0 as well."""
    rate = np.array([[0.0, 1.5, 0.2, 3.6], [3.6, 0.0, 1.5, 2.2], [2.1, 1.3, 0.0, 3.5], [3.8, 0.2, 1.7, 0.0]])
    accountant = ChainAccountant((MarkovChain.stationary(HARDLY_EVER_LEFT),))
    assert accountant.schedule_loss(np.array([rate] * 3)).epsilon < accountant.loss(rate).epsilon < 40.0


def test_nothing_below_zero_is_certified() -> None:
    """No evidence fits bounds below 0 in both directions: a step of them bounds nothing."""
    leakage = EndlessLeakage(np.array([[0.9, 0.1], [0.2, 0.8]]))
    limit = leakage.certify(np.array([[0.0, -9.0], [-9.0, 0.0]]), lambda _: np.array([[0.0, -99.0], [-99.0, 0.0]]))
    assert limit.min() >= 0.0


# Calculations that broke, or did not end


@pytest.mark.long
def test_a_cycle_leaves_the_informed_without_a_bound_and_no_calculation_without_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its powers have zeros for ever, and infinity times 0 was added to every bound."""
    for most in ("_MOST_STEPS", "_MOST_DISTANCE"):
        monkeypatch.setattr(endless_leakage, most, 100)  # no number of them finds a bound
    leakage = EndlessLeakage(np.roll(np.eye(2), 1, axis=1))
    rate = 2.0 * (1.0 - np.eye(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ignorant = leakage.ignorant_leakage(rate)
        assert np.isinf(ignorant).sum() == 2
        assert np.isinf(leakage.informed_leakage(rate, ignorant)).sum() == 2
        cycle = MarkovChain.stationary(np.roll(np.eye(2), 1, axis=1))
        for adversary in ("ignorant", "informed", "universal"):
            assert ChainAccountant((cycle,)).loss(2.0, adversary).epsilon == math.inf
            assert ChainAccountant((cycle,)).loss(0.1, adversary, 3).epsilon == pytest.approx(0.3)


@pytest.mark.long
def test_what_would_take_for_ever_is_refused_with_the_reason() -> None:
    chain = MarkovChain(np.full((40, 40), 1 / 40), np.eye(40)[0])
    with pytest.raises(ChainClassError, match="4000 ticks are too many to follow one by one for 40 states"):
        ChainAccountant((chain,)).loss(0.1, length=4000)
    with pytest.raises(ChainClassError, match="too many to follow one by one for 40 states and the ignorant"):
        ChainAccountant((chain,)).schedule_loss(np.full(4000, 0.1))


@pytest.mark.parametrize("length", [None, 1, 4])
def test_a_chain_that_stays_in_one_state_loses_nothing(length: int | None) -> None:
    """Its stationary distribution leaves one state possible: there are no two to tell apart."""
    ends = MarkovChain.stationary([[1.0, 0.0], [0.3, 0.7]])
    assert ChainAccountant((ends,)).loss(0.5, length=length).epsilon == 0.0


ADVERSARIES: tuple[Adversary, ...] = ("ignorant", "informed", "universal")
SMALL = [1e-16, 2e-16, 3e-14, 1e-12, 5e-9, 1e-6, 1e-3, 0.1, 1.0]


@pytest.mark.long
def test_no_claim_of_the_accountant_is_below_what_symbols_lose() -> None:
    step = 1e-16
    for q, r in ((step, step), (step, min(3.0 * step, 0.5)), (step, 0.4)):
        fixed = ChainAccountant((MarkovChain.stationary([[1.0 - q, q], [r, 1.0 - r]]),))
        declared = ChainAccountant(BinaryChains(q=(q, q), r=(r, r)))
        for rate in SMALL[::4]:
            for adversary in ADVERSARIES:
                truth = lost(q, r, rate, adversary) * (1.0 - 1e-15)
                for accountant in (fixed, declared):
                    loss = accountant.loss(rate, adversary)
                    assert truth <= loss.epsilon, (q, r, rate, adversary, loss)


@pytest.mark.long
def test_a_joint_bound_of_pico_nats_is_one() -> None:
    for step in (1e-4, 5e-8):
        chains = BinaryChains(q=(step, step), r=(step, step))
        for charge in (1, 30):
            truth = lost(step, step, charge / PER_NAT, "informed")
            assert truth <= joint_loss(chains, charge, "informed") <= truth * 1.1


@pytest.mark.parametrize("rate", SMALL)
@pytest.mark.parametrize("odds", [1.0, 1.0 + 1e-15, 1.0 + 1e-9, 1.5, 4.0, 1e6, 1e16, 1e32])
def test_the_odds_ratio_bound_is_the_closed_form_with_all_its_digits(odds: float, rate: float) -> None:
    """Epsilon is 4 arsinh(sqrt(odds) sinh(rate/4)), and a step 2 log((sqrt(odds G) + 1)/(sqrt(odds) + sqrt(G)))."""
    with localcontext() as context:
        context.prec = DIGITS
        root, quarter = Decimal(odds).sqrt(), Decimal(rate) / 4
        height = root * (quarter.exp() - (-quarter).exp()) / 2
        epsilon = float(4 * (height + (height * height + 1).sqrt()).ln())
        g = (Decimal(rate) / 2).exp()
        step = float(2 * ((root * g + 1) / (root + g)).ln())
    assert epsilon * (1.0 - 1e-15) <= odds_ratio_loss(odds, rate) <= epsilon * (1.0 + 2e-14)
    assert step * (1.0 - 1e-15) <= odds_ratio_step(odds, rate) <= step * (1.0 + 1e-14)
    device = BoundedChains(states=3, odds_ratio=odds).ratio_loss(*(exp_up(Fraction(rate)),) * 2, "universal")
    assert device.epsilon == pytest.approx(odds_ratio_loss(odds, rate), rel=1e-15)
