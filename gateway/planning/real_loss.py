"""The epsilon that binary randomised response really has."""

from __future__ import annotations

from fractions import Fraction

from contract.chains import BinaryChains, BoundedChains
from contract.guarantee import Adversary, Loss, ratio_loss
from gateway.planning.errors import PlanningError

__all__ = ["real_loss"]


def real_loss(chains: BinaryChains | BoundedChains, rho0: Fraction, rho1: Fraction, adversary: Adversary) -> Loss:
    """Return the real epsilon of exact flip probabilities.

    Args:
        chains: a class of two-state chains.
        rho0: Pr(symbol 1 | state 0), inside (0, 1).
        rho1: Pr(symbol 0 | state 1), inside (0, 1).
        adversary: what the adversary knows.

    Raises:
        PlanningError: the chains have more than two states.
    """
    if chains.states != 2:
        raise PlanningError(f"rho0 and rho1 belong to a stream of two states; this chain has {chains.states}")
    ratio_01 = max((1 - rho0) / rho1, rho0 / (1 - rho1))
    ratio_10 = max((1 - rho1) / rho0, rho1 / (1 - rho0))
    return ratio_loss(chains, ratio_01, ratio_10, adversary)
