"""Filtering: what the symbols up to a tick say about the state at that tick (the forward pass)."""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel
from fugu.chains.model import (
    Problem,
    check_distribution,
    check_transition,
    impossible,
    pose,
    step_tables,
)
from fugu.chains.steps import (
    LIFT,
    condition_row,
    first,
    fits_registers,
    lift,
    lift_row,
    normalise_product,
    predict_row,
)
from fugu.chains.vectors import Message, advance, scaled, store

__all__ = ["Filtered", "condition", "filter_beliefs", "filter_wide", "predict", "run_filter"]

LOG_LIFT = log(LIFT)


class Filtered(NamedTuple):
    """Filtered beliefs (n, k), row t = Pr(X_t | symbols up to t), and log-likelihoods (sequences,), in nats."""

    beliefs: Floats
    log_likelihoods: Floats

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood of all sequences together, in nats."""
        return float(self.log_likelihoods.sum())


@kernel
def _filter_small(
    symbols: Ints, starts: Ints, initial: Floats, rows: Floats, table: Floats, unit: Message, beliefs: Floats,
    log_likelihoods: Floats,
) -> int:  # fmt: skip
    """Filter sequences with k = 2, 3 or 4; returns the position of impossible evidence, or -1."""
    for sequence in range(starts.size - 1):
        low, high = starts[sequence], starts[sequence + 1]
        if low == high:
            log_likelihoods[sequence] = 0.0
            continue
        a, mass, lifts = lift(first(initial, sequence, rows, symbols[low], unit))
        if mass == 0.0:
            return int(low)
        store(beliefs, low, scaled(a, 1.0 / mass))
        for t in range(low + 1, high):
            a, mass, more = lift(advance(a, table, symbols, t))
            lifts += more
            if mass == 0.0:
                return int(t)
            store(beliefs, t, scaled(a, 1.0 / mass))
        log_likelihoods[sequence] = np.log(mass) - lifts * LOG_LIFT
    return -1


@kernel
def filter_wide(
    symbols: Ints, starts: Ints, initial: Floats, rows: Floats, transition: Floats, beliefs: Floats,
    log_likelihoods: Floats, smooth: bool,
) -> int:  # fmt: skip
    """Filter sequences with any k, or smooth them, `beliefs` (n, k) being backward messages; -1, or a position."""
    k = transition.shape[0]
    work = np.empty((2, k))
    for sequence in range(starts.size - 1):
        log_likelihoods[sequence] = 0.0
        now, mass, lifts = 0, 1.0, 0
        for t in range(starts[sequence], starts[sequence + 1]):
            if t == starts[sequence]:
                for j in range(k):
                    work[now, j] = initial[sequence, j]
            else:
                predict_row(work, now, 1 - now, transition)
                now = 1 - now
            mass, more = lift_row(work, now, condition_row(work, now, rows, symbols[t]))
            lifts += more
            if mass == 0.0:
                return int(t)
            if not smooth:
                for j in range(k):
                    beliefs[t, j] = work[now, j] / mass
            elif not normalise_product(beliefs, t, work, now):
                return int(t)
        log_likelihoods[sequence] = np.log(mass) - lifts * LOG_LIFT
    return -1


def run_filter(problem: Problem) -> Filtered:
    """Filter a checked problem (what `filter_beliefs` and the learner share).

    Raises:
        ValueError: the symbols have probability zero.
    """
    k = problem.transition.shape[0]
    beliefs = np.empty((problem.symbols.size, k))
    logs = np.empty(problem.starts.size - 1)
    given = (problem.symbols, problem.starts, problem.initial, problem.rows)
    if fits_registers(k):
        bad = _filter_small(*given, step_tables(problem)[0], (1.0,) * k, beliefs, logs)
    else:
        bad = filter_wide(*given, problem.transition, beliefs, logs, False)
    if bad >= 0:
        raise impossible(bad)
    return Filtered(beliefs, logs)


def filter_beliefs(
    symbols: ArrayLike,
    initial: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
) -> Filtered:
    """Filter one or many sequences of symbols.

    Args:
        symbols: (n,) integers in -1..m-1, -1 for an unobserved tick; sequences one after the other.
        initial: (k,) distribution of the first tick, or (sequences, k).
        transition: (k, k) row-stochastic.
        emission: (k, m), Pr(symbol | state).
        lengths: (sequences,) ticks in each sequence; None for a single one.

    Returns:
        Beliefs (n, k) and log-likelihoods (sequences,), in nats.

    Raises:
        ValueError: bad shapes or distributions, or symbols of probability zero.

    Source: the forward recursion (Rabiner 1989, section III), rescaled by powers of two only.
    """
    return run_filter(pose(symbols, initial, transition, emission, lengths))


def predict(belief: ArrayLike, transition: ArrayLike, ticks: int = 1) -> Floats:
    """Carry beliefs over unobserved ticks.

    Args:
        belief: (..., k) distributions of the state now.
        transition: (k, k) row-stochastic.
        ticks: how many ticks to go on, at least 0.

    Returns:
        (..., k) distributions of the state `ticks` ticks later.

    Raises:
        ValueError: bad shapes or distributions, or a negative number of ticks.
    """
    matrix = check_transition(transition)
    distribution = check_distribution(belief, "belief", matrix.shape[0])
    if ticks < 0:
        raise ValueError(f"cannot predict {ticks} ticks ahead; ticks must be at least 0")
    later = distribution @ np.linalg.matrix_power(matrix, ticks)
    return np.asarray(later / later.sum(axis=-1, keepdims=True), dtype=np.float64)


def condition(belief: ArrayLike, likelihood: ArrayLike) -> tuple[Floats, float]:
    """Condition a belief on one observation.

    Args:
        belief: (k,) distribution of the state.
        likelihood: (k,) Pr(observation | state), for instance a column of the emission table.

    Returns:
        (k,) conditioned distribution, and Pr(observation) under `belief`.

    Raises:
        ValueError: shapes differ, or the observation has probability zero.
    """
    distribution = check_distribution(belief, "belief")
    weights = np.asarray(likelihood, dtype=np.float64)
    if distribution.ndim != 1 or weights.shape != distribution.shape:
        raise ValueError(f"belief {distribution.shape} and likelihood {weights.shape} must be vectors of one length")
    joint = distribution * weights
    evidence = float(joint.sum())
    if not evidence > 0.0:
        raise ValueError("the observation has probability zero under this belief")
    return joint / evidence, evidence
