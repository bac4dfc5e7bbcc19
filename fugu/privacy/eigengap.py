"""The approximate Markov quilt mechanism: a scale from two numbers of a class, its eigengap and its rarest state.

Song, Wang, Chaudhuri: Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD 2017), algorithm 4, lemmas 4.8, 4.9 and
C.4. Two things differ from print: the eigengap drops exactly one unit eigenvalue (dropping all of them finds a gap for
a clock, whose past is never forgotten), and widths too small for lemma 4.8 are not used.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats
from fugu.contract.chains import BinaryChains
from fugu.contract.rounding import OUTWARD
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilt_tables import smallest_scale, stationary_distribution_of
from fugu.privacy.quilts import ENDLESS, QuiltScale, corner_chains

__all__ = [
    "Mixing",
    "eigengap",
    "fast_path_length",
    "mixing",
    "mqm_approx",
    "width_influences",
]


_UP = 1.0 + OUTWARD
_LEAST_GAP = 1e-10
_MOST_WIDTHS = 2**22


class Mixing(NamedTuple):
    """The smallest eigengap of a class, and its smallest stationary probability of a state; both rounded down."""

    gap: float
    rarest: float


def mqm_approx(
    chains: tuple[MarkovChain, ...] | BinaryChains,
    length: int | None,
    epsilon: float,
    reversible: bool | None = None,
    *,
    sharp: bool = False,
    stationary: bool = False,
) -> QuiltScale:
    """The scale of MQMApprox for a finite class, or an interval of two-state chains, with any start.

    Its influence is lemma 4.8's bound, its chain is always 0.

    Args:
        length: T, the ticks of the window, or `None` for a stream without end.
        reversible: use the larger eigengap of reversible chains; `None` uses it if all of them are reversible.
        sharp: for reversible chains, use -2 log|lambda_2| itself and not its bound 2 (1 - |lambda_2|).
        stationary: every chain starts stationary, so that the term for the node's own distribution is not needed.

    Raises:
        ChainClassError: no eigengap, no rarest state, a class not reversible or stationary as said, or a stream without
            end and an epsilon that is too small.
    """
    if not 0.0 < epsilon < math.inf or (length is not None and length < 1):
        raise ChainClassError(f"epsilon must be above 0 and a window has at least one tick: {epsilon}, {length}")
    members = corner_chains(chains)
    if stationary and not all(chain.is_stationary for chain in members):
        raise ChainClassError("a chain of the class does not start stationary")
    known = mixing(members, reversible, sharp=sharp)
    trivial = math.inf if length is None else length / epsilon
    middle = _best(known, epsilon, ENDLESS, ENDLESS, trivial, stationary)
    if not middle.scale < math.inf:
        raise ChainClassError("no Markov quilt has an influence below epsilon: give the length of the window")
    # lemma 4.9: on a long window the middle node decides; on a short one a node may do with a single width
    if length is None or length >= fast_path_length(known, epsilon):
        return middle._replace(scale=middle.scale * _UP)
    worst: QuiltScale | None = None
    for node in range((length + 1) // 2, 0, -1):
        for at in {node, length + 1 - node}:
            enough = worst.scale if worst is not None else 0.0
            found = _best(known, epsilon, at - 1, length - at, trivial, stationary, enough=enough)
            if worst is None or found.scale > worst.scale:
                worst = found._replace(node=at)
        if worst is not None and worst.scale >= middle.scale:
            break
    assert worst is not None
    return worst._replace(scale=worst.scale * _UP)


def mixing(chains: tuple[MarkovChain, ...], reversible: bool | None = None, *, sharp: bool = False) -> Mixing:
    """The smallest eigengap and the smallest stationary probability of a class; arguments as for `mqm_approx`."""
    if not chains:
        raise ChainClassError("a class needs at least one chain")
    rarest = min(float(distribution.min()) for distribution in [stationary_distribution_of(chain) for chain in chains])
    if not rarest > 0.0:
        raise ChainClassError("a state dies out: MQMApprox needs a positive stationary probability of every state")
    if reversible is None:
        reversible = all(is_reversible(chain) for chain in chains)
    if sharp and not reversible:
        raise ChainClassError("the sharp eigengap holds for reversible chains only")
    return Mixing(min(eigengap(chain, reversible, sharp=sharp) for chain in chains), rarest * (1.0 - 1e-14))


def eigengap(chain: MarkovChain, reversible: bool = False, *, sharp: bool = False) -> float:
    """The eigengap g: the distribution b ticks on is within exp(-g b / 2) / min(pi) of stationary, relatively.

    `reversible` is 2 (1 - |lambda_2|) of P itself (lemma C.4) instead of the gap of P P* (lemma 4.8); `sharp` is -2
    log|lambda_2| of such a chain. g > 0 is rounded down; ChainClassError if the chain is not reversible, or has none.
    """
    distribution = stationary_distribution_of(chain)
    if not distribution.min() > 0.0:
        raise ChainClassError("a state dies out: there is no eigengap")
    if reversible and not is_reversible(chain):
        raise ChainClassError("the chain is not reversible: pi(x) P(x,y) differs from pi(y) P(y,x)")
    root = np.sqrt(distribution)
    # similar to P; for a reversible chain it is symmetric, and singular values are absolute eigenvalues
    # exactly one unit value belongs to the stationary distribution; any other one belongs to a period or a closed class
    second = float(np.linalg.svd(root[:, None] * chain.transition / root, compute_uv=False)[1]) + 4e-16 * chain.states
    if reversible and sharp:
        gap = -2.0 * math.log(second)
    elif reversible:
        gap = 2.0 * (1.0 - second)
    else:
        gap = 1.0 - second**2
    if gap < _LEAST_GAP:
        raise ChainClassError(
            "the eigengap is 0: a part of the state is handed on without loss for a tick, so that MQMApprox has "
            "no bound; use MQMExact"
        )
    return gap


def is_reversible(chain: MarkovChain) -> bool:
    """True if pi(x) P(x,y) = pi(y) P(y,x) for all x, y, to within their rounding, however rare they are."""
    flow: Floats = stationary_distribution_of(chain)[:, None] * chain.transition
    return bool(np.all(np.abs(flow - flow.T) <= 1e-12 * (flow + flow.T)))


def fast_path_length(known: Mixing, epsilon: float) -> int:
    """Lemma 4.9: from this length on, the middle node decides, by widths of at most half of it."""
    # 1 / tanh(x / 2) is (e^x + 1) / (e^x - 1), here with x = epsilon / 6
    return 8 * 2 * math.ceil(math.log(1.0 / math.tanh(epsilon / 12.0) / known.rarest) / known.gap)


def width_influences(known: Mixing, widths: NDArray[np.int64]) -> Floats:
    """Lemma 4.8's bounds (n,) for n widths: log((p + d) / (p - d)), p the rarest state, d = exp(-g width / 2).

    A width to the right costs it once, one to the left twice, for the width and for the node. inf unless width > 2
    log(1/p) / g: without that the formula is not a bound.
    """
    distance = np.exp(-known.gap * widths / 2.0)
    inside = (widths > 2.0 * math.log(1.0 / known.rarest) / known.gap) & (distance < known.rarest)
    bound = np.full(widths.shape, np.inf)
    bound[inside] = np.log((known.rarest + distance[inside]) / (known.rarest - distance[inside]))
    return bound


def _best(
    known: Mixing,
    epsilon: float,
    nodes_left: int,
    nodes_right: int,
    trivial: float,
    stationary: bool,
    *,
    enough: float = 0.0,
) -> QuiltScale:
    """The best quilt of a node; lemma 4.8 sees neither states nor nodes, so its tables have one entry."""
    # half of lemma 4.9's length, 4 a*, is more than any best width
    count = min(fast_path_length(known, epsilon) // 2, _MOST_WIDTHS, max(nodes_left, nodes_right))
    right = width_influences(known, np.arange(1, max(count, 1) + 1)).reshape(-1, 1, 1)
    left = right if stationary else 2.0 * right
    scale, a, b, e, _ = smallest_scale(
        np.zeros((1, 1)), left, right, nodes_left, nodes_right, trivial, epsilon, enough, 0, 0
    )
    card = (a - 1 if a else nodes_left) + (b if b else nodes_right + 1)
    if not a and not b:
        card = 0 if trivial == math.inf else round(trivial * epsilon)
    return QuiltScale(scale, None, (a or None, b or None), card, e, 0)
