"""From the states of a recording to a fitted chain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gateway.chain import stationary_law
from gateway.privacy import model_fit
from gateway.privacy.chain_model import (
    WARNING,
    ChainModel,
    Counts,
    LikelihoodRatio,
    Matrix,
    ModelError,
    Stay,
    interval_cells,
)

__all__ = ["fit"]


def fit(
    states: NDArray[np.int64],
    segments: NDArray[np.int64],
    *,
    decimate: int = 1,
    period_seconds: float | None = None,
    source: str = "",
    column: str = "",
    threshold: float | None = None,
    missing_state: int | None = None,
    missing_share: float = 0.0,
    confidences: tuple[float, ...] = (0.9, 0.95, 0.99, 0.999),
) -> ChainModel:
    """Fit a chain to a recording.

    Args:
        states: (n,) states in 0..k-1.
        segments: (n,) segment numbers; no transition is counted from one segment to the next.
        decimate: D >= 1, keep every D-th row of each segment.
        period_seconds: of the recording, before decimation.
        source, column, threshold, missing_state, missing_share: noted in the file.
        confidences: levels of the intervals in the file.

    Raises:
        ModelError: fewer than two states, or no transition at all.
    """
    states, segments = model_fit.decimate(states, segments, decimate)
    k = int(states.max()) + 1 if states.size else 0
    if k < 2 or np.unique(states).size < 2:
        raise ModelError(f"{source}: {states.size} row(s) with fewer than two different states tell nothing of a chain")
    if k > 255:
        raise ModelError(f"{source}: state {k - 1} is above 254, the largest state")
    counts = model_fit.count_transitions(states, segments, k)
    if not counts.sum():
        raise ModelError(f"{source}: no two neighbouring rows, so there is no transition to count")
    middle = states.size // 2
    halves = [model_fit.count_transitions(states[part], segments[part], k) for part in (np.s_[:middle], np.s_[middle:])]
    transition = model_fit.transition_matrix(counts)
    return ChainModel(
        source=source,
        column=column,
        threshold=threshold,
        states=k,
        missing_state=missing_state,
        missing_share=missing_share,
        n=int(states.size),
        decimate=decimate,
        period_seconds=None if period_seconds is None else period_seconds * decimate,
        counts=_counts(counts),
        halves=(_counts(halves[0]), _counts(halves[1])),
        transition=_matrix(transition),
        initial=_stationary(transition),
        q=float(transition[0, 1]) if k == 2 else None,
        r=float(transition[1, 0]) if k == 2 else None,
        intervals=tuple(interval_cells(counts, confidence) for confidence in confidences),
        homogeneity=LikelihoodRatio(**model_fit.homogeneity_test(halves)._asdict()),
        order=LikelihoodRatio(**model_fit.order_test(model_fit.count_triples(states, segments, k))._asdict()),
        sojourns=tuple(Stay(**stay._asdict()) for stay in model_fit.sojourns(states, segments, counts)),
        warning=WARNING,
    )


def _stationary(transition: NDArray[np.float64]) -> tuple[float, ...] | None:
    try:
        return tuple(float(p) for p in stationary_law(transition))
    except ValueError:
        return None


def _counts(counts: NDArray[np.int64]) -> Counts:
    return tuple(tuple(int(n) for n in row) for row in counts)


def _matrix(values: NDArray[np.float64]) -> Matrix:
    return tuple(tuple(float(p) for p in row) for row in values)
