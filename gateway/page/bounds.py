"""How far a promise lets a probability move."""

from __future__ import annotations

import math

from fugu.contract.chains import BinaryChains

__all__ = ["posterior_bounds"]


def posterior_bounds(chains: BinaryChains, epsilon: float) -> tuple[float, float]:
    """Between what the probability of state 1 at a tick stays, whatever a stream says of it.

    A chain of the class is in state 1 with probability q / (q + r) before anything is heard; what is released changes
    these odds by a factor of at most e^epsilon, for whoever knows the chain and nothing else of the readings.

    Args:
        epsilon: of a tick, in nats.

    Returns:
        The least and the greatest posterior probability over the chains of the class.
    """
    low = math.log(chains.q[0] / chains.r[1]) - epsilon
    high = math.log(chains.q[1] / chains.r[0]) + epsilon
    return _probability(low), _probability(high)


def _probability(log_odds: float) -> float:
    """Of log odds, without overflow."""
    if log_odds < 0.0:
        return math.exp(log_odds) / (1.0 + math.exp(log_odds))
    return 1.0 / (1.0 + math.exp(-log_odds))
