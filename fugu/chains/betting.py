"""Bets on symbols against all chains of small classes at once: the kernel of `fugu.privacy.class_watch`."""

from __future__ import annotations

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel

__all__ = ["bet"]

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
    enough: float,
) -> float:
    """Go on with bets over symbols; what they hold changes in place.

    Args:
        symbols: (n,) -1 where there is none.
        emission: (2, m), positive.
        cells: (c, 4) lowest and highest q, lowest and highest r.
        alternatives: (a, 2) q and r.
        bounds: (2, c) lowest and highest Pr(state 1 | symbols before) of the chains of each cell.
        beliefs: (a,) the same probability under each alternative.
        capital: (c, a) of the bets against each cell on each alternative.
        enough: stop where the least capital against a cell is at least this.

    Returns:
        The largest value of that least capital at every 256th symbol and the last.
    """
    best = 0.0
    said = np.ones(len(alternatives))
    for t in range(len(symbols)):
        z = symbols[t]
        if z >= 0:
            for a in range(len(alternatives)):
                said[a] = emission[0, z] + beliefs[a] * (emission[1, z] - emission[0, z])
        for c in range(len(cells)):
            low, high = bounds[0, c], bounds[1, c]
            if z >= 0:
                step = emission[1, z] - emission[0, z]
                per_low, per_high = 1.0 / (emission[0, z] + low * step), 1.0 / (emission[0, z] + high * step)
                for a in range(len(alternatives)):
                    factor = per_high if beliefs[a] > high else per_low if beliefs[a] < low else 0.0
                    if factor > 0.0:
                        capital[c, a] = min(capital[c, a] * (said[a] * factor), _MOST)
                low, high = low * emission[1, z] * per_low, high * emission[1, z] * per_high
            q0, q1, r0, r1 = cells[c, 0], cells[c, 1], cells[c, 2], cells[c, 3]
            bounds[0, c] = q0 + min(low * (1.0 - q0 - r1), high * (1.0 - q0 - r1))
            bounds[1, c] = q1 + max(low * (1.0 - q1 - r0), high * (1.0 - q1 - r0))
        for a in range(len(alternatives)):
            belief = beliefs[a]
            if z >= 0:
                belief *= emission[1, z] / said[a]
            beliefs[a] = alternatives[a, 0] + belief * (1.0 - alternatives[a, 0] - alternatives[a, 1])
        if (t + 1) % _CHECK == 0 or t + 1 == len(symbols):
            least = np.inf
            for c in range(len(cells)):
                least = min(least, np.sum(capital[c]))
            best = max(best, least)
            if best >= enough:
                return best
    return best
