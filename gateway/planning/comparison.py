"""What others would do at the same epsilon: what their noise really loses, and what it leaves."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from contract.chains import BinaryChains
from contract.errors import GuaranteeError
from contract.guarantee import Adversary, Loss, ratio_loss
from contract.noise_table import SCALE, NoiseTable
from gateway.planning.errors import PlanningError
from gateway.planning.planner import Chains, Plan, assess
from gateway.privacy import baselines as published
from gateway.privacy.sampling import decimated_class
from gateway.privacy.utility import Utility

__all__ = ["Comparison", "compare", "real_loss"]


class Comparison(NamedTuple):
    """Another way to choose the noise.

    Attributes:
        loss: what it really loses to the adversary of the plan; none if there is no bound.
        utility: what its symbols are worth.
    """

    name: str
    rho0: float
    rho1: float
    loss: Loss | None
    utility: Utility


def compare(plan: Plan) -> list[Comparison]:
    """Return every published mechanism at the plan's epsilon and period; none for chains of more than two states."""
    request, chosen = plan.request, plan.chosen
    if not isinstance(request.chains, BinaryChains):
        return []
    sampled = decimated_class(request.chains, chosen.every)
    assert isinstance(sampled, BinaryChains)
    found = []
    for other in published.baselines(sampled, request.epsilon, request.adversary):
        real = other.real
        if not isinstance(chosen.chains, BinaryChains):
            real = _loss(chosen.chains, other, request.adversary)
        thresholds = [min(max(round(rho * SCALE), 1), SCALE - 1) for rho in (other.rho0, other.rho1)]
        worth = assess(NoiseTable.binary(*thresholds), chosen.transition, sampled, request.ticks)
        found.append(Comparison(other.name, other.rho0, other.rho1, real, worth))
    return found


def real_loss(chains: Chains, rho0: Fraction, rho1: Fraction, adversary: Adversary) -> Loss:
    """Return the real epsilon of exact flip probabilities.

    Args:
        rho0: Pr(symbol 1 | state 0), inside (0, 1).
        rho1: Pr(symbol 0 | state 1), inside (0, 1).

    Raises:
        PlanningError: the chains have more than two states.
    """
    if chains.states != 2:
        raise PlanningError(f"rho0 and rho1 belong to a stream of two states; this chain has {chains.states}")
    ratio_01 = max((1 - rho0) / rho1, rho0 / (1 - rho1))
    return ratio_loss(chains, ratio_01, max((1 - rho1) / rho0, rho1 / (1 - rho0)), adversary)


def _loss(chains: Chains, other: published.Baseline, adversary: Adversary) -> Loss | None:
    rhos = [Fraction(math.floor(rho * SCALE), SCALE) for rho in (other.rho0, other.rho1)]
    try:
        return real_loss(chains, rhos[0], rhos[1], adversary) if min(rhos) > 0 else None
    except GuaranteeError:
        return None
