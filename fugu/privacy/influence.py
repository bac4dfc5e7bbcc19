"""How far readings influence others: the mechanism of Ghosh and Kleinberg, and the eigengap of a class.

Source: Ghosh, Kleinberg: Inferential Privacy Guarantees for Differentially Private Mechanisms (arXiv 1603.01508). Its
abstract promises a bound by the spectral norm of an influence matrix; the entries and the bound used here are derived
in docs/proofs/published-mechanisms.md, "Influence matrices". Entry (i, j) is half the largest log-ratio between two
distributions of reading i given all others that differ in reading j only. In a chain only neighbours have one.

The approximate Markov quilt mechanism: a scale from two numbers of a class, its eigengap and its rarest state.

Song, Wang, Chaudhuri: Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD 2017), algorithm 4, lemmas 4.8, 4.9 and
C.4. Two things differ from print: the eigengap drops exactly one unit eigenvalue (dropping all of them finds a gap for
a clock, whose past is never forgotten), and widths too small for lemma 4.8 are not used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    "influence_scale",
    "joint_influence_scale",
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


_LONGEST = 400
_LARGEST_NORM = 1.0 - 1e-6


class InfluenceScale(NamedTuple):
    """A Laplace scale, not rounded, for a statistic that one reading changes by at most 1, and the spectral norm."""

    scale: float
    norm: float


class _Influences(NamedTuple):
    """Of the second tick on the first, of either neighbour on a tick between two, of the last but one on the last."""

    first: float
    before: float
    after: float
    last: float


def influence_scale(
    chains: tuple[MarkovChain, ...] | BinaryChains, length: int | None, epsilon: float
) -> InfluenceScale:
    """The scale of the mechanism for a class of chains, against the ignorant and the informed adversary.

    The chains are a finite class, or a stationary interval with q + r < 1. `length` is of the window; `None`: windows
    without an end, each tick in one of them. Raises ChainClassError if the spectral norm or q + r reaches 1.
    """
    cases: list[tuple[_Influences, bool]]
    if not isinstance(chains, BinaryChains):
        cases = [(_of_chain(chain), chain.is_stationary) for chain in chains]
    elif chains.q[0] == chains.q[1] and chains.r[0] == chains.r[1]:
        (q, _), (r, _) = chains.q, chains.r
        cases = [(_of_chain(MarkovChain.stationary([[1.0 - q, q], [r, 1.0 - r]])), True)]
    else:
        cases = [(_of_interval(chains), True)]
    found = [_factor(each, length, stationary=stationary) for each, stationary in cases]
    worst = max(norm for _, norm in found)
    _refuse_strong(worst)
    return InfluenceScale(max(factor for factor, _ in found) / epsilon, worst)


def joint_influence_scale(
    joint: Floats, sensitivities: Sequence[float], secret: Sequence[int], epsilon: float
) -> InfluenceScale:
    """The scale for readings that depend on one another in any pattern; `joint` has an axis for each.

    Each reading alone can change the statistic by its sensitivity; those of `secret` are protected. Raises
    ChainClassError if the spectral norm is not below 1.
    """
    size = joint.ndim
    if not np.all(joint > 0.0):
        _refuse_strong(math.inf)
    matrix = np.zeros((size, size))
    for i in range(size):
        distribution = np.log(joint / joint.sum(axis=i, keepdims=True))
        for j in range(size):
            if i != j:
                most = float((distribution.max(axis=j) - distribution.min(axis=j)).max())
                matrix[i, j] = 0.5 * most * (1.0 + OUTWARD)
    norm = float(np.linalg.norm(matrix, 2))
    _refuse_strong(norm)
    return InfluenceScale(float(_column_sums(matrix, np.array(sensitivities))[list(secret)].max()) / epsilon, norm)


def _refuse_strong(norm: float) -> None:
    if not norm < _LARGEST_NORM:
        told = f"{norm:.4g}" if math.isfinite(norm) else "infinity: something is impossible"
        raise ChainClassError(
            f"not applicable: the spectral norm of its influence matrix must be below 1, and is up to {told}"
        )


def _column_sums(matrix: Floats, weights: Floats) -> Floats:
    """For each t the sum over i of weights[i] Phi[i, t], rounded up."""
    sums, ones = np.linalg.solve(np.eye(len(matrix)) - matrix.T, np.stack([weights, np.ones(len(matrix))], axis=1)).T
    # any s with s (1 - Gamma) >= weights is a bound, so what is left over, times the sums for weights of 1, is added
    left = np.abs(sums - matrix.T @ sums - weights).max() + OUTWARD * sums.max()
    return np.asarray(sums + 2.0 * left * ones)


def influence_matrix(chain: MarkovChain, length: int) -> Floats:
    """The influence matrix of a window: entry (i, j) is that of tick j on tick i, infinite for impossible steps."""
    return _matrix(_of_chain(chain), length)


def _factor(each: _Influences, length: int | None, *, stationary: bool) -> tuple[float, float]:
    """The largest sum of a column of (1 - Gamma)^-1, rounded up, and the norm of Gamma."""
    inside = each.before + each.after
    endless = (1.0 / (1.0 - inside) if inside < 1.0 else math.inf), inside
    if not all(map(math.isfinite, each)):
        return math.inf, math.inf
    if length is not None and length <= _LONGEST:
        matrix = _matrix(each, length)
        norm = float(np.linalg.norm(matrix, 2))
        if norm >= _LARGEST_NORM:
            return min(endless, (math.inf, norm)) if stationary else (math.inf, norm)
        finite = float(_column_sums(matrix, np.ones(length)).max()), norm
        # ticks before and after the window, of which nothing is released, only add to a column
        return min(finite, endless) if stationary else finite
    if stationary:
        return endless
    columns = max(inside, each.before, each.first + each.before, each.after + each.last)
    rows = max(inside, each.first, each.last)
    return (1.0 / (1.0 - columns) if columns < 1.0 else math.inf), max(columns, math.sqrt(columns * rows))


def _matrix(each: _Influences, length: int) -> Floats:
    matrix = np.zeros((length, length))
    for i in range(length):
        if i > 0:
            matrix[i, i - 1] = each.before if i < length - 1 else each.last
        if i < length - 1:
            matrix[i, i + 1] = each.after if i > 0 else each.first
    return matrix


def _of_chain(chain: MarkovChain) -> _Influences:
    step = chain.transition
    if not np.all(step > 0.0):
        return _Influences(math.inf, math.inf, math.inf, math.inf)
    # [a, b, c]: a state after a and before c
    between = step[:, :, None] * step[None, :, :]
    between /= between.sum(axis=1, keepdims=True)
    if chain.initial is None:
        # a start that is all but certain, yet not quite: the distributions' odds are all that is left
        odds = np.log(step)[:, None, :] - np.log(step)[None, :, :]
        first = 0.5 * float((odds.max(axis=2) - odds.min(axis=2)).max())
    elif not np.all(chain.initial > 0.0):
        first = math.inf
    else:
        distribution = chain.initial[:, None] * step
        first = _half_ratio(distribution / distribution.sum(axis=0), 1)
    return _Influences(first, _half_ratio(between, 0), _half_ratio(between, 2), _half_ratio(step, 0))


def _of_interval(chains: BinaryChains) -> _Influences:
    """The largest over a box; each ratio is largest at its least q and r, or where its derivative is 0."""
    if chains.q[1] + chains.r[1] >= 1.0:
        raise ChainClassError("needs chains, not an interval of them, where q + r can reach 1")

    def ratios(q: tuple[float, float], r: float) -> float:
        """Of state 1 between a 0 and what follows, and of state 0 there; q is the rate that leaves this 0."""
        least = q[0]
        other = 1.0 - r
        rare = other * ((1.0 - least) ** 2 + least * r) / ((1.0 - least + other) * least * r)
        worst = min(max(1.0 - r - math.sqrt(r), least), q[1])
        common = (1.0 - worst) * (1.0 - worst + other) / ((1.0 - worst) ** 2 + worst * r)
        return max(rare, common)

    (q, _), (r, _) = chains.q, chains.r
    inner = 0.5 * math.log(max(ratios(chains.q, r), ratios(chains.r, q))) * (1.0 + OUTWARD)
    outer = 0.5 * math.log(max((1.0 - q) / r, (1.0 - r) / q)) * (1.0 + OUTWARD)
    return _Influences(outer, inner, inner, outer)


def _half_ratio(distributions: Floats, axis: int) -> float:
    """Half the largest log-ratio along the axis of the reading that differs; 0 entries have none with one another."""
    return 0.5 * float(np.log(distributions.max(axis=axis) / distributions.min(axis=axis)).max()) * (1.0 + OUTWARD)
