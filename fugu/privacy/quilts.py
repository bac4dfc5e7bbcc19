"""The Markov quilt mechanism on a chain, exactly: the Laplace noise that a 1-Lipschitz query needs.

Song, Wang, Chaudhuri: Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD 2017), algorithm 3, with every quilt
{i-a, i+b}, {i-a}, {i+b} and {}; the paper's own sets are asymmetric and miss the last node. The guarantee is against an
adversary who believes some chain of the class and knows no state for certain.

Several releases about one chain are charged to the ticks that they cover. The charge c_t is the sum of 1/scale (for a
query that changes by at most 1 with one state) over the releases that read tick t. The loss of a node is at most, for
every quilt, its influence plus the charges of the nodes nearby. This contains theorem 3.7 of Song, Chaudhuri:
Composition Properties of Inferential Privacy for Time-Series Data (2017), and needs no record of which quilt was active
when.

The approximate Markov quilt mechanism: a scale from two numbers of a class, its eigengap and its rarest state.

Song, Wang, Chaudhuri: Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD 2017), algorithm 4, lemmas 4.8, 4.9 and
C.4. Two things differ from print. The eigengap drops exactly one unit eigenvalue; dropping all of them finds a gap for
a clock, whose past is never forgotten. Widths too small for lemma 4.8 are not used.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fugu.chains.arrays import Floats
from fugu.contract.chains import BinaryChains
from fugu.contract.losses import OUTWARD
from fugu.privacy.chain_class import ChainClassError, MarkovChain, stationary_distribution_of
from fugu.privacy.quilt_tables import QuiltTables, least_quilt_loss, least_quilt_scale, node_terms, walk

__all__ = [
    "QuiltScale",
    "corner_chains",
    "group_dp_scale",
    "mqm_approx",
    "mqm_exact",
    "quilt_accountant",
    "quilt_rate_loss",
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
        node: 1..T; `None` if every node far enough from the ends decides, or no node is worse than their limit.
        quilt: widths (a, b) of {i-a, i+b}; `None` for an absent width, both `None` for the empty quilt.
        card: nodes nearby, the node itself included.
        chain: index of the worst chain in its class.
    """

    scale: float
    node: int | None
    quilt: tuple[int | None, int | None]
    card: int
    influence: float
    chain: int


def mqm_exact(chains: tuple[MarkovChain, ...] | BinaryChains, length: int | None, epsilon: float) -> QuiltScale:
    """Return the scale of MQMExact for the worst chain of a finite class, or of an interval started stationary.

    Impossible states count, as in the paper's equation 5, which is safe. The scale of a node is never above that of a
    stationary chain at epsilon - spread. The spread bounds how far the distributions of this node and of all later ones
    are from stationary. Each step averages likelihood ratios to the stationary distribution. The walk over the nodes
    stops when that bound is reached; on a long stationary window, at the first node. `length` is of the window, or
    `None` for no end. Raises ChainClassError if epsilon or length is out of range, or no quilt is good enough on an
    endless stream.
    """
    _check_range(epsilon, length)
    members = corner_chains(chains)
    if not members:
        raise ChainClassError("a class needs at least one chain")
    scales = (_chain_scale(chain, length, epsilon) for chain in members)
    worst = max((scale._replace(chain=index) for index, scale in enumerate(scales)), key=lambda scale: scale.scale)
    return worst._replace(scale=worst.scale * _UP)


def corner_chains(chains: tuple[MarkovChain, ...] | BinaryChains) -> tuple[MarkovChain, ...]:
    """Return a class's chains; of an interval the stationary corners, which are the worst for every quilt.

    With q + r = s and L = (1 - s)^b, the ratios of a table are 1 + (s/q) L/(1 - L) and, for L < 0, 1 + |L|
    s/(q - r|L|), and the same with q and r swapped. They fall in q and r while s <= 1 and grow while s >= 1, so the
    stickiest and the most alternating corner are the worst. The other two corners are there for the rarest state.
    """
    if not isinstance(chains, BinaryChains):
        return chains
    return tuple(
        MarkovChain.stationary([[1.0 - q, q], [r, 1.0 - r]])
        for q, r in dict.fromkeys((q, r) for q in chains.q for r in chains.r)
    )


def group_dp_scale(length: int, epsilon: float, *, sensitivity: float = 1.0) -> float:
    """Return the Laplace scale that protects all ticks of a window as one; histograms have sensitivity 2."""
    _check_range(epsilon, length)
    return sensitivity * length / epsilon


def best_quilt(
    tables: QuiltTables,
    start_terms: Floats,
    nodes_left: int,
    nodes_right: int,
    epsilon: float,
    empty_scale: float,
    *,
    scale_floor: float = 0.0,
    seed: tuple[int | None, int | None] = (None, None),
) -> QuiltScale:
    """Return the best quilt of one node over all useful widths, not rounded; the scale is inf if none is good enough.

    Tables are grown on demand. `start_terms` are of `NodeTerms`. The numbers of nodes on either side may be `ENDLESS`.
    The empty quilt has the scale `empty_scale`. The search ends at a scale not above `scale_floor`. The quilt with the
    widths `seed` is tried first.
    """
    tables.grow(min(32, max(1, nodes_left + nodes_right)))
    while True:
        scale, a, b, influence, useful_width = least_quilt_scale(
            start_terms, tables.left_tables, tables.right_tables, nodes_left, nodes_right,
            empty_scale, epsilon, scale_floor, seed[0] or 0, seed[1] or 0,
        )  # fmt: skip
        is_final = scale <= scale_floor or tables.count >= useful_width or (scale >= empty_scale and tables.stalled)
        if is_final or not tables.grow(int(min(1.5 * tables.count, useful_width)) + 1):
            nearby_count = (a - 1 if a else nodes_left) + (b if b else nodes_right + 1)
            return QuiltScale(scale, None, (a or None, b or None), nearby_count, influence, 0)


def _chain_scale(chain: MarkovChain, length: int | None, epsilon: float) -> QuiltScale:
    tables = QuiltTables(chain.transition)
    empty_scale = math.inf if length is None else length / epsilon
    middle_scale = _middle_scale(tables, chain, epsilon, empty_scale)
    if length is None:
        if middle_scale is None or not middle_scale.scale < math.inf:
            raise ChainClassError(_NO_QUILT)
        if chain.is_stationary:
            return middle_scale
        worst_scale = middle_scale
    else:
        # the middle node decides for all nodes far from both ends, so it is first
        middle_node = max(length // 2 + 1, length - min(tables.count, length))
        worst_scale = best_quilt(
            tables, node_terms(chain, middle_node).start, middle_node - 1, length - middle_node, epsilon, empty_scale
        )._replace(node=middle_node)
    seed, spread = worst_scale.quilt, math.inf
    for node, terms in enumerate(walk(chain), 1):
        if node - 1 == length or worst_scale.scale >= empty_scale:
            break
        bound = empty_scale if middle_scale is None else _later_bound(middle_scale, terms.spread, epsilon, empty_scale)
        if bound <= worst_scale.scale * _CLOSE:
            break
        if node > _MOST_NODES or (spread <= terms.spread and bound <= worst_scale.scale * _NEAR):
            worst_scale = worst_scale._replace(scale=bound)  # as close as rounding, or patience, allows
            break
        if length is None and node > chain.states**2 and terms.spread == math.inf:
            raise ChainClassError(
                "the chain does not converge to a stationary distribution: give the length of the window"
            )
        spread = terms.spread
        nodes_right = ENDLESS if length is None else length - node
        node_scale = best_quilt(
            tables, terms.start, node - 1, nodes_right, epsilon, empty_scale, scale_floor=worst_scale.scale, seed=seed
        )
        if node_scale.scale > worst_scale.scale:
            worst_scale = node_scale._replace(node=node)
            seed = worst_scale.quilt
    if not worst_scale.scale < math.inf:
        raise ChainClassError(_NO_QUILT)
    return worst_scale


def _middle_scale(tables: QuiltTables, chain: MarkovChain, epsilon: float, empty_scale: float) -> QuiltScale | None:
    """Return the best quilt of a stationary node far from both ends; `None` without one stationary distribution.

    The empty quilt has the scale `empty_scale`.
    """
    try:
        terms = node_terms(chain, None)
    except ChainClassError:
        return None
    return best_quilt(tables, terms.start, ENDLESS, ENDLESS, epsilon, empty_scale)


def _later_bound(middle_scale: QuiltScale, spread: float, epsilon: float, empty_scale: float) -> float:
    """Bound the scales of all nodes whose distributions are within `spread` of the stationary one."""
    if middle_scale.quilt == (None, None):
        return empty_scale
    epsilon_left = epsilon - spread - middle_scale.influence
    return min(empty_scale, middle_scale.card / epsilon_left) if epsilon_left > 0.0 else empty_scale


def _check_range(epsilon: float, length: int | None) -> None:
    if not 0.0 < epsilon < math.inf:
        raise ChainClassError(f"epsilon must be above 0 and finite, got {epsilon}")
    if length is not None and length < 1:
        raise ChainClassError(f"a window has at least one tick, got {length}")


def quilt_accountant(chains: tuple[MarkovChain, ...], charges: ArrayLike) -> Floats:
    """Return the loss (T,) of every node for the worst chain, from the charges of releases to ticks.

    The charges (T,), at least 0, are those of all releases together. The loss, rounded up, bounds the log-likelihood
    ratio between any two states of a node. Raises ChainClassError if the charges are no such vector, or there is no
    chain.
    """
    costs = np.asarray(charges, dtype=np.float64)
    # negated, so that it also refuses what is not a number
    if costs.ndim != 1 or not costs.size or not np.all((costs >= 0.0) & (costs < np.inf)) or not chains:
        raise ChainClassError("charges are a vector of numbers from 0 on, one per tick, and a class has a chain")
    losses = [_node_losses(chain, costs) for chain in chains]
    return np.asarray(np.max(losses, axis=0) * _UP, dtype=np.float64)


def quilt_rate_loss(chains: tuple[MarkovChain, ...], rate: float) -> float:
    """Return the loss of a node in an endless stationary stream with one charge at all ticks; rounded up.

    Tumbling windows are such a stream: with 1-Lipschitz queries and noise of one scale, rate = 1 / scale. The loss is
    the least influence + rate (a + b - 1) of any quilt with widths a and b, for the worst chain. Raises
    ChainClassError for a wrong rate, no chain, one that does not start stationary or, at a rate above 0, never forgets.
    """
    if not 0.0 <= rate < math.inf:
        raise ChainClassError(f"a rate is a number from 0 on, got {rate}")
    if not chains or not all(chain.is_stationary for chain in chains):
        raise ChainClassError("a bound for an endless stream needs chains that start stationary")
    return max(_rate_loss(chain, rate) for chain in chains) * _UP if rate else 0.0


def _node_losses(chain: MarkovChain, charges: Floats) -> Floats:
    length = charges.size
    # a window's charge is a difference of running sums: their rounding is added back below
    sums = np.concatenate([[0.0], np.cumsum(charges, dtype=np.longdouble)]).astype(np.float64)
    rounding = 2.0**-50 * float(sums[-1])
    tables = QuiltTables(chain.transition)
    tables.grow(min(32, length - 1))
    while True:
        terms = zip(range(length), walk(chain), strict=False)
        losses = np.array(
            [least_quilt_loss(term.start, tables.left_tables, tables.right_tables, node, sums) for node, term in terms]
        )
        # a wider quilt counts all nodes that it passes over
        node = np.arange(length)
        max_width = tables.count
        cost_ahead = sums[np.minimum(node + max_width + 1, length)] - sums[node]
        cost_behind = sums[node + 1] - sums[np.maximum(node - max_width, 0)]
        open_ahead = (node + max_width + 1 < length) & (cost_ahead < losses)
        open_behind = (node - max_width > 0) & (cost_behind < losses)
        if not (open_ahead | open_behind).any() or tables.stalled or not tables.grow(min(2 * tables.count, length - 1)):
            return losses + rounding


def _rate_loss(chain: MarkovChain, rate: float) -> float:
    """Return the loss of a node far from both ends, not rounded."""
    tables, start_terms = QuiltTables(chain.transition), node_terms(chain, None).start
    tables.grow(32)
    while True:
        # on a window this wide, a quilt that ends at the window's end costs more than rate * count
        charge_sums = rate * np.arange(2.0 * tables.count + 2.0)
        loss = least_quilt_loss(start_terms, tables.left_tables, tables.right_tables, tables.count, charge_sums)
        if loss < rate * tables.count:
            return loss
        if tables.stalled or not tables.grow(2 * tables.count):
            raise ChainClassError("the chain never forgets, so that an endless stream gives everything away")


_LEAST_GAP = 1e-10
_MOST_WIDTHS = 2**22


class Mixing(NamedTuple):
    """The smallest eigengap of a class, and `min_pi`, its rarest state's stationary probability; both rounded down."""

    gap: float
    min_pi: float


def mqm_approx(
    chains: tuple[MarkovChain, ...] | BinaryChains,
    length: int | None,
    epsilon: float,
    reversible: bool | None = None,
    *,
    stationary: bool = False,
) -> QuiltScale:
    """Return the scale of MQMApprox for a finite class, or an interval of two-state chains, with any start.

    The result's influence is lemma 4.8's bound, its chain is always 0.

    Args:
        length: T, the ticks of the window, or `None` for a stream without end.
        reversible: use the larger eigengap of reversible chains; `None` uses it if all of them are reversible.
        stationary: every chain starts stationary, so that the term for the node's own distribution is not needed.

    Raises:
        ChainClassError: epsilon or length is out of range. Or the class has no eigengap or rarest state, is not
            reversible or stationary as said, or needs a length at this epsilon.
    """
    _check_range(epsilon, length)
    members = corner_chains(chains)
    if stationary and not all(chain.is_stationary for chain in members):
        raise ChainClassError("a chain of the class does not start stationary")
    chain_mixing = mixing(members, reversible)
    empty_scale = math.inf if length is None else length / epsilon
    middle_quilt = _best_width(chain_mixing, epsilon, ENDLESS, ENDLESS, empty_scale, stationary)
    if not middle_quilt.scale < math.inf:
        raise ChainClassError(_NO_QUILT)
    # lemma 4.9: on a long window the middle node decides; on a short one a node may do with a single width
    if length is None or length >= fast_path_length(chain_mixing, epsilon):
        return middle_quilt._replace(scale=middle_quilt.scale * _UP)
    worst_quilt = middle_quilt._replace(scale=0.0)
    for node in range((length + 1) // 2, 0, -1):
        for tick in {node, length + 1 - node}:
            quilt = _best_width(
                chain_mixing, epsilon, tick - 1, length - tick, empty_scale, stationary, scale_floor=worst_quilt.scale
            )
            if quilt.scale > worst_quilt.scale:
                worst_quilt = quilt._replace(node=tick)
        if worst_quilt.scale >= middle_quilt.scale:
            break
    return worst_quilt._replace(scale=worst_quilt.scale * _UP)


def mixing(chains: tuple[MarkovChain, ...], reversible: bool | None = None) -> Mixing:
    """Return the smallest eigengap and the rarest state's probability of a class; arguments as for `mqm_approx`."""
    if not chains:
        raise ChainClassError("a class needs at least one chain")
    rarest = min(float(distribution.min()) for distribution in [stationary_distribution_of(chain) for chain in chains])
    if not rarest > 0.0:
        raise ChainClassError("a state dies out: MQMApprox needs a positive stationary probability of every state")
    if reversible is None:
        reversible = all(is_reversible(chain) for chain in chains)
    return Mixing(min(eigengap(chain, reversible) for chain in chains), rarest * (1.0 - 1e-14))


def eigengap(chain: MarkovChain, reversible: bool = False) -> float:
    """Return the eigengap g: after b ticks a distribution is within exp(-g b / 2) / min(pi) of stationary, relatively.

    With `reversible` it is 2 (1 - |lambda_2|) of P itself (lemma C.4) instead of the gap of P P* (lemma 4.8). The gap
    is rounded down. ChainClassError if there is no gap, or with `reversible` the chain is not reversible.
    """
    distribution = stationary_distribution_of(chain)
    if not distribution.min() > 0.0:
        raise ChainClassError("a state dies out: there is no eigengap")
    if reversible and not is_reversible(chain):
        raise ChainClassError("the chain is not reversible: pi(x) P(x,y) differs from pi(y) P(y,x)")
    root = np.sqrt(distribution)
    # similar to P. For a reversible chain it is symmetric, and singular values are absolute eigenvalues. Exactly one
    # unit value belongs to the stationary distribution; any other one belongs to a period or a closed class
    lambda2 = float(np.linalg.svd(root[:, None] * chain.transition / root, compute_uv=False)[1]) + 4e-16 * chain.states
    gap = 2.0 * (1.0 - lambda2) if reversible else 1.0 - lambda2**2
    if gap < _LEAST_GAP:
        raise ChainClassError(
            "the eigengap is 0: a part of the state is handed on without loss for a tick, so that MQMApprox has "
            "no bound; use MQMExact"
        )
    return gap


def is_reversible(chain: MarkovChain) -> bool:
    """Return True if pi(x) P(x,y) = pi(y) P(y,x) for all x, y, within rounding, however rare these steps are."""
    flow: Floats = stationary_distribution_of(chain)[:, None] * chain.transition
    return bool(np.all(np.abs(flow - flow.T) <= 1e-12 * (flow + flow.T)))


def fast_path_length(mixing: Mixing, epsilon: float) -> int:
    """Return the least length at which the middle node decides, by widths up to half the length (lemma 4.9)."""
    # 1 / tanh(x / 2) is (e^x + 1) / (e^x - 1), here with x = epsilon / 6
    return 8 * 2 * math.ceil(math.log(1.0 / math.tanh(epsilon / 12.0) / mixing.min_pi) / mixing.gap)


def width_influences(mixing: Mixing, widths: NDArray[np.int64]) -> Floats:
    """Return lemma 4.8's bounds (n,) for n widths: log((p + d) / (p - d)), d = exp(-g width / 2).

    The rarest state has the probability p. A width to the right costs the bound once. A width to the left costs it
    twice, for the width and for the node. It is infinite unless width > 2 log(1/p) / g: else the formula is no bound.
    """
    distance = np.exp(-mixing.gap * widths / 2.0)
    is_valid = (widths > 2.0 * math.log(1.0 / mixing.min_pi) / mixing.gap) & (distance < mixing.min_pi)
    influences = np.full(widths.shape, np.inf)
    influences[is_valid] = np.log((mixing.min_pi + distance[is_valid]) / (mixing.min_pi - distance[is_valid]))
    return influences


def _best_width(
    mixing: Mixing,
    epsilon: float,
    nodes_left: int,
    nodes_right: int,
    empty_scale: float,
    stationary: bool,
    *,
    scale_floor: float = 0.0,
) -> QuiltScale:
    """Return the best quilt of a node by lemma 4.8, whose tables have one entry for all states and nodes."""
    # half of lemma 4.9's length, 4 a*, is more than any best width
    width_count = min(fast_path_length(mixing, epsilon) // 2, _MOST_WIDTHS, max(nodes_left, nodes_right))
    right_table = width_influences(mixing, np.arange(1, max(width_count, 1) + 1)).reshape(-1, 1, 1)
    left_table = right_table if stationary else 2.0 * right_table
    scale, a, b, influence, _ = least_quilt_scale(
        np.zeros((1, 1)), left_table, right_table, nodes_left, nodes_right, empty_scale, epsilon, scale_floor, 0, 0
    )
    card = (a - 1 if a else nodes_left) + (b if b else nodes_right + 1)
    if not a and not b:
        card = 0 if empty_scale == math.inf else round(empty_scale * epsilon)
    return QuiltScale(scale, None, (a or None, b or None), card, influence, 0)
