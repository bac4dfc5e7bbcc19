"""From the states of a recording to a fitted chain, of one stream, of several, or of one stream at two ticks.

Given the joint state, streams tell nothing more of each other, so that one chain describes all of them. Its class is
found as for one stream (`covering_class`): transition probabilities of people's recordings change, joint ones too.

Source: docs/proofs/joint-streams.md, "Streams that move together"; the tests are those of `chain_model`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fugu.chains import stationary_distribution
from fugu.chains.arrays import Ints
from fugu.contract.discretisers import Discretiser
from fugu.privacy import chain_model
from fugu.privacy.chain_model import (
    ChainModel,
    Counts,
    JointModel,
    LikelihoodRatio,
    Matrix,
    ModelError,
    StreamStates,
    Stretches,
    likelihood_ratio,
    log_likelihood,
)
from fugu.privacy.covering_class import Covered, covering_class, local_transitions, stretch_lengths

__all__ = ["fit", "fit_joint", "fit_order_two", "joint_states", "matrix_rows"]


_WARNING = (
    "a chain fitted to readings that will be released leaks about them: fit on other data than will be released, "
    "or widen the class of chains"
)


def fit(
    states: NDArray[np.int64],
    segments: NDArray[np.int64],
    *,
    period_seconds: float | None = None,
    source: str = "",
    column: str = "",
    discretiser: Discretiser | None = None,
    missing_state: int | None = None,
    missing_share: float = 0.0,
) -> ChainModel:
    """Fit a chain to a recording.

    States (n,) are in 0..k-1; no transition is counted from one of the segments (n,) to the next. Raises ModelError for
    fewer than two states, or no transition at all.
    """
    k = int(states.max()) + 1 if states.size else 0
    if k < 2 or np.unique(states).size < 2:
        raise ModelError(f"{source}: {states.size} row(s) with fewer than two different states tell nothing of a chain")
    if k > 255:
        raise ModelError(f"{source}: state {k - 1} is above 254, the largest state")
    counts = chain_model.count_transitions(states, segments, k)
    if not counts.sum():
        raise ModelError(f"{source}: no two neighbouring rows, so there is no transition to count")
    covered, refused = _covered(states, segments, k)
    lengths = np.unique(segments, return_counts=True)[1]
    transition = chain_model.transition_matrix(counts)
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
        decimate=1,
        period_seconds=period_seconds,
        counts=count_rows(counts),
        transition=matrix_rows(transition),
        initial=_stationary(transition),
        q=float(transition[0, 1]) if k == 2 else None,
        r=float(transition[1, 0]) if k == 2 else None,
        chains=None if covered is None else covered.chains,
        refused=refused,
        stretches=() if covered is None else stretch_rows(covered),
        order=chain_model.order_test(chain_model.count_triples(states, segments, k)),
        warning=_WARNING,
    )


def _covered(states: NDArray[np.int64], segments: NDArray[np.int64], k: int) -> tuple[Covered | None, str | None]:
    try:
        return covering_class(states, segments, k), None
    except ModelError as error:
        return None, str(error)


def stretch_rows(covered: Covered) -> tuple[Stretches, ...]:
    """Rows about the stretches of each length, as a file holds them."""
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


_MOST = 255
_LEAST_ROWS = 400


def fit_joint(
    states: Ints,
    segments: Ints,
    streams: Sequence[StreamStates],
    *,
    period_seconds: float | None = None,
) -> JointModel:
    """Fit the joint chain of streams to their states (n, streams) at the same ticks; other arguments as for `fit`.

    Raises ModelError for fewer than two states of a stream, no transition, or more joint states than a file holds.
    """
    shows, joint = joint_states(states)
    for one, column in zip(streams, states.T, strict=True):
        if np.unique(column).size < 2:
            raise ModelError(f"{one.name}: fewer than two different states tell nothing of a chain")
    odds: float | None = None
    refused: str | None = None
    lengths: tuple[Stretches, ...] = ()
    try:
        covered = covering_class(joint, segments, len(shows))
        odds, lengths = covered.chains.odds_bound, stretch_rows(covered)
    except ModelError as error:
        seen = "  ".join(f"{x}: {','.join(map(str, row))}" for x, row in enumerate(shows.tolist()))
        refused = f"{error} (joint states {seen})"
    counts = _counts(joint, segments, len(shows))
    return JointModel(
        streams=tuple(streams),
        order=1,
        n=len(states),
        decimate=1,
        period_seconds=period_seconds,
        shows=count_rows(shows),
        counts=count_rows(counts),
        transition=matrix_rows(chain_model.transition_matrix(counts)),
        odds_ratio=odds,
        alone=tuple(_odds(column, segments) for column in states.T),
        refused=refused,
        stretches=lengths,
        independent=independence_test(counts, shows) if len(streams) > 1 else None,
        more=chain_model.order_test(chain_model.count_triples(joint, segments, len(shows))),
        warning=_WARNING,
    )


def fit_order_two(
    states: Ints, segments: Ints, stream: StreamStates, *, period_seconds: float | None = None
) -> JointModel:
    """Fit a chain of order 2 to one stream (n,), whose joint states are all pairs of one state and the next.

    No class covers its recording: its file holds the chain alone, and a policy takes the odds ratio of two of its
    steps. Raises ModelError for fewer than two states or too many, or no two transitions side by side.
    """
    k = stream.states
    if k * k > _MOST:
        raise ModelError(f"{stream.name}: {k} states have {k * k} pairs; at most {_MOST} will do: take fewer states")
    if np.unique(states).size < 2:
        raise ModelError(f"{stream.name}: fewer than two different states tell nothing of a chain")
    inside = segments[1:] == segments[:-1]
    joint = (states[:-1] * k + states[1:])[inside]
    segments = segments[1:][inside]
    counts = _counts(joint, segments, k * k)
    refused = "a chain of order 2 is taken as it is, by the odds ratio of two of its steps"
    if joint.size >= _LEAST_ROWS:
        lengths = stretch_lengths(joint.size)
        transitions = local_transitions(joint, segments, k * k, lengths)
        if changed := [one.length for one in transitions if one.changes.any()]:
            refused += f", and it changes over stretches of {changed[0]} ticks"
    return JointModel(
        streams=(stream,),
        order=2,
        n=int(joint.size),
        decimate=1,
        period_seconds=period_seconds,
        shows=tuple((state,) for state in range(k)) * k,
        counts=count_rows(counts),
        transition=matrix_rows(chain_model.transition_matrix(counts)),
        odds_ratio=None,
        alone=(None,),
        refused=refused,
        stretches=(),
        independent=None,
        more=chain_model.order_test(chain_model.count_triples(joint, segments, k * k)),
        warning=_WARNING,
    )


def independence_test(counts: Ints, shows: Ints) -> LikelihoodRatio:
    """Test independent streams, each with its own probabilities, against the joint chain of `counts` (K, K)."""
    gain, degrees = log_likelihood(counts), 0
    outcomes = np.ones(len(counts))  # of each joint state, if streams were independent
    for column in shows.T:
        size = int(column.max()) + 1
        alone = np.zeros((size, size), dtype=np.int64)
        np.add.at(alone, (column[:, None], column[None, :]), counts)
        gain -= log_likelihood(alone)
        reached = (alone > 0).sum(axis=1)
        degrees -= int(np.maximum(reached - 1, 0).sum())
        outcomes *= reached[column]
    degrees += int((outcomes - 1.0)[counts.sum(axis=1) > 0].sum())
    return likelihood_ratio(gain, max(degrees, 0), int(counts.sum()))


def joint_states(states: Ints) -> tuple[Ints, Ints]:
    """The different rows (K, streams) of states, and which of them each tick has, (n,).

    Raises ModelError for too many, or fewer than two ticks.
    """
    if len(states) < 2:
        raise ModelError("no two neighbouring rows, so there is no transition to count")
    shows, joint = np.unique(states, axis=0, return_inverse=True)
    if len(shows) > _MOST:
        raise ModelError(f"there are {len(shows)} joint states; at most {_MOST} are allowed: take fewer states")
    return shows, joint.reshape(-1).astype(np.int64)


def _odds(states: Ints, segments: Ints) -> float | None:
    try:
        return covering_class(states, segments, int(states.max()) + 1).chains.odds_bound
    except ModelError:
        return None


def _counts(joint: Ints, segments: Ints, size: int) -> Ints:
    counts = chain_model.count_transitions(joint, segments, size)
    if not counts.sum():
        raise ModelError("no two neighbouring rows, so there is no transition to count")
    return counts
