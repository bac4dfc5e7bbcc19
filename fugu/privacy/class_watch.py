"""Do a stream's symbols still come from the class of chains that its policy declares? A test that may look at any time.

**What it is.** Cut the box of all (q, r) of a class of two states into cells. For any chain of a cell, even one that
changes from step to step inside it, the probability p of state 1 given the symbols before lies between two numbers low
and high that can be computed: p -> q + p(1-q-r) is monotone in p, q and r, and so is p -> p b1(z) / f_p(z), with
f_p = (1-p) b0 + p b1 and b0, b1 the rows of the table. An alternative, a chain outside the class, says p'. Where
p' > high, the capital of a bet is multiplied by f_p'(z) / f_high(z), where p' < low by f_p'(z) / f_low(z), and
otherwise it is left as it is.

**It is valid for every chain of the class.** Given the symbols before, the expectation of the first factor is
g(p) = sum over z of f_p(z) f_p'(z) / f_high(z): linear in p, 1 at p = high, with slope sum (b1 - b0)
f_p' / f_high = (p' - high) sum (b1 - b0)^2 / f_high >= 0, so at most 1 for p <= high; the second likewise. So the
capital against the cell that holds the true chain is a supermartingale, an average over alternatives is one, and what
is begun in later weeks with a part of the stake adds another. The least capital against any cell is never more than
that. If the stake is 1 in all, then by Ville's inequality it ever reaches x with a probability of at most 1/x (an
e-process), whoever looks how often.

**Where there is nothing to see.** A class whose chains may change at every step by any amount (bounded odds ratios, or
the universal adversary) has chains that give any one sequence of states a probability as near to 1 as you like. An
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

from fugu.chains import simulate
from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel
from fugu.contract.chains import ChainClass, FiniteChains
from fugu.contract.leakage import Adversary

__all__ = ["WEEKS", "Bets", "noticeable", "why_off"]


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
    said = np.empty(len(alternatives))
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
                total = 0.0
                for a in range(len(alternatives)):
                    total += capital[c, a]
                least = min(least, total)
            best = max(best, least)
            if best >= enough:
                return best
    return best


WEEKS = 52
"""In a year: in the first tick of each, a part of the stake begins to be bet."""
_PARTS = 8
_SLOWER = ((1.5, 1.5), (3.0, 3.0), (10.0, 10.0), (1.0, 3.0), (3.0, 1.0), (1.0, 10.0), (10.0, 1.0))
_FACTORS = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
_TRIALS = 3
_MOST_TICKS = 700_000


def why_off(chains: ChainClass, adversary: Adversary) -> str | None:
    """Why no departure from a class could be noticed in symbols, or `None` if some could."""
    if adversary == "universal" or chains.changes:
        return "off: a class whose chains may change at every step excludes no sequence, so nothing could be noticed"
    if chains.named_streams:
        return "off: streams of joint chains are not watched"
    if chains.states != 2:
        return "off: only streams of two states are watched"
    return None


class Bets:
    """The bets on one stream's symbols under one policy, whose table (2, m) is positive.

    Attributes:
        least: the least capital against a part of the class, at the last look.
        most: the largest that it was at any look.
    """

    def __init__(self, chains: ChainClass, emission: Floats) -> None:
        self._emission = np.ascontiguousarray(emission, dtype=np.float64)
        self._cells = _cells(chains)
        slowest = self._cells[:, [0, 2]].min(axis=0)
        self._alternatives = np.array([slowest / factors for factors in _SLOWER])
        self._capital = np.zeros((len(self._cells), len(_SLOWER)))
        self.most = 0.0
        self.forget()

    def forget(self) -> None:
        """Before symbols of which nothing near was seen: every belief is possible."""
        self._bounds = np.stack([np.zeros(len(self._cells)), np.ones(len(self._cells))])
        self._beliefs = np.full(len(_SLOWER), 0.5)

    def invest(self, stake: float) -> None:
        """Begin to bet a part of the stake, on all alternatives alike."""
        self._capital += stake / len(_SLOWER)

    def observe(self, symbols: Ints, enough: float = np.inf) -> None:
        """Go on with bets over the symbols (n,) of the next ticks, -1 where there is none, until `most` is `enough`."""
        best = bet(
            np.ascontiguousarray(symbols, dtype=np.int64),
            *(self._emission, self._cells, self._alternatives, self._bounds, self._beliefs, self._capital, enough),
        )
        self.most = max(self.most, best)

    @property
    def least(self) -> float:
        """The least capital against a part of the class, now."""
        return float(self._capital.sum(axis=1).min())


def noticeable(chains: ChainClass, emission: Floats, ticks: int, threshold: float) -> float | None:
    """The smallest departure that is noticed within a week of `ticks`, in most of some simulated ones.

    A departure is a chain that changes its state so many times less often than all of the class, in steps from 1.25 to
    100; `None` if none is noticed. Weeks of over 700,000 ticks are taken for shorter. A year's capital alarms at
    `threshold`.
    """
    low, high = 0, len(_FACTORS)
    while low < high:
        middle = (low + high) // 2
        if _noticed(chains, emission, min(ticks, _MOST_TICKS), threshold, _FACTORS[middle]):
            high = middle
        else:
            low = middle + 1
    return _FACTORS[low] if low < len(_FACTORS) else None


def _noticed(chains: ChainClass, emission: Floats, ticks: int, threshold: float, factor: float) -> bool:
    q, r = _cells(chains)[:, [0, 2]].min(axis=0) / factor
    transition = np.array([[1.0 - q, q], [r, 1.0 - r]])
    found = 0
    for seed in range(_TRIALS):
        if abs(2 * found - seed) > _TRIALS - seed:
            break  # the others cannot change it
        made = simulate(ticks, np.array([r, q]) / (q + r), transition, emission, np.random.default_rng(seed))
        bets = Bets(chains, emission)
        bets.invest(1.0 / WEEKS)
        bets.observe(made.symbols, threshold)
        found += bets.most >= threshold
    return 2 * found > _TRIALS


def _cells(chains: ChainClass) -> Floats:
    """Boxes (c, 4) of q and r that cover a class, each rate cut into parts of equal ratio."""
    if isinstance(chains, FiniteChains):
        return np.array([[q, q, r, r] for ((_, q), (r, _)) in chains.transitions], dtype=np.float64)
    parts = [map(_parts, box) for box in chains.boxes]
    return np.array([(*q, *r) for pair in parts for q, r in product(*pair)], dtype=np.float64)


def _parts(interval: tuple[Fraction, Fraction]) -> list[tuple[float, float]]:
    low, high = map(float, interval)
    if low == high:
        return [(low, high)]
    return list(pairwise([low, *np.geomspace(low, high, _PARTS + 1)[1:-1].tolist(), high]))
