"""How often an attacker can guess a state right, at most."""

from __future__ import annotations

import math

__all__ = ["success_bound"]


def success_bound(probability1: float, epsilon_01: float, epsilon_10: float) -> float:
    """The most that any attacker can reach who must name the state of one tick.

    Args:
        probability1: prior probability of state 1.
        epsilon_01: bound on the log-likelihood ratio of state 0 over state 1, in nats.
        epsilon_10: the same for state 1 over state 0.

    Returns:
        A probability: that of the best test whose likelihood ratio stays within the two bounds.

    Source: docs/privacy.md, "An attacker's success"; it corrects the bound in section 4 of the BDP paper.
    """
    if not epsilon_01 > 0 < epsilon_10:
        return max(probability1, 1 - probability1)
    span = -math.expm1(-(epsilon_01 + epsilon_10))
    right0 = -math.expm1(-epsilon_10) / span
    right1 = -math.expm1(-epsilon_01) / span
    return max(probability1, 1 - probability1, (1 - probability1) * right0 + probability1 * right1)
