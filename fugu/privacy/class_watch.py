"""A test by bets, for audits: do a stream's symbols come from the class of chains that its policy declares?

**The test.** Cut the box of all (q, r) of a class of two states into cells. Take any chain of a cell, even one that
changes from step to step inside it. Given the symbols before, its probability p of state 1 lies between two numbers low
and high that can be computed. The reason: p -> q + p(1-q-r) is monotone in p, q and r. So is p -> p b1(z) / f_p(z),
with f_p = (1-p) b0 + p b1 and b0, b1 the rows of the table. An alternative, a chain outside the class, says p'. Where
p' > high, the capital of a bet is multiplied by f_p'(z) / f_high(z), where p' < low by f_p'(z) / f_low(z), and
otherwise it is left as it is.

**It is valid for every chain of the class.** Given the symbols before, the expectation of the first factor is g(p) =
sum over z of f_p(z) f_p'(z) / f_high(z). It is linear in p, 1 at p = high, with slope sum (b1 - b0) f_p' / f_high = (p'
- high) sum (b1 - b0)^2 / f_high >= 0. So it is at most 1 for p <= high; the second likewise. So the capital against the
cell that holds the true chain is a supermartingale, and an average over alternatives is one. The least capital against
any cell is never more than that. If the stake is 1 in all, then by Ville's inequality it ever reaches x with a
probability of at most 1/x (an e-process).

**Where there is nothing to see.** A class's chains may change at every step by any amount (bounded odds ratios, or the
universal adversary). Such chains can give any one sequence of states a probability as near to 1 as you like. An
e-process for it has an expectation of at most 1 on every sequence, so on every process of states: there is no test.

The test takes every tick with a symbol to have had a state. Readings that are missing are symbols from no chain, and
can look like a departure.

Sources: Ville (1939); Ramdas, Grünwald, Vovk, Shafer, "Game-theoretic statistics and safe anytime-valid inference"
(2023).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel
from fugu.contract.chains import ChainClass
from fugu.contract.losses import Adversary

__all__ = ["largest_capital"]


_CHECK = 256
_MOST = 1e300


@kernel
def bet(
    symbols: Ints,
    emission: Floats,
    cells: Floats,
    alternatives: Floats,
    bounds: Floats,
    beliefs: Floats,
    capital: Floats,
) -> float:
    """Bet against a class over symbols; beliefs, bounds and capital change in place.

    Args:
        symbols: (n,), -1 for a tick without a symbol.
        emission: (2, m), positive.
        cells: (c, 4) lowest and highest q, lowest and highest r.
        alternatives: (a, 2) q and r.
        bounds: (2, c) lowest and highest Pr(state 1 | symbols before) of the chains of each cell.
        beliefs: (a,) the same probability under each alternative.
        capital: (c, a) of the bets against each cell on each alternative.

    Returns:
        The largest value of the least capital against any cell, at every 256th symbol and the last.
    """
    best_capital = 0.0
    symbol_probabilities = np.empty(len(alternatives))
    for t in range(len(symbols)):
        z = symbols[t]
        if z >= 0:
            for a in range(len(alternatives)):
                symbol_probabilities[a] = emission[0, z] + beliefs[a] * (emission[1, z] - emission[0, z])
        for c in range(len(cells)):
            low, high = bounds[0, c], bounds[1, c]
            if z >= 0:
                slope = emission[1, z] - emission[0, z]
                low_factor, high_factor = (1.0 / (emission[0, z] + low * slope), 1.0 / (emission[0, z] + high * slope))
                for a in range(len(alternatives)):
                    bet_factor = high_factor if beliefs[a] > high else low_factor if beliefs[a] < low else 0.0
                    if bet_factor > 0.0:
                        capital[c, a] = min(capital[c, a] * (symbol_probabilities[a] * bet_factor), _MOST)
                low, high = (low * emission[1, z] * low_factor, high * emission[1, z] * high_factor)
            q0, q1, r0, r1 = cells[c, 0], cells[c, 1], cells[c, 2], cells[c, 3]
            bounds[0, c] = q0 + min(low * (1.0 - q0 - r1), high * (1.0 - q0 - r1))
            bounds[1, c] = q1 + max(low * (1.0 - q1 - r0), high * (1.0 - q1 - r0))
        for a in range(len(alternatives)):
            belief = beliefs[a]
            if z >= 0:
                belief *= emission[1, z] / symbol_probabilities[a]
            beliefs[a] = alternatives[a, 0] + belief * (1.0 - alternatives[a, 0] - alternatives[a, 1])
        if (t + 1) % _CHECK == 0 or t + 1 == len(symbols):
            least_capital = np.inf
            for c in range(len(cells)):
                cell_capital = 0.0
                for a in range(len(alternatives)):
                    cell_capital += capital[c, a]
                least_capital = min(least_capital, cell_capital)
            best_capital = max(best_capital, least_capital)
    return best_capital


_PARTS = 8
_SLOWER = ((1.5, 1.5), (3.0, 3.0), (10.0, 10.0), (1.0, 3.0), (3.0, 1.0), (1.0, 10.0), (10.0, 1.0))


def largest_capital(chains: ChainClass, adversary: Adversary, emission: Floats, symbols: Ints) -> float:
    """Return the largest capital of a bet of 1 that symbols (n,), -1 for none, come from no chain of the class.

    `emission` (2, m) is positive. Returns 0, as no test exists, for chains that may change at every step, and for the
    universal adversary.
    """
    if adversary == "universal" or chains.changes:
        return 0.0
    cells = _cells(chains)
    slowest_rates = cells[:, [0, 2]].min(axis=0)
    alternatives = np.array([slowest_rates / slowdowns for slowdowns in _SLOWER])
    return bet(
        np.ascontiguousarray(symbols, dtype=np.int64),
        *(np.ascontiguousarray(emission, dtype=np.float64), cells, alternatives),
        np.stack([np.zeros(len(cells)), np.ones(len(cells))]),
        np.full(len(_SLOWER), 0.5),
        np.full((len(cells), len(_SLOWER)), 1.0 / len(_SLOWER)),
    )


def _cells(chains: ChainClass) -> Floats:
    """Return boxes (c, 4) of q and r that cover a class, each rate cut into parts of equal ratio."""
    cut_boxes = [map(_cut_interval, box) for box in chains.boxes]
    return np.array([(*q, *r) for box_cuts in cut_boxes for q, r in product(*box_cuts)], dtype=np.float64)


def _cut_interval(interval: tuple[Fraction, Fraction]) -> list[tuple[float, float]]:
    low_rate, high_rate = map(float, interval)
    if low_rate == high_rate:
        return [(low_rate, high_rate)]
    return list(pairwise([low_rate, *np.geomspace(low_rate, high_rate, _PARTS + 1)[1:-1].tolist(), high_rate]))
