"""Knowledge from noisy counts of symbols, by adding up every path."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

OUTPUTS = np.arange(-60, 68)


def count_distributions(initial: Floats, transition: Floats, hit: Floats, known_states: NDArray[np.int64]) -> Floats:
    """(m, n + 1) distributions of the hits; `hit` is Pr(symbol counts | state), `known_states` (m, n) states or -1."""
    (m, n), k = known_states.shape, len(initial)
    possible = (known_states[:, :, None] < 0) | (known_states[:, :, None] == np.arange(k))
    distribution = np.zeros((m, k, n + 1))
    distribution[:, :, 0] = initial
    for tick in range(n):
        distribution = (distribution if tick == 0 else transition.T @ distribution) * possible[:, tick, :, None]
        distribution, hits = distribution * (1 - hit)[:, None], distribution * hit[:, None]
        distribution[:, :, 1:] += hits[:, :, :-1]
    total: Floats = distribution.sum(axis=1)
    return total / total.sum(axis=1, keepdims=True)


def worst_loss(
    initial: Floats, transition: Floats, hit: Floats, n: int, scales: list[float], *, informed: bool
) -> float:
    """The largest log-likelihood ratio over ticks, states, known sets and outputs of all releases together."""
    counts = np.arange(n + 1)
    densities = [np.exp(-np.abs(OUTPUTS[:, None] - counts) / scale) for scale in scales]
    likelihood = densities[0]
    for density in densities[1:]:  # outputs of both far below, far above, or apart
        likelihood = (likelihood[:, None, :] * density[None, ::3, :]).reshape(-1, n + 1)
    worst, k = 0.0, len(initial)
    choices = list(product(range(-1, k), repeat=n - 1)) if informed else [(-1,) * (n - 1)]
    for tick in range(n):
        values = []
        for state in range(k):
            known_states = np.insert(np.array(choices, dtype=np.int64), tick, state, axis=1)
            values.append(count_distributions(initial, transition, hit, known_states) @ likelihood.T)
        worst = max(worst, *(float((a / b).max()) for a in values for b in values if a is not b))
    return float(np.log(worst))


def stationary(transition: Floats) -> Floats:
    """(k,) distribution of a chain that has run for long."""
    return np.linalg.matrix_power(transition, 4096)[0]
