"""What the Markov quilts of a chain are made of: one table for each width, and one term per node.

The influence of the nodes {i-a, i+b} on node i is the largest of start + column[a] + right[b] over pairs of states
x, x' (Song, Wang, Chaudhuri 2017, equation 5), where
    right[b][x,x'] = max over y of log P^b(x,y) / P^b(x',y),
    column[a][x,x'] = max over y of log P^a(y,x) / P^a(y,x'),
    start[x,x'] = log Pr(X_i=x') / Pr(X_i=x).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Bools, Floats
from fugu.privacy.chain_class import ChainClassError, MarkovChain, follow
from fugu.privacy.quilt_kernels import grow_tables, largest_ratio

__all__ = ["NodeTerms", "QuiltTables", "log_ratio_table", "node_terms", "stationary_distribution_of", "walk"]

# Products of two entries above this are exact to the last bit, and so are quotients: no ratio is ever made up.
_TINY = 1e-150
# At most this many numbers in either set of tables (128 MB); fewer widths can only raise a scale.
_MOST_ENTRIES = 2**24


def log_ratio_table(kernel: ArrayLike) -> Floats:
    """(k, k): max over y of log kernel[x,y] / kernel[x',y]; inf where only a denominator is 0, 0/0 is passed over."""
    rows = np.ascontiguousarray(kernel, dtype=np.float64)
    table = np.empty((rows.shape[0], rows.shape[0]))
    with np.errstate(all="ignore"):
        largest_ratio(rows, table)
        return np.log(np.maximum(table, 0.0), out=table)


class QuiltTables:
    """The tables of a transition matrix, grown as far as a search asks.

    Attributes:
        transition: (k, k).
        column, right: (n, k, k); entry m - 1 is distance m.
    """

    transition: Floats
    column: Floats
    right: Floats

    def __init__(self, transition: Floats) -> None:
        """Start without any width."""
        k = transition.shape[0]
        self.transition = np.ascontiguousarray(transition)
        self._power = np.eye(k)
        self.column, self.right = np.empty((0, k, k)), np.empty((0, k, k))
        self._most = max(1, _MOST_ENTRIES // k**2)

    @property
    def count(self) -> int:
        """The largest width there is."""
        return len(self.right)

    @property
    def stalled(self) -> bool:
        """Whether larger widths have stopped to know less, as on a chain that alternates or falls apart."""
        k = len(self._power)
        if self.count <= 2 * k**2:  # a chain that mixes has only positive entries after (k - 1)^2 + 1 steps
            return False
        return bool(self.right[-1].max() >= 0.999_999 * self.right[self.count // 2].max() > 0.0)

    def grow(self, count: int) -> bool:
        """Make tables for widths up to `count`.

        Returns:
            Whether there are more than before; if not, these are all that can be had.
        """
        done, wanted = self.count, min(count, self._most)
        if wanted <= done:
            return False
        k = self.transition.shape[0]
        column, right = np.empty((wanted, k, k)), np.empty((wanted, k, k))
        column[:done], right[:done] = self.column, self.right
        with np.errstate(all="ignore"):
            reached = grow_tables(self.transition, self._power, column, right, done, wanted, _TINY)
            for fresh in column[done:reached], right[done:reached]:
                np.log(np.maximum(fresh, 0.0, out=fresh), out=fresh)
        if reached < wanted:
            self._most = reached
        self.column, self.right = column[:reached], right[:reached]
        return reached > done


class NodeTerms(NamedTuple):
    """What a node adds to the tables of its widths.

    Attributes:
        start: (k, k), for quilts with a width to the left; -inf where a state is impossible here.
        spread: start is nowhere further than this from its stationary value, here and at every later node.
    """

    start: Floats
    spread: float


def node_terms(chain: MarkovChain, node: int | None) -> NodeTerms:
    """The terms of one node.

    Args:
        chain: any; without an initial distribution, the term is the worst over all of them.
        node: 1.., or None for a node of the stationary chain.

    Raises:
        ChainClassError: node is None and the chain has no single stationary distribution.
    """
    if node is None or chain.is_stationary:
        distribution = stationary_distribution_of(chain)
        return _terms(distribution[None, :], distribution[None, :] > 0.0, distribution)
    rows, reach = _first(chain)
    rows = rows @ np.linalg.matrix_power(chain.transition, node - 1)
    reach = follow(reach, _boolean_power(chain.transition > 0.0, node - 1))
    return _terms(rows, reach, _stationary_distribution_or_none(chain))


def walk(chain: MarkovChain) -> Iterator[NodeTerms]:
    """The terms of the nodes 1, 2, 3 ... for ever, as `node_terms` gives them."""
    if chain.is_stationary:
        yield from repeat(node_terms(chain, 1))
    fixed, step = _stationary_distribution_or_none(chain), chain.transition > 0.0
    rows, reach = _first(chain)
    while True:
        yield _terms(rows, reach, fixed)
        rows, reach = rows @ chain.transition, follow(reach, step)


def stationary_distribution_of(chain: MarkovChain) -> Floats:
    """The stationary distribution of a chain, as given where it starts with it.

    Args:
        chain: one that starts stationary, or whose stationary distribution is wanted.

    Returns:
        (k,) the distribution.

    Raises:
        ChainClassError: there is more than one.
    """
    return chain.initial if chain.is_stationary and chain.initial is not None else chain.stationary_distribution


def _first(chain: MarkovChain) -> tuple[Floats, Bools]:
    """The distributions (n, k) of the first tick between which all others lie, and where they are positive."""
    rows = np.eye(chain.states) if chain.initial is None else chain.initial[None, :]
    return rows, rows > 0.0


def _terms(rows: Floats, reach: Bools, fixed: Floats | None) -> NodeTerms:
    """Terms from the distributions (n, k) that a node may have, where these are positive, and the stationary one."""
    possible: Bools = np.asarray(reach.any(axis=0))
    pair = possible[:, None] & possible[None, :]
    # reachable in the graph, and yet too small for exact ratios: nothing is known of the ratio
    vague: Bools = np.asarray((reach & (rows < _TINY)).any(axis=0))
    start = log_ratio_table(np.where(reach, rows, 0.0).T).T.copy()
    start[vague[:, None] | vague[None, :]] = np.inf
    start[~pair] = -np.inf
    spread = np.inf
    if fixed is not None and not vague.any() and not (possible & (fixed <= 0.0)).any():
        ratios = rows[:, fixed > 0.0] / fixed[fixed > 0.0]
        if ratios.min() > 0.0:
            spread = float(np.log(ratios.max() / ratios.min()))
    return NodeTerms(start, spread)


def _stationary_distribution_or_none(chain: MarkovChain) -> Floats | None:
    try:
        return stationary_distribution_of(chain)
    except ChainClassError:
        return None


def _boolean_power(step: Bools, power: int) -> Bools:
    """Which states reach which in exactly `power` steps."""
    result, square = np.eye(len(step), dtype=np.bool_), step
    while power:
        if power & 1:
            result = follow(result, square)
        square = follow(square, square)
        power >>= 1
    return result
