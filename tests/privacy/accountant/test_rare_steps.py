"""Rare steps and small losses: no digit of a claim is lost, down to steps and losses of 1e-16.

The truth is a recursion in 60 digits: a product of randomised symbols that all point one way, for ever.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.losses import Adversary, exp_up
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.bounded import odds_ratio_loss
from fugu.privacy.accountant.inner_maximum import odds_ratio_step
from fugu.privacy.chain_class import MarkovChain
from gateway.releases.allowance import joint_loss
from gateway.releases.charges import PER_NAT
from tests.support.recursions import DIGITS, lost

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
