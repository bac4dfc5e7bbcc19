"""What others would do at the same epsilon, and the epsilon that it really has.

None of these is offered for use: ordinary randomised response ignores correlation, the BDP paper's noise is too small
for an adversary who knows states, and the approximations waste noise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from contract.chains import BinaryChains
from contract.errors import GuaranteeError
from contract.guarantee import Adversary, Loss, loss
from contract.noise_table import NoiseTable
from gateway.privacy.randomised_response import calibrate_binary

__all__ = ["Baseline", "baselines", "corollary_2", "ordinary_dp", "zhao_eps3", "zhao_eps6"]

_SCALE = 1 << 32
_LONGEST_QUILT = 1000


class Baseline(NamedTuple):
    """A published mechanism at a nominal epsilon.

    Attributes:
        real: what it really loses to the chosen adversary; none if it flips with probability 0.
    """

    name: str
    rho0: float
    rho1: float
    real: Loss | None


def baselines(chains: BinaryChains, epsilon: float, adversary: Adversary = "informed") -> list[Baseline]:
    """All baselines that exist for a class of chains.

    Args:
        chains: the class; the papers' formulas are evaluated at its stickiest corner, and those for symmetric chains
            appear only where q = r there.
        epsilon: nominal epsilon, in nats.
        adversary: whom the real loss is for.
    """
    rho = ordinary_dp(epsilon)
    found = [("ordinary randomised response", rho, rho)]
    q, r = chains.q[0], chains.r[0]
    if q + r < 1:
        paper = calibrate_binary(BinaryChains(q=(q, q), r=(r, r)), epsilon, "ignorant", "flips")
        found.append(("BDP theorem 1", paper.rho0, paper.rho1))
    if q == r and q < 0.5:
        rho = corollary_2(q, epsilon)
        found.append(("BDP corollary 2", rho, rho))
        nominal = zhao_eps3(q, epsilon), zhao_eps6(q, epsilon)[0]
        for name, amount in zip(("Zhao et al., eps_3", "Zhao et al., eps_6"), nominal, strict=True):
            if amount > 0:
                rho = ordinary_dp(amount)
                found.append((name, rho, rho))
    return [Baseline(name, a, b, _real_loss(chains, a, b, adversary)) for name, a, b in found]


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

    def left(t: int) -> float:
        return (epsilon - 12 * math.atanh(decay**t)) / (2 * t - 1)

    best = max(range(1, _LONGEST_QUILT), key=left)
    return left(best), best


def _real_loss(chains: BinaryChains, rho0: float, rho1: float, adversary: Adversary) -> Loss | None:
    thresholds = math.floor(rho0 * _SCALE), math.floor(rho1 * _SCALE)
    if min(thresholds) < 1:
        return None
    try:
        return loss(chains, NoiseTable.binary(*thresholds), adversary)
    except GuaranteeError:
        return None
