"""The parts of a chain's Markov quilts: one table for each width, and one term per node.

The influence of the nodes {i-a, i+b} on node i is the largest of start + column[a] + right[b] over pairs of states x,
x' (Song, Wang, Chaudhuri 2017, equation 5), where

    right[b][x,x'] = max over y of log P^b(x,y) / P^b(x',y),
    column[a][x,x'] = max over y of log P^a(y,x) / P^a(y,x'),
    start[x,x'] = log Pr(X_i=x') / Pr(X_i=x).

The a + b - 1 nodes between the ends of a quilt are nearby. The tables only fall as a width grows, so a known influence
is a lower bound for every smaller width: the compiled searches skip widths by this. An absent width is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Bools, Floats
from fugu.chains.kernel import kernel, part
from fugu.privacy.chain_class import ChainClassError, MarkovChain, follow_steps, stationary_distribution_of

__all__ = ["QuiltTables", "least_quilt_loss", "least_quilt_scale", "node_terms", "walk"]


@kernel
def largest_row_ratios(distributions: Floats, ratios: Floats) -> None:
    """Set ratios (k, k) to the largest over y of distributions[x,y] / distributions[x',y].

    0/0 is skipped; a ratio is -inf if there is nothing else.
    """
    k, m = distributions.shape
    for x in range(k):
        for other_row in range(k):
            ratios[x, other_row] = -np.inf
    inverse = np.empty(k)
    for y in range(m):
        for x in range(k):
            inverse[x] = 1.0 / distributions[x, y]
        for x in range(k):
            p = distributions[x, y]
            for other_row in range(k):  # the innermost loop has no sum, so that it vectorises
                ratio = p * inverse[other_row]
                ratios[x, other_row] = (
                    ratio if ratio > ratios[x, other_row] else ratios[x, other_row]
                )  # 0 * inf is no ratio


@kernel
def grow_tables(
    transition: Floats, power: Floats, left: Floats, right: Floats, done_count: int, target: int, floor: float
) -> int:
    """Fill the tables of distances done_count + 1 .. target with ratios, whose logarithms the caller takes.

    Entry m - 1 of `left` and `right`, (at least target, k, k), is for distance m. `power` (k, k) is P^done_count before
    the call, and P^result after it. Returns `target`, or the last distance before a positive entry falls below `floor`,
    where ratios are inexact.
    """
    k = transition.shape[0]
    transposed = np.empty((k, k))
    for distance in range(done_count, target):
        next_power = np.dot(power, transition) if distance else transition.copy()
        for x in range(k):
            for y in range(k):
                if 0.0 < next_power[x, y] < floor:
                    return distance
        for x in range(k):  # an array assigned whole takes numba seconds more to compile
            for y in range(k):
                power[x, y] = transposed[y, x] = next_power[x, y]
        largest_row_ratios(power, right[distance])
        largest_row_ratios(transposed, left[distance])
    return target


@part
def _add_left_width(start_terms: Floats, left_tables: Floats, width: int, left_table: Floats) -> None:
    """Set `left_table` (k, k) to the start terms plus the table of a width to the left, or to 0 for no width."""
    for x in range(left_table.shape[0]):
        for y in range(left_table.shape[0]):
            left_table[x, y] = start_terms[x, y] + left_tables[width - 1, x, y] if width else 0.0


@part
def _largest_sum(left_table: Floats, right_tables: Floats, width: int) -> tuple[float, int, int]:
    """Return the largest entry of `left_table` (k, k) plus the table of a width to the right, and its place."""
    k = left_table.shape[0]
    largest, row, col = -np.inf, 0, 0
    for x in range(k):
        for y in range(k):
            pair_sum = left_table[x, y] + (right_tables[width - 1, x, y] if width else 0.0)
            if pair_sum > largest:  # an impossible pair gives -inf, or no number with an infinite ratio
                largest, row, col = pair_sum, x, y
    return largest, row, col


@kernel
def least_quilt_scale(
    start_terms: Floats,
    left_tables: Floats,
    right_tables: Floats,
    nodes_left: int,
    nodes_right: int,
    empty_scale: float,
    epsilon: float,
    scale_floor: float,
    seed_left: int,
    seed_right: int,
) -> tuple[float, int, int, float, float]:
    """Find the least scale of a node, card / (epsilon - influence), over its quilts; the seed's widths come first.

    `start_terms` (k, k) are those of the node's own distribution, for quilts with a width to the left. The tables of
    widths to either side are (n, k, k). An endless side has more than 2^60 nodes. The empty quilt has the scale
    `empty_scale`, inf on an endless stream. A scale not above `scale_floor` ends the search.

    Returns:
        (scale, left width, right width, influence, useful width): both widths 0 is the empty quilt. No quilt with a
        width above n can be better if n >= the useful width.
    """
    endless = 2**60
    table_count = right_tables.shape[0]
    reach_left, reach_right = min(table_count, nodes_left), min(table_count, nodes_right)
    best_scale, best_left, best_right, best_influence = empty_scale, 0, 0, 0.0
    if best_scale <= scale_floor:
        return best_scale, 0, 0, 0.0, 0.0
    left_table = np.empty(start_terms.shape)
    if seed_left + seed_right > 0:
        # a seed that does not fit loses its width: the influence falls
        a, b = (seed_left if seed_left <= reach_left else 0), (seed_right if seed_right <= reach_right else 0)
        card = (a - 1 if a else nodes_left) + (b if b else nodes_right + 1)
        if (a or b) and card < endless:
            _add_left_width(start_terms, left_tables, a, left_table)
            influence = _largest_sum(left_table, right_tables, b)[0]
            if influence < epsilon and card / (epsilon - influence) < best_scale:
                best_scale, best_left, best_right, best_influence = card / (epsilon - influence), a, b, influence
    witness_x, witness_y = 0, 0
    left_influences = np.empty(reach_left + 1)
    for a in range(reach_left + 1):
        left_influences[a] = np.inf
    for a in range(reach_left + 1):
        if best_scale <= scale_floor:
            break
        nearby_count = a - 1 if a else nodes_left  # nearby nodes other than those of the right width
        if nearby_count + 1 >= epsilon * best_scale:
            if a:
                break
            continue
        _add_left_width(start_terms, left_tables, a, left_table)
        left_influences[a] = _largest_sum(left_table, right_tables, 0)[0]
        if not left_influences[a] < epsilon:
            continue
        if a and nodes_right < endless and (a + nodes_right) < (epsilon - left_influences[a]) * best_scale:
            best_scale, best_left, best_right = (a + nodes_right) / (epsilon - left_influences[a]), a, 0
            best_influence = left_influences[a]
        max_width = (epsilon - left_influences[a]) * best_scale - nearby_count
        b = reach_right if max_width > reach_right else math.ceil(max_width) - 1
        while b >= 1:
            influence = left_table[witness_x, witness_y] + right_tables[b - 1, witness_x, witness_y]
            if not (nearby_count + b >= (epsilon - influence) * best_scale):
                influence, witness_x, witness_y = _largest_sum(left_table, right_tables, b)
                if influence < epsilon and nearby_count + b < (epsilon - influence) * best_scale:
                    best_scale, best_left, best_right = (nearby_count + b) / (epsilon - influence), a, b
                    best_influence = influence
                    if best_scale <= scale_floor:
                        break
            # a smaller right width has at least this influence, so only a card below this can be better
            max_width = (epsilon - influence) * best_scale - nearby_count
            b = min(b - 1, math.ceil(max_width) - 1) if max_width > 0.0 else 0
    useful_width = 0.0
    if nodes_left > table_count and nodes_right > table_count:  # two larger widths have 2n + 1 nodes between them
        useful_width = epsilon * best_scale / 2.0
    if nodes_right > table_count:
        for a in range(reach_left + 1):
            if left_influences[a] < epsilon:
                nearby_count = a - 1 if a else nodes_left
                useful_width = max(useful_width, (epsilon - left_influences[a]) * best_scale - nearby_count)
    if nodes_left > table_count:
        useful_width = max(useful_width, epsilon * best_scale - nodes_right)
        for x in range(start_terms.shape[0]):
            for y in range(start_terms.shape[0]):
                left_table[x, y] = 0.0 if start_terms[x, y] > -np.inf else -np.inf
        for b in range(1, reach_right + 1):
            if epsilon * best_scale - b + 1 <= useful_width:
                break
            largest_sum = _largest_sum(left_table, right_tables, b)[0]
            if largest_sum < epsilon:
                useful_width = max(useful_width, (epsilon - largest_sum) * best_scale - b + 1)
    return best_scale, best_left, best_right, best_influence, useful_width


@kernel
def least_quilt_loss(start_terms: Floats, left_tables: Floats, right_tables: Floats, node: int, sums: Floats) -> float:
    """Return the least loss of a node in 0..T-1 over its quilts: influence plus the charges of nearby nodes.

    The terms and tables are as for `least_quilt_scale`; `sums` (T + 1,) are the running sums of the charges, from 0.
    """
    length = sums.shape[0] - 1
    max_width = right_tables.shape[0]
    best_loss = sums[length] - sums[0]  # of the empty quilt
    left_table = np.empty(start_terms.shape)
    for a in range(min(max_width, node) + 1):
        sum_before = sums[node - a + 1] if a else sums[0]
        if sums[node + 1] - sum_before >= best_loss:
            if a:
                break
            continue
        _add_left_width(start_terms, left_tables, a, left_table)
        influence = _largest_sum(left_table, right_tables, 0)[0]
        if a:
            best_loss = min(best_loss, influence + sums[length] - sum_before)
        for b in range(min(max_width, length - 1 - node), 0, -1):
            if influence + sums[node + b] - sum_before < best_loss:
                influence = _largest_sum(left_table, right_tables, b)[0]
                best_loss = min(best_loss, influence + sums[node + b] - sum_before)
    return float(best_loss)


# Products of two entries above this are exact to the last bit, and so are quotients: no ratio is ever made up.
_TINY = 1e-150
# At most this many numbers in either set of tables (128 MB); fewer widths can only raise a scale.
_MOST_ENTRIES = 2**24


def log_ratio_table(kernel: ArrayLike) -> Floats:
    """Return (k, k) max over y of log kernel[x,y] / kernel[x',y]; inf if only a denominator is 0; 0/0 is skipped."""
    kernel_rows = np.ascontiguousarray(kernel, dtype=np.float64)
    table = np.empty((kernel_rows.shape[0], kernel_rows.shape[0]))
    with np.errstate(all="ignore"):
        largest_row_ratios(kernel_rows, table)
        return np.log(np.maximum(table, 0.0), out=table)


class QuiltTables:
    """The tables of a transition matrix, grown as far as a search needs; entry m - 1 of each is distance m."""

    def __init__(self, transition: Floats) -> None:
        k = transition.shape[0]
        self.transition = np.ascontiguousarray(transition)
        self._power = np.eye(k)
        self.left_tables, self.right_tables = np.empty((0, k, k)), np.empty((0, k, k))
        self._max_width = max(1, _MOST_ENTRIES // k**2)

    @property
    def count(self) -> int:
        """The number of widths in the tables, and the largest of them."""
        return len(self.right_tables)

    @property
    def stalled(self) -> bool:
        """True if wider quilts no longer have less influence, as on a chain that alternates or falls apart."""
        k = len(self._power)
        if self.count <= 2 * k**2:  # a chain that mixes has only positive entries after (k - 1)^2 + 1 steps
            return False
        return bool(self.right_tables[-1].max() >= 0.999_999 * self.right_tables[self.count // 2].max() > 0.0)

    def grow(self, width_count: int) -> bool:
        """Grow the tables to `width_count` widths, if they can; return True if they grew."""
        done_count, target_count = self.count, min(width_count, self._max_width)
        if target_count <= done_count:
            return False
        k = self.transition.shape[0]
        left, right = np.empty((target_count, k, k)), np.empty((target_count, k, k))
        left[:done_count], right[:done_count] = self.left_tables, self.right_tables
        with np.errstate(all="ignore"):
            grown_count = grow_tables(self.transition, self._power, left, right, done_count, target_count, _TINY)
            for new_tables in left[done_count:grown_count], right[done_count:grown_count]:
                np.log(np.maximum(new_tables, 0.0, out=new_tables), out=new_tables)
        if grown_count < target_count:
            self._max_width = grown_count
        self.left_tables, self.right_tables = left[:grown_count], right[:grown_count]
        return grown_count > done_count


class NodeTerms(NamedTuple):
    """Terms of a node in the tables of its widths.

    `start` (k, k) is for quilts with a width to the left, -inf if a state is impossible at this node. At this and every
    later node it is at most `spread` from its stationary value.
    """

    start: Floats
    spread: float


def node_terms(chain: MarkovChain, node: int | None) -> NodeTerms:
    """Return the terms of a node, counted from 1; `None` stands for any node of the stationary chain.

    They are the worst over all starts if the chain has any start. Raises ChainClassError for `None` without a single
    stationary distribution.
    """
    if node is None or chain.is_stationary:
        distribution = stationary_distribution_of(chain)
        return _terms(distribution[None, :], distribution[None, :] > 0.0, distribution)
    distributions, is_reached = _start_rows(chain)
    distributions = distributions @ np.linalg.matrix_power(chain.transition, node - 1)
    is_reached = follow_steps(is_reached, np.linalg.matrix_power(chain.transition > 0.0, node - 1))  # a logical product
    return _terms(distributions, is_reached, _stationary_distribution_or_none(chain))


def walk(chain: MarkovChain) -> Iterator[NodeTerms]:
    """Yield the terms of the nodes 1, 2, 3 ... without end, as `node_terms` does."""
    if chain.is_stationary:
        yield from repeat(node_terms(chain, 1))
    stationary, is_step = _stationary_distribution_or_none(chain), chain.transition > 0.0
    distributions, is_reached = _start_rows(chain)
    while True:
        yield _terms(distributions, is_reached, stationary)
        distributions, is_reached = distributions @ chain.transition, follow_steps(is_reached, is_step)


def _start_rows(chain: MarkovChain) -> tuple[Floats, Bools]:
    """Return the extreme distributions (n, k) of the first tick, and which of their entries are positive."""
    distributions = np.eye(chain.states) if chain.initial is None else chain.initial[None, :]
    return distributions, distributions > 0.0


def _terms(distributions: Floats, is_reached: Bools, stationary: Floats | None) -> NodeTerms:
    """Return a node's terms from its extreme distributions (n, k), their reached states, and the stationary one."""
    is_possible: Bools = np.asarray(is_reached.any(axis=0))
    is_possible_pair = is_possible[:, None] & is_possible[None, :]
    # reachable in the graph, and yet too rare for exact ratios: the ratio is unknown
    is_vague: Bools = np.asarray((is_reached & (distributions < _TINY)).any(axis=0))
    start = log_ratio_table(np.where(is_reached, distributions, 0.0).T).T.copy()
    start[is_vague[:, None] | is_vague[None, :]] = np.inf
    start[~is_possible_pair] = -np.inf
    spread = np.inf
    if stationary is not None and not is_vague.any() and not (is_possible & (stationary <= 0.0)).any():
        ratios = distributions[:, stationary > 0.0] / stationary[stationary > 0.0]
        if ratios.min() > 0.0:
            spread = float(np.log(ratios.max() / ratios.min()))
    return NodeTerms(start, spread)


def _stationary_distribution_or_none(chain: MarkovChain) -> Floats | None:
    try:
        return stationary_distribution_of(chain)
    except ChainClassError:
        return None
