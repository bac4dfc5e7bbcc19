"""How often an attacker can guess a state right, at most."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from gateway.chain.arrays import Floats

__all__ = ["success_bound"]


def success_bound(prior: ArrayLike, epsilon: float, epsilon_10: float | None = None) -> Floats:
    """The most that any attacker can reach who must name the state of one tick.

    With one epsilon it is the largest, over j, of E / (E - 1 + j) times the prior probability of the j likeliest
    states, E = e^epsilon. Proof: let s_x be the probability of naming x when it is true. Naming x is at most E times as
    likely under x as under another state; so, under x, s_x + sum over z != x of s_z / E <= 1. With S = sum of s that is
    s_x <= u(S) = (E - S) / (E - 1). For a given S the largest sum of prior_x s_x gives u(S) to the likeliest states and
    the rest to the next; it is linear in S between the S at which exactly j states have u(S), S = j E / (E - 1 + j), so
    it is largest at one of those. It is reached: name a state of the j with E / (E - 1 + j) if it is true, with
    1 / (E - 1 + j) if another of the j is, and one of them at random if none is.

    Args:
        prior: (..., k) probabilities before any output.
        epsilon: bound on the log-likelihood ratio of any state over any other, in nats; with `epsilon_10`, of state 0
            over state 1.
        epsilon_10: for two states, that of state 1 over state 0, where it differs.

    Returns:
        (...) probabilities, never below the largest of the prior.

    Source: docs/privacy.md, "An attacker's success"; it corrects the bound in section 4 of the BDP paper.
    """
    law = np.asarray(prior, dtype=np.float64)
    best = law.max(axis=-1)
    if epsilon_10 is None:
        others = np.arange(law.shape[-1])
        sums = np.cumsum(-np.sort(-law, axis=-1), axis=-1)
        return np.asarray(np.maximum(best, (sums / (1 + others * math.exp(-epsilon))).max(axis=-1)))
    if not epsilon > 0 < epsilon_10:
        return np.asarray(best)
    span = -math.expm1(-(epsilon + epsilon_10))
    right = np.array([math.expm1(-epsilon_10), math.expm1(-epsilon)]) / -span
    return np.asarray(np.maximum(best, law @ right))
