"""Counts of transitions, and the tests of a fitted chain's assumptions.

Transitions are counted inside segments only (a segment is a stretch without gaps). The tests are likelihood-ratio tests
(G tests), asymptotically chi-square. With tens of thousands of steps they reject differences that are too small to
matter, so each comes with its effect per step.

Sources: Anderson and Goodman, "Statistical inference about Markov chains" (1957). Clopper and Pearson, "The use of
confidence or fiducial limits illustrated in the case of the binomial" (1934).
"""

from __future__ import annotations

import numpy as np
from pydantic import Field
from scipy import special

from fugu.chains.arrays import Floats, Ints
from fugu.contract._document import Document

__all__ = ["LikelihoodRatio", "count_transitions", "count_triples", "order_test", "share_bounds", "transition_matrix"]


class LikelihoodRatio(Document):
    """A likelihood-ratio test.

    The `statistic` is twice the gain in log-likelihood, in nats. `p_value` is the probability of one at least as large
    if the simpler model holds, and `nats_per_step` the gain per step, the size of the effect.
    """

    statistic: float = Field(ge=0.0)
    degrees: int = Field(ge=0)
    p_value: float = Field(ge=0.0, le=1.0)
    nats_per_step: float = Field(ge=0.0)


def count_transitions(states: Ints, segments: Ints, k: int) -> Ints:
    """Count the steps x -> y (k, k) inside segments; states (n,) are -1 where there is none."""
    is_step = (segments[1:] == segments[:-1]) & (states[1:] >= 0) & (states[:-1] >= 0)
    state_pairs = (states[:-1] * k + states[1:])[is_step]
    return np.bincount(state_pairs, minlength=k * k).reshape(k, k).astype(np.int64)


def count_triples(states: Ints, segments: Ints, k: int) -> Ints:
    """Count the double steps w -> x -> y (k, k, k) inside segments; arguments as for `count_transitions`."""
    is_observed = states >= 0
    is_double_step = (segments[2:] == segments[:-2]) & is_observed[2:] & is_observed[1:-1] & is_observed[:-2]
    triples = ((states[:-2] * k + states[1:-1]) * k + states[2:])[is_double_step]
    return np.bincount(triples, minlength=k**3).reshape(k, k, k).astype(np.int64)


def transition_matrix(counts: Ints) -> Floats:
    """Return the maximum-likelihood transition matrix (k, k); the row of a state that is never left is uniform."""
    totals = counts.sum(axis=1, keepdims=True)
    k = counts.shape[0]
    return np.asarray(np.where(totals > 0, counts / np.maximum(totals, 1), 1.0 / k), dtype=np.float64)


def share_bounds(hits: int, trials: int, error: float) -> tuple[float, float]:
    """Return the lower and the upper bound on an event's probability, each wrong with probability `error`.

    Without any trial they are 0 and 1. Source: Clopper and Pearson (1934), by quantiles of the beta distribution.
    """
    low = float(special.betaincinv(hits, trials - hits + 1, error)) if hits else 0.0
    return low, float(special.betaincinv(hits + 1, trials - hits, 1.0 - error)) if hits < trials else 1.0


def order_test(triples: Ints) -> LikelihoodRatio:
    """Test if a chain of order 2 explains counts (k, k, k) of w -> x -> y better than one of order 1."""
    pair_counts = triples.sum(axis=0)
    context_counts, outcome_counts = (triples.sum(axis=2) > 0).sum(axis=0), (pair_counts > 0).sum(axis=1)
    degrees = int(np.sum(np.maximum(context_counts - 1, 0) * np.maximum(outcome_counts - 1, 0)))
    gain, step_count = max(_log_likelihood(triples) - _log_likelihood(pair_counts), 0.0), max(int(triples.sum()), 1)
    p_value = float(special.chdtrc(degrees, 2.0 * gain)) if degrees else 1.0
    return LikelihoodRatio(statistic=2.0 * gain, degrees=degrees, p_value=p_value, nats_per_step=gain / step_count)


def _log_likelihood(counts: Ints) -> float:
    """Return the largest log-likelihood of counts (..., outcomes) in independent rows."""
    row_sums = counts.sum(axis=-1)
    return float(special.xlogy(counts, counts).sum() - special.xlogy(row_sums, row_sums).sum())
