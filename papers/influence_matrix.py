"""Influence matrices: noise for readings that depend on one another weakly; the bound is by a spectral norm.

Source: Ghosh, Kleinberg: Inferential Privacy Guarantees for Differentially Private Mechanisms (arXiv 1603.01508). Its
abstract promises a bound by the spectral norm of an influence matrix; the entries and the bound used here are derived
in docs/proofs/published-mechanisms.md, "Influence matrices". Entry (i, j) is half the largest log-ratio between two
distributions of reading i given all others that differ in reading j only. In a chain only neighbours have one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.chains import BinaryChains
from fugu.contract.losses import OUTWARD
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilts import corner_chains

__all__ = ["influence_matrix", "influence_scale", "joint_influence_scale"]

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
    members = corner_chains(chains)
    if isinstance(chains, BinaryChains) and len(members) > 1:
        cases = [(_of_interval(chains), True)]
    else:
        cases = [(_of_chain(chain), chain.is_stationary) for chain in members]
    factors = [_factor(each, length, stationary=stationary) for each, stationary in cases]
    worst = max(norm for _, norm in factors)
    _refuse_strong(worst)
    return InfluenceScale(max(factor for factor, _ in factors) / epsilon, worst)


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
        size = f"{norm:.4g}" if math.isfinite(norm) else "infinity: something is impossible"
        raise ChainClassError(
            f"not applicable: the spectral norm of its influence matrix must be below 1, and is up to {size}"
        )


def _column_sums(matrix: Floats, weights: Floats) -> Floats:
    """For each t the sum over i of weights[i] Phi[i, t], rounded up."""
    sums, ones = np.linalg.solve(np.eye(len(matrix)) - matrix.T, np.stack([weights, np.ones(len(matrix))], axis=1)).T
    # any s with s (1 - Gamma) >= weights is a bound, so what is left over, times the sums for weights of 1, is added
    residual = np.abs(sums - matrix.T @ sums - weights).max() + OUTWARD * sums.max()
    return np.asarray(sums + 2.0 * residual * ones)


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
    for i in range(1, length):
        matrix[i, i - 1] = each.before if i < length - 1 else each.last
        matrix[i - 1, i] = each.after if i > 1 else each.first
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
