"""Forward and backward over (state, count so far), against the sum over all paths."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fugu.chains.counting import count_marginals
from fugu.chains.inference import posterior_marginals


def enumerated(symbols, initial, transition, emission, windows, adds, likelihoods, lengths):
    """Posteriors (n, k) by enumeration of every path."""
    n, k = adds.shape
    fresh = set(np.cumsum(lengths)) | {0}
    total = np.zeros((n, k))
    for path in product(range(k), repeat=n):
        weight = 1.0
        counts = np.zeros(len(likelihoods), dtype=int)
        for t, x in enumerate(path):
            weight *= initial[x] if t in fresh else transition[path[t - 1], x]
            weight *= 1.0 if symbols[t] < 0 else emission[x, symbols[t]]
            if windows[t] >= 0:
                counts[windows[t]] += adds[t, x]
        weight *= np.prod(likelihoods[np.arange(len(likelihoods)), counts])
        total[np.arange(n), path] += weight
    return total / total.sum(axis=1, keepdims=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_marginals_are_the_sum_over_all_paths(seed):
    generator = np.random.default_rng(seed)
    k, n = (2, 9) if seed % 2 else (3, 7)
    initial, emission = generator.dirichlet(np.ones(k)), generator.dirichlet(np.ones(3), k)
    transition = generator.dirichlet(np.full(k, 0.3), k)
    symbols = generator.integers(-1, 3, n)
    windows = np.array([[-1, 0, 0, 0, 1, 1, -1, 2, 2], [0, 0, 1, 1, 1, -1, 2, 2, 2], [-1, -1, 0, 0, 0, 0, 1, 1, -1]])
    windows = windows[seed % 3, :n].astype(np.int64)
    lengths = [4, n - 4] if seed % 3 == 0 else [5, n - 5] if seed % 3 == 1 else [n]
    adds = generator.integers(0, 2, (n, k))
    likelihoods = np.exp(-generator.exponential(3.0, (int(windows.max()) + 1, 5)))
    arguments = (symbols, initial, transition, emission, windows, adds, likelihoods)
    np.testing.assert_allclose(
        count_marginals(*arguments, lengths=lengths), enumerated(*arguments, lengths), atol=1e-12
    )


def test_counts_that_say_nothing_change_nothing():
    generator = np.random.default_rng(3)
    symbols, windows = generator.integers(-1, 2, 400), np.arange(400) // 50 - 1
    case = (symbols, [0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.4, 0.6]])
    adds = np.tile([0, 1], (400, 1))
    marginals = count_marginals(*case, windows, adds, np.ones((7, 51)), lengths=[100, 300])
    np.testing.assert_allclose(marginals, posterior_marginals(*case, lengths=[100, 300]), atol=1e-12)


def test_a_count_that_is_certain_is_met():
    likelihoods = np.zeros((2, 41))
    likelihoods[[0, 1], [7, 33]] = 1.0
    adds = np.tile([0, 1], (80, 1))
    marginals = count_marginals(
        np.full(80, -1), [0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], [[1.0], [1.0]], np.arange(80) // 40, adds, likelihoods
    )
    np.testing.assert_allclose(marginals[:, 1].reshape(2, 40).sum(axis=1), [7, 33], atol=1e-9)


def test_what_does_not_fit_is_refused():
    chain = ([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], [[1.0], [1.0]])
    adds = np.tile([0, 1], (6, 1))
    with pytest.raises(ValueError, match="likelihoods needs"):
        count_marginals(np.full(6, -1), *chain, np.zeros(6, dtype=np.int64), adds, np.ones((1, 6)))
    with pytest.raises(ValueError, match="windows"):
        count_marginals(np.full(6, -1), *chain, np.zeros(5, dtype=np.int64), adds, np.ones((1, 7)))
    with pytest.raises(ValueError, match="probability zero"):
        count_marginals(np.full(6, -1), *chain, np.zeros(6, dtype=np.int64), adds, np.zeros((1, 7)))
