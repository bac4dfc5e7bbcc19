"""Bets against classes of chains: equal to a plain twin, and fair for every chain of a cell, by enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fugu.privacy.class_watch import bet

EMISSION = np.array([[0.7, 0.2, 0.1], [0.25, 0.35, 0.4]])
CELLS = np.array([[0.1, 0.15, 0.2, 0.3], [0.15, 0.4, 0.3, 0.35], [0.5, 0.9, 0.3, 0.8], [0.3, 0.3, 0.1, 0.1]])
ALTERNATIVES = np.array([[0.02, 0.03], [0.1, 0.02], [0.9, 0.95]])


def fresh():
    """Bounds, beliefs and a capital of 1 in all."""
    shape = len(CELLS), len(ALTERNATIVES)
    bounds = np.stack([np.zeros(len(CELLS)), np.ones(len(CELLS))])
    return bounds, np.full(len(ALTERNATIVES), 0.5), np.full(shape, 1.0 / len(ALTERNATIVES))


def twin(symbols):
    """The capital, by the definition: all chains of a cell are tried at its corners, and both ends of each belief."""
    bounds, beliefs, capital = fresh()
    for z in symbols:
        for c, (q0, q1, r0, r1) in enumerate(CELLS):
            ends = bounds[:, c]
            distribution = [(1 - p) * EMISSION[0] + p * EMISSION[1] for p in ends]
            for a, p in enumerate(beliefs):
                likelihoods = (1 - p) * EMISSION[0] + p * EMISSION[1]
                if z >= 0 and not ends[0] <= p <= ends[1]:
                    capital[c, a] *= likelihoods[z] / distribution[int(p > ends[1])][z]
            after = ends if z < 0 else [p * EMISSION[1, z] / distribution[i][z] for i, p in enumerate(ends)]
            reached = [q + p * (1 - q - r) for p in after for q in (q0, q1) for r in (r0, r1)]
            bounds[:, c] = min(reached), max(reached)
        for a, (q, r) in enumerate(ALTERNATIVES):
            p = beliefs[a]
            if z >= 0:
                p = p * EMISSION[1, z] / ((1 - p) * EMISSION[0, z] + p * EMISSION[1, z])
            beliefs[a] = q + p * (1 - q - r)
    return capital


@pytest.mark.long
def test_equals_the_plain_twin():
    rng = np.random.default_rng(3)
    symbols = rng.integers(-1, 3, 700)
    bounds, beliefs, capital = fresh()
    best = bet(symbols, EMISSION, CELLS, ALTERNATIVES, bounds, beliefs, capital)
    looks = [twin(symbols[:t]) for t in (256, 512, 700)]
    np.testing.assert_allclose(capital, looks[-1], rtol=1e-9)
    assert best == pytest.approx(max(look.sum(axis=1).min() for look in looks))


@pytest.mark.long
@pytest.mark.parametrize("cell", [0, 3])
def test_no_chain_of_a_cell_expects_to_win_against_it_not_even_one_that_changes(cell):
    """Over all symbols of 7 ticks, one of them unobserved; chains at the corners, inside, and from corner to corner."""
    start = 0.3
    q0, q1, r0, r1 = CELLS[cell]
    corners = [*product((q0, q1), (r0, r1)), ((q0 + q1) / 2, (r0 + r1) / 2)]
    paths = [[corner] * 7 for corner in corners] + [corners[i:] + corners[:i] + corners[:2] for i in range(4)]
    steps = np.array([[[[1 - q, q], [r, 1 - r]] for q, r in path] for path in paths]).swapaxes(0, 1)
    expected, largest = np.zeros(len(paths)), 0.0
    for seen in product(range(3), repeat=6):
        symbols = np.array([*seen[:4], -1, *seen[4:]])
        bounds, beliefs, capital = fresh()
        bet(symbols, EMISSION, CELLS, ALTERNATIVES, bounds, beliefs, capital)
        largest = max(largest, capital[cell].sum())
        distributions = np.tile([1.0 - start, start], (len(paths), 1))
        for z, step in zip(symbols, steps, strict=True):
            weighted = distributions if z < 0 else distributions * EMISSION[:, z]
            distributions = np.einsum("pi,pij->pj", weighted, step)
        expected += distributions.sum(axis=1) * capital[cell].sum()
    assert expected.max() <= 1.0 + 1e-12
    assert largest > 1.05, "nothing was bet"
