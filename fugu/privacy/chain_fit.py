"""From the states of a recording to a fitted chain."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fugu.chains import stationary_distribution
from fugu.contract.discretisers import Discretiser
from fugu.privacy import model_fit
from fugu.privacy.chain_model import (
    WARNING,
    ChainModel,
    Counts,
    LikelihoodRatio,
    Matrix,
    ModelError,
    SlowRegime,
    Stay,
    Stretches,
    interval_cells,
)
from fugu.privacy.covering_class import Covered, covering_class

__all__ = ["count_rows", "fit", "matrix_rows", "regime_rows", "stretch_rows"]


def fit(
    states: NDArray[np.int64],
    segments: NDArray[np.int64],
    *,
    decimate: int = 1,
    period_seconds: float | None = None,
    source: str = "",
    column: str = "",
    discretiser: Discretiser | None = None,
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
        source, column, discretiser, missing_state, missing_share: noted in the file.
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
    covered, refused = _covered(states, segments, k)
    lengths = np.unique(segments, return_counts=True)[1]
    transition = model_fit.transition_matrix(counts)
    return ChainModel(
        source=source,
        column=column,
        discretiser=discretiser,
        states=k,
        missing_state=missing_state,
        missing_share=missing_share,
        n=int(states.size),
        segments=lengths.size,
        longest_segment=int(lengths.max()),
        decimate=decimate,
        period_seconds=None if period_seconds is None else period_seconds * decimate,
        counts=count_rows(counts),
        transition=matrix_rows(transition),
        initial=_stationary(transition),
        q=float(transition[0, 1]) if k == 2 else None,
        r=float(transition[1, 0]) if k == 2 else None,
        intervals=tuple(interval_cells(counts, confidence) for confidence in confidences),
        chains=None if covered is None else covered.chains,
        refused=refused,
        stretches=() if covered is None else stretch_rows(covered),
        regimes=() if covered is None else regime_rows(covered),
        order=LikelihoodRatio(**model_fit.order_test(model_fit.count_triples(states, segments, k))._asdict()),
        sojourns=tuple(Stay(**stay._asdict()) for stay in model_fit.sojourns(states, segments, counts)),
        warning=WARNING,
    )


def _covered(states: NDArray[np.int64], segments: NDArray[np.int64], k: int) -> tuple[Covered | None, str | None]:
    try:
        return covering_class(states, segments, k), None
    except ModelError as error:
        return None, str(error)


def stretch_rows(covered: Covered) -> tuple[Stretches, ...]:
    """What the stretches of each length show, as a file holds it."""
    return tuple(
        Stretches(
            ticks=length.transitions.length,
            stretches=len(length.transitions.counts),
            odds_ratio=length.odds_ratio,
            covered=covered.share(length),
            dispersion=tuple(tuple(float(d) for d in row) for row in length.transitions.dispersion),
            changes=length.changes,
        )
        for length in covered.lengths
    )


def regime_rows(covered: Covered) -> tuple[SlowRegime, ...]:
    """The regimes, as a file holds them."""
    return tuple(
        SlowRegime(
            share=min(regime.share, 1.0),
            ticks=regime.ticks if math.isfinite(regime.ticks) and regime.ticks > 0.0 else None,
            transition=matrix_rows(regime.transition),
        )
        for regime in covered.regimes
    )


def _stationary(transition: NDArray[np.float64]) -> tuple[float, ...] | None:
    try:
        return tuple(float(p) for p in stationary_distribution(transition))
    except ValueError:
        return None


def count_rows(counts: NDArray[np.int64]) -> Counts:
    """Whole numbers (n, m), as a file holds them."""
    return tuple(tuple(int(n) for n in row) for row in counts)


def matrix_rows(values: NDArray[np.float64]) -> Matrix:
    """Probabilities (n, m), as a file holds them."""
    return tuple(tuple(float(p) for p in row) for row in values)
