"""The Markov quilt mechanism on a chain, exactly: how much Laplace noise a 1-Lipschitz query needs.

Song, Wang, Chaudhuri: Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD 2017), algorithm 3, with every quilt
{i-a, i+b}, {i-a}, {i+b} and {}; the paper's own sets are asymmetric and miss the last node. The guarantee is against
an adversary who believes some chain of the class and knows no state for certain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.chains import BinaryChains
from fugu.contract.rounding import OUTWARD
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilt_kernels import smallest_scale
from fugu.privacy.quilt_tables import QuiltTables, node_terms, walk

__all__ = [
    "QuiltScale",
    "best_quilt",
    "corner_chains",
    "entry_dp_scale",
    "group_dp_scale",
    "influence",
    "mqm_exact",
]

ENDLESS = 2**61
_UP = 1.0 + OUTWARD
_CLOSE = 1.0 + 2e-13
_NEAR = 1.0 + 1e-9
_MOST_NODES = 100_000
_NO_QUILT = "no Markov quilt has an influence below epsilon: give the length of the window"


class QuiltScale(NamedTuple):
    """A Laplace scale and the quilt that decides it.

    Attributes:
        scale: for a query that changes by at most 1 with one state, rounded up.
        node: 1..T; None where every node far enough from the ends decides, or none is worse than their limit.
        quilt: widths (a, b) of {i-a, i+b}; None for an absent width, both None for the empty quilt.
        card: nodes nearby, the node itself included.
        influence: of the quilt on the node.
        chain: index of the worst chain in its class.
    """

    scale: float
    node: int | None
    quilt: tuple[int | None, int | None]
    card: int
    influence: float
    chain: int


def mqm_exact(
    chains: tuple[MarkovChain, ...] | BinaryChains,
    length: int | None,
    epsilon: float,
) -> QuiltScale:
    """The scale of MQMExact for a class of chains.

    Args:
        chains: a finite class, or every two-state chain with q and r in intervals, started stationary.
        length: T, the ticks of the window, or None for a stream without end.
        epsilon: above 0.

    Returns:
        The scale of the worst chain, and where it comes from.

    Raises:
        ChainClassError: epsilon or length is out of range, or no quilt is good enough on an endless stream.

    Impossible states count, as in the paper's equation 5: that is safe. The scale of a node is never above that of a
    stationary chain at epsilon - spread, where spread bounds how far the distributions of this node and of all later
    ones are
    from stationary: likelihood ratios to the stationary distribution are averaged at each step. The walk over the nodes
    stops there; on a long stationary window, at the first one.
    """
    _check(epsilon, length)
    members = corner_chains(chains)
    if not members:
        raise ChainClassError("a class needs at least one chain")
    scales = (_chain_scale(chain, length, epsilon) for chain in members)
    worst = max((scale._replace(chain=index) for index, scale in enumerate(scales)), key=lambda scale: scale.scale)
    return worst._replace(scale=worst.scale * _UP)


def influence(chain: MarkovChain, node: int | None, before: int | None, after: int | None) -> float:
    """The influence of the nodes {node - before, node + after} on a node (equation 5), at least 0.

    The node is 1.., or None for one of the stationary chain; an absent width is None. inf if they can rule a state out.
    """
    too_long = node is not None and node <= (before or 0)
    if too_long or any(width is not None and width < 1 for width in (before, after)):
        raise ChainClassError("widths are at least 1, and the left one ends at node 1 or later")
    tables = QuiltTables(chain.transition)
    tables.grow(max(before or 1, after or 1))
    if tables.count < max(before or 1, after or 1):
        return float("inf")
    start = node_terms(chain, node).start
    total = np.zeros_like(start) if before is None else start + tables.column[before - 1]
    with np.errstate(invalid="ignore"):
        total = total if after is None else total + tables.right[after - 1]
    return max(0.0, float(np.nanmax(total)))


def corner_chains(chains: tuple[MarkovChain, ...] | BinaryChains) -> tuple[MarkovChain, ...]:
    """The chains of a class; of an interval the stationary ones that are the worst of it, for every quilt.

    With q + r = s and L = (1 - s)^b, the ratios of a table are 1 + (s/q) L/(1 - L) and, for L < 0,
    1 + |L| s/(q - r|L|), and the same with q and r swapped. They fall in q and r while s <= 1 and grow while s >= 1,
    so the stickiest and the most alternating corner are the worst; the other two are there for the rarest state.
    """
    if not isinstance(chains, BinaryChains):
        return chains
    return tuple(
        MarkovChain.stationary([[1.0 - q, q], [r, 1.0 - r]])
        for q, r in dict.fromkeys((q, r) for q in chains.q for r in chains.r)
    )


def group_dp_scale(length: int, epsilon: float, *, sensitivity: float = 1.0) -> float:
    """The Laplace scale that protects all ticks of a window as one: sensitivity 1 for a count, 2 for a histogram."""
    _check(epsilon, length)
    return sensitivity * length / epsilon


def entry_dp_scale(epsilon: float, *, sensitivity: float = 1.0) -> float:
    """The Laplace scale of ordinary differential privacy; it does not protect correlated readings."""
    _check(epsilon, None)
    return sensitivity / epsilon


def best_quilt(
    tables: QuiltTables,
    start: Floats,
    nodes_left: int,
    nodes_right: int,
    epsilon: float,
    *,
    trivial: float | None = None,
    enough: float = 0.0,
    seed: tuple[int | None, int | None] = (None, None),
) -> QuiltScale:
    """The best quilt of one node, over all widths that could matter.

    Args:
        tables: grown on demand.
        start: (k, k), of `NodeTerms`.
        room_left, room_right: nodes on either side, or `ENDLESS`.
        epsilon: above 0.
        trivial: the scale of the empty quilt; by default from the rooms.
        enough: do not look for a scale below this.
        seed: a quilt to try first.

    Returns:
        Scale, not rounded, without node and chain; scale inf if nothing is good enough.
    """
    length = nodes_left + nodes_right + 1
    if trivial is None:
        trivial = length / epsilon if length < ENDLESS else float("inf")
    tables.grow(min(32, max(1, length - 1)))
    while True:
        scale, a, b, e, wanted = smallest_scale(
            start, tables.column, tables.right, nodes_left, nodes_right,
            trivial, epsilon, enough, seed[0] or 0, seed[1] or 0,
        )  # fmt: skip
        if scale <= enough or tables.count >= wanted or (scale >= trivial and tables.stalled):
            break
        if not tables.grow(int(min(1.5 * tables.count, wanted)) + 1):
            break
    card = (a - 1 if a else nodes_left) + (b if b else nodes_right + 1)
    return QuiltScale(scale, None, (a or None, b or None), card, e, 0)


def _chain_scale(chain: MarkovChain, length: int | None, epsilon: float) -> QuiltScale:
    """The scale of one chain, not rounded."""
    tables = QuiltTables(chain.transition)
    empty = float("inf") if length is None else length / epsilon
    steady = _steady(tables, chain, epsilon, empty)
    if length is None:
        if steady is None or not steady.scale < float("inf"):
            raise ChainClassError(_NO_QUILT)
        if chain.is_stationary:
            return steady
        worst = steady
    else:
        # a node in the middle of things decides for all that are far from both ends, so ask it first
        far = max(length // 2 + 1, length - min(tables.count, length))
        worst = best_quilt(tables, node_terms(chain, far).start, far - 1, length - far, epsilon)._replace(node=far)
    seed, spread = worst.quilt, float("inf")
    for node, terms in enumerate(walk(chain), 1):
        if node - 1 == length or worst.scale >= empty:
            break
        bound = empty if steady is None else _later(steady, terms.spread, epsilon, empty)
        if bound <= worst.scale * _CLOSE:
            break
        if node > _MOST_NODES or (spread <= terms.spread and bound <= worst.scale * _NEAR):
            worst = worst._replace(scale=bound)  # as close as rounding, or patience, allows
            break
        if length is None and node > chain.states**2 and terms.spread == float("inf"):
            raise ChainClassError(
                "the chain does not converge to a stationary distribution: give the length of the window"
            )
        spread = terms.spread
        after = ENDLESS if length is None else length - node
        found = best_quilt(tables, terms.start, node - 1, after, epsilon, enough=worst.scale, seed=seed)
        if found.scale > worst.scale:
            worst = found._replace(node=node)
            seed = worst.quilt
    if not worst.scale < float("inf"):
        raise ChainClassError(_NO_QUILT)
    return worst


def _steady(tables: QuiltTables, chain: MarkovChain, epsilon: float, empty: float) -> QuiltScale | None:
    """The best quilt of a stationary node far from both ends; the empty quilt costs `empty`."""
    try:
        terms = node_terms(chain, None)
    except ChainClassError:
        return None
    return best_quilt(tables, terms.start, ENDLESS, ENDLESS, epsilon, trivial=empty)


def _later(steady: QuiltScale, spread: float, epsilon: float, empty: float) -> float:
    """What no node from here on needs more than. A node too near an end drops the width, and both terms fall."""
    if steady.quilt == (None, None):
        return empty
    left = epsilon - spread - steady.influence
    return min(empty, steady.card / left) if left > 0.0 else empty


def _check(epsilon: float, length: int | None) -> None:
    if not 0.0 < epsilon < float("inf"):
        raise ChainClassError(f"epsilon must be above 0 and finite, got {epsilon}")
    if length is not None and length < 1:
        raise ChainClassError(f"a window has at least one tick, got {length}")
