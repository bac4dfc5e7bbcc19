"""Kernels for hidden Markov chains: pure functions on arrays of integer symbols, -1 for "unobserved".

With k states and m symbols: `transition` (k, k), `emission` (k, m), `initial` (k,).
"""

from __future__ import annotations

from fugu.chains.inference import (
    backward_messages,
    filter_beliefs,
    fixed_lag_marginals,
    posterior_marginals,
    predict,
    viterbi,
)
from fugu.chains.model import simulate, stationary_distribution

__all__ = [
    "backward_messages",
    "filter_beliefs",
    "fixed_lag_marginals",
    "posterior_marginals",
    "predict",
    "simulate",
    "stationary_distribution",
    "viterbi",
]
