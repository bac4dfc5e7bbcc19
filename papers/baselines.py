"""Published mechanisms at a nominal epsilon, with the epsilon that they really have, and what they leave.

None is offered for use. Ordinary randomised response ignores correlation, the BDP paper's noise is too small for an
adversary who knows states, and the approximations waste noise.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from fugu.chains.arrays import Floats
from fugu.contract.chains import BinaryChains, ChainClass
from fugu.contract.errors import GuaranteeError
from fugu.contract.losses import Adversary, Loss
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.privacy.randomised_response import Utility, assess, calibrate

__all__ = ["Baseline", "baselines", "corollary_2", "ordinary_dp", "real_loss", "zhao_eps3", "zhao_eps6"]


_LONGEST_QUILT = 1000


class Baseline(NamedTuple):
    """A published mechanism at a nominal epsilon: who proposed it, and its flip probabilities."""

    name: str
    rho0: float
    rho1: float

    def real(self, chains: ChainClass, adversary: Adversary) -> Loss | None:
        """Real loss; none if there is no bound."""
        rhos = [Fraction(math.floor(rho * SCALE), SCALE) for rho in (self.rho0, self.rho1)]
        try:
            return real_loss(chains, rhos[0], rhos[1], adversary) if min(rhos) > 0 else None
        except GuaranteeError:
            return None

    def utility(self, transition: Floats, chains: BinaryChains, ticks: int) -> Utility:
        """Worth of its symbols; arguments as for `assess`."""
        thresholds = [min(max(round(rho * SCALE), 1), SCALE - 1) for rho in (self.rho0, self.rho1)]
        return assess(NoiseTable.binary(*thresholds), transition, chains, ticks)


def real_loss(chains: ChainClass, rho0: Fraction, rho1: Fraction, adversary: Adversary) -> Loss:
    """Return the real epsilon of exact flip probabilities inside (0, 1) for two-state chains.

    Raises GuaranteeError if the chains have more than two states, or there is no bound.
    """
    if chains.states != 2:
        raise GuaranteeError(f"rho0 and rho1 belong to a stream of two states; this chain has {chains.states}")
    ratio_01 = max((1 - rho0) / rho1, rho0 / (1 - rho1))
    ratio_10 = max((1 - rho1) / rho0, rho1 / (1 - rho0))
    return chains.ratio_loss(ratio_01, ratio_10, adversary)


def baselines(chains: BinaryChains, epsilon: float) -> list[Baseline]:
    """All baselines that exist for a class of chains, at a nominal epsilon in nats.

    The papers' formulas are evaluated at the stickiest corner; those for symmetric chains need q = r there.
    """
    rho = ordinary_dp(epsilon)
    rates = [("ordinary randomised response", rho, rho)]
    q, r = chains.q[0], chains.r[0]
    if q + r < 1:
        paper = calibrate(BinaryChains(q=(q, q), r=(r, r)), epsilon, "ignorant", "flips")
        rates.append(("BDP theorem 1", paper.rho0, paper.rho1))
    if q == r and q < 0.5:
        rho = corollary_2(q, epsilon)
        rates.append(("BDP corollary 2", rho, rho))
        nominal = zhao_eps3(q, epsilon), zhao_eps6(q, epsilon)[0]
        for name, amount in zip(("Zhao et al., eps_3", "Zhao et al., eps_6"), nominal, strict=True):
            if amount > 0:
                rho = ordinary_dp(amount)
                rates.append((name, rho, rho))
    return [Baseline(*each) for each in rates]


def ordinary_dp(epsilon: float) -> float:
    """Flip probability of ordinary randomised response (Warner 1965): 1/(1 + e^epsilon)."""
    return 1 / (1 + math.exp(epsilon))


def corollary_2(theta: float, epsilon: float) -> float:
    """Flip probability of the BDP paper's approximation for a symmetric chain; theta < 1/2: a change of state.

    Source: BDP corollary 2: sqrt(G) is the positive root of x^2 - theta e^(epsilon/2) x - (1 - theta) = 0.
    """
    half = theta * math.exp(epsilon / 2)
    root = (half + math.sqrt(half * half + 4 * (1 - theta))) / 2
    return 1 / (1 + root * root)


def zhao_eps3(theta: float, epsilon: float) -> float:
    """Epsilon left for ordinary randomised response by Zhao et al.'s first bound; below 0 nothing is left."""
    return epsilon - 6 * math.log((1 - theta) / theta)


def zhao_eps6(theta: float, epsilon: float) -> tuple[float, int]:
    """Epsilon left by Zhao et al.'s second bound, and the distance t that attains it; theta as for `corollary_2`."""
    decay = 1 - 2 * theta

    def ceiling_of(t: int) -> float:
        return (epsilon - 12 * math.atanh(decay**t)) / (2 * t - 1)

    best = max(range(1, _LONGEST_QUILT), key=ceiling_of)
    return ceiling_of(best), best
