"""Fit a chain to the states of a recording: of one stream, of several, or of one stream at two ticks.

Given the joint state, streams tell nothing more of each other, so that one chain describes all of them. Its class is
found as for one stream (`covering_class`), as joint transition probabilities change over time, too.

Source: docs/proofs/joint-streams.md, "Streams that move together"; the tests are those of `chain_model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fugu.chains.arrays import Ints
from fugu.privacy.chain_class import ChainClassError, matrix_rows
from fugu.privacy.chain_model import ChainModel, Counts, StreamStates, Stretches, shown_states
from fugu.privacy.covering_class import CoveringClass, covering_class, local_transitions, stretch_lengths
from fugu.privacy.transitions import count_transitions, count_triples, order_test

__all__ = ["fit", "joint_states"]


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
    """Fit a chain to the states (n, streams) of streams at the same ticks, or a chain of order 2 to one stream.

    Transitions between the segments (n,) are not counted. No class covers a recording of order 2: its file holds the
    chain alone, and a policy takes the odds ratio of two of its steps.

    Raises ChainClassError for fewer than two states of a stream, no transition, or more joint states than a file holds.
    """
    for stream, column in zip(streams, states.T, strict=True):
        if np.unique(column).size < 2:
            raise ChainClassError(
                f"{stream.source}: column {stream.column} has {len(column)} row(s) with fewer than two different "
                "states, which tell nothing of a chain"
            )
    if order == 2:
        segments, joint_rows, shows = _state_pairs(states[:, 0], segments, streams[0])
    else:
        shows, joint_rows = joint_states(states, streams)
    k = len(shows)
    counts = count_transitions(joint_rows, segments, k)
    if not counts.sum():
        source_names = " and ".join(dict.fromkeys(stream.source for stream in streams))
        raise ChainClassError(f"{source_names}: no two neighbouring rows, so there is no transition to count")
    covering, refusal = _cover(joint_rows, segments, k) if order == 1 else (None, _refusal(joint_rows, segments, k))
    if covering is None and len(streams) > 1:
        state_words = "  ".join(f"{x}: {','.join(map(str, row))}" for x, row in enumerate(shows))
        refusal = f"{refusal} (joint states {state_words})"
    return ChainModel(
        streams=tuple(streams),
        order=order,
        longest_segment=int(np.unique(segments, return_counts=True)[1].max()),
        period_seconds=period_seconds,
        shows=shows,
        counts=matrix_rows(counts),
        chains=None if covering is None else covering.chains,
        refused=refusal,
        alone=tuple(_odds_bound(column, segments) for column in states.T) if len(streams) > 1 else (),
        stretches=None if covering is None else _stretches(covering),
        more=order_test(count_triples(joint_rows, segments, k)),
        warning=_WARNING,
    )


def joint_states(states: Ints, streams: Sequence[StreamStates]) -> tuple[Counts, Ints]:
    """Return the states of the streams in each joint state, and the joint state (n,) of each row.

    `states` are (n, streams). Raises ChainClassError for too many joint states.
    """
    if len(streams) == 1:
        return shown_states(streams[0].states, 1), states[:, 0]
    rows, state_indices = np.unique(states, axis=0, return_inverse=True)
    if len(rows) > _MOST:
        raise ChainClassError(f"there are {len(rows)} joint states; at most {_MOST} are allowed: take fewer states")
    return matrix_rows(rows), state_indices.reshape(-1).astype(np.int64)


def _state_pairs(states: Ints, segments: Ints, stream: StreamStates) -> tuple[Ints, Ints, Counts]:
    """Return segments and states of the chain of neighbouring states' pairs, and the state that each pair shows."""
    k = stream.states
    if k * k > _MOST:
        raise ChainClassError(f"{stream.name}: {k} states have {k * k} pairs; at most {_MOST} will do: take fewer")
    same_segment = segments[1:] == segments[:-1]
    return segments[1:][same_segment], (states[:-1] * k + states[1:])[same_segment], shown_states(k, 2)


def _refusal(joint_rows: Ints, segments: Ints, state_count: int) -> str:
    """Return the reason why a chain of order 2 has no class, with stretches over which it changes."""
    refusal = "a chain of order 2 is taken as it is, by the odds ratio of two of its steps"
    if joint_rows.size >= _LEAST_ROWS:
        transitions = local_transitions(joint_rows, segments, state_count, stretch_lengths(joint_rows.size))
        if changed_lengths := [transition.length for transition in transitions if transition.changes.any()]:
            refusal += f", and it changes over stretches of {changed_lengths[0]} ticks"
    return refusal


def _cover(states: Ints, segments: Ints, k: int) -> tuple[CoveringClass | None, str | None]:
    try:
        return covering_class(states, segments, k), None
    except ChainClassError as error:
        return None, str(error)


def _odds_bound(states: Ints, segments: Ints) -> float | None:
    covered, _ = _cover(states, segments, int(states.max()) + 1)
    return None if covered is None else covered.chains.odds_bound


def _stretches(covering: CoveringClass) -> Stretches:
    lengths = covering.lengths
    return Stretches(shortest=lengths[0].length, longest=lengths[-1].length, covered=covering.share())
