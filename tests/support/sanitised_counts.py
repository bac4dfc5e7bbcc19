"""What an adversary learns from noisy counts of symbols, by adding up every path."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

OUTPUTS = np.arange(-60, 68)


def count_law(initial: Floats, transition: Floats, hit: Floats, n: int, known: dict[int, int]) -> Floats:
    """(n + 1,) law of the number of hits, given some states; `hit` is Pr(symbol counts | state)."""
    k = len(initial)
    law = np.zeros((k, n + 1))
    for tick in range(n):
        if tick == 0:
            law[:, 0] = initial
        else:
            law = transition.T @ law
        if tick in known:
            law[[x for x in range(k) if x != known[tick]]] = 0.0
        law = law * (1 - hit)[:, None] + np.pad(law, ((0, 0), (1, 0)))[:, :-1] * hit[:, None]
    total: Floats = law.sum(axis=0)
    return total / total.sum()


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
    for tick in range(n):
        others = [other for other in range(n) if other != tick]
        choices = product(range(-1, k), repeat=n - 1) if informed else [(-1,) * (n - 1)]
        for choice in choices:
            known = {other: state for other, state in zip(others, choice, strict=True) if state >= 0}
            laws = [count_law(initial, transition, hit, n, {**known, tick: x}) for x in range(k)]
            values = [likelihood @ law for law in laws]
            worst = max(worst, *(float(np.log(a / b).max()) for a in values for b in values if a is not b))
    return worst


def stationary(transition: Floats) -> Floats:
    """(k,) law of a chain that has run for long."""
    law: Floats = np.linalg.matrix_power(transition, 4096)[0]
    return law
