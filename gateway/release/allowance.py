"""How much an audience may be told about a tick: from its epsilon to the largest constant per-tick loss."""

from __future__ import annotations

from functools import cache

from contract.chains import ChainClass
from contract.guarantee import Adversary
from gateway.privacy.accountant import ChainAccountant
from gateway.release.charges import units_below

__all__ = ["allowance"]

_INWARD = 1.0 - 1e-9


@cache
def allowance(chains: ChainClass, epsilon: float, adversary: Adversary) -> int:
    """The largest loss that every tick may have, for ever, without any state losing more than epsilon.

    Losses of the accountant grow with every tick's own loss, so a schedule of charges that never exceeds this number on
    any tick is within epsilon, however the charges vary from tick to tick.

    Args:
        chains: class of chains that the readings belong to.
        epsilon: what the audience is promised, in nats.
        adversary: what the audience may know.

    Returns:
        The loss in units of `gateway.release.charges`, rounded down; the same for all pairs of states.

    Raises:
        ChainClassError: epsilon is not a positive number, or the chains do not forget.

    Source: docs/privacy.md, "The chain accountant".
    """
    return units_below(ChainAccountant(chains).allowance(epsilon, adversary) * _INWARD)
