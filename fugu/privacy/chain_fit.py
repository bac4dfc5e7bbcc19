"""From the states of a recording to a fitted chain: of one stream, of several, or of one stream at two ticks.

Given the joint state, streams tell nothing more of each other, so that one chain describes all of them. Its class is
found as for one stream (`covering_class`): transition probabilities of people's recordings change, joint ones too.

Source: docs/proofs/joint-streams.md, "Streams that move together"; the tests are those of `chain_model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fugu.chains import stationary_distribution
from fugu.chains.arrays import Floats, Ints
from fugu.privacy.chain_model import ChainModel, Counts, Matrix, ModelError, StreamStates, Stretches, shown_states
from fugu.privacy.covering_class import Covered, covering_class, local_transitions, stretch_lengths
from fugu.privacy.transitions import (
    LikelihoodRatio,
    count_transitions,
    count_triples,
    likelihood_ratio,
    log_likelihood,
    order_test,
    transition_matrix,
)

__all__ = ["fit", "independence_test", "joint_states", "matrix_rows"]


_WARNING = (
    "a chain fitted to readings that will be released leaks about them: fit on other data than will be released, "
    "or widen the class of chains"
)
_MOST = 255
_LEAST_ROWS = 400


def fit(
    states: Ints,
    segments: Ints,
    streams: Sequence[StreamStates],
    *,
    order: Literal[1, 2] = 1,
    period_seconds: float | None = None,
) -> ChainModel:
    """Fit one chain to the states (n, streams) of streams at the same ticks, or one of order 2 to those of one stream.

    No transition is counted from one of the segments (n,) to the next. No class covers a recording of order 2: its
    file holds the chain alone, and a policy takes the odds ratio of two of its steps.

    Raises ModelError for fewer than two states of a stream, no transition, or more joint states than a file holds.
    """
    for one, column in zip(streams, states.T, strict=True):
        if np.unique(column).size < 2:
            raise ModelError(
                f"{one.source}: column {one.column} has {len(column)} row(s) with fewer than two different states, "
                "which tell nothing of a chain"
            )
    if order == 2:
        segments, joint, shows = _pairs(states[:, 0], segments, streams[0])
    else:
        shows, joint = joint_states(states, streams)
    size = len(shows)
    counts = count_transitions(joint, segments, size)
    if not counts.sum():
        names = " and ".join(dict.fromkeys(one.source for one in streams))
        raise ModelError(f"{names}: no two neighbouring rows, so there is no transition to count")
    covered, refused = _covered(joint, segments, size) if order == 1 else (None, _order_two(joint, segments, size))
    if covered is None and len(streams) > 1:
        seen = "  ".join(f"{x}: {','.join(map(str, row))}" for x, row in enumerate(shows))
        refused = f"{refused} (joint states {seen})"
    lengths = np.unique(segments, return_counts=True)[1]
    transition = transition_matrix(counts)
    return ChainModel(
        streams=tuple(streams),
        order=order,
        n=int(joint.size),
        segments=lengths.size,
        longest_segment=int(lengths.max()),
        period_seconds=period_seconds,
        shows=shows,
        counts=_count_rows(counts),
        transition=matrix_rows(transition),
        initial=_stationary(transition),
        chains=None if covered is None else covered.chains,
        refused=refused,
        alone=tuple(_odds(column, segments) for column in states.T) if len(streams) > 1 else (),
        stretches=() if covered is None else _stretch_rows(covered),
        independent=independence_test(counts, np.array(shows)) if len(streams) > 1 else None,
        more=order_test(count_triples(joint, segments, size)),
        warning=_WARNING,
    )


def joint_states(states: Ints, streams: Sequence[StreamStates]) -> tuple[Counts, Ints]:
    """The states of the chain of streams, by those of each, and (n,) which of them each row of (n, streams) has.

    Raises ModelError for too many.
    """
    if len(streams) == 1:
        return shown_states(streams[0].states, 1), states[:, 0]
    shows, joint = np.unique(states, axis=0, return_inverse=True)
    if len(shows) > _MOST:
        raise ModelError(f"there are {len(shows)} joint states; at most {_MOST} are allowed: take fewer states")
    return _count_rows(shows), joint.reshape(-1).astype(np.int64)


def _pairs(states: Ints, segments: Ints, stream: StreamStates) -> tuple[Ints, Ints, Counts]:
    """Segments and states of the chain of a state and the next, and what these show."""
    k = stream.states
    if k * k > _MOST:
        raise ModelError(f"{stream.name}: {k} states have {k * k} pairs; at most {_MOST} will do: take fewer states")
    inside = segments[1:] == segments[:-1]
    return segments[1:][inside], (states[:-1] * k + states[1:])[inside], shown_states(k, 2)


def _order_two(joint: Ints, segments: Ints, size: int) -> str:
    """Why a chain of order 2 has no class, and whether it changes."""
    refused = "a chain of order 2 is taken as it is, by the odds ratio of two of its steps"
    if joint.size >= _LEAST_ROWS:
        transitions = local_transitions(joint, segments, size, stretch_lengths(joint.size))
        if changed := [one.length for one in transitions if one.changes.any()]:
            refused += f", and it changes over stretches of {changed[0]} ticks"
    return refused


def _covered(states: Ints, segments: Ints, k: int) -> tuple[Covered | None, str | None]:
    try:
        return covering_class(states, segments, k), None
    except ModelError as error:
        return None, str(error)


def _odds(states: Ints, segments: Ints) -> float | None:
    covered, _ = _covered(states, segments, int(states.max()) + 1)
    return None if covered is None else covered.chains.odds_bound


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


def _stretch_rows(covered: Covered) -> tuple[Stretches, ...]:
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


def _stationary(transition: Floats) -> tuple[float, ...] | None:
    try:
        return tuple(float(p) for p in stationary_distribution(transition))
    except ValueError:
        return None


def _count_rows(counts: Ints) -> Counts:
    """Whole numbers (n, m), as a file holds them."""
    return tuple(tuple(int(n) for n in row) for row in counts)


def matrix_rows(values: Floats) -> Matrix:
    """Probabilities (n, m), as a file holds them."""
    return tuple(tuple(float(p) for p in row) for row in values)
