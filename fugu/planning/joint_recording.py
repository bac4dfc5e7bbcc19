"""Read two or three streams of one device or room on one clock: columns of one file, or files with times.

Files are aligned by their times: a tick is a period of the first file, and ticks that every stream has are kept. No
transition is counted across a missing tick, or across the beginning of a segment in one of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import ValidationError

from fugu.chains.arrays import Floats, Ints
from fugu.contract._document import first_problem
from fugu.contract.chains import JointChains, JointStream, odds_ratio, two_steps
from fugu.contract.discretisers import Discretiser
from fugu.planning.errors import PlanningError
from fugu.planning.question import Question, choose_states
from fugu.planning.states import states_of
from fugu.privacy.chain_class import matrix_rows
from fugu.privacy.chain_model import ChainModel
from fugu.privacy.covering_class import smooth_counts, smooth_pair_counts
from fugu.privacy.transitions import transition_matrix
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import Readings, read_readings

__all__ = ["JointRecording", "Stream", "StreamRule", "joint_class", "marginal", "read_joint", "read_stream"]


def joint_class(
    model: ChainModel, as_fitted: bool, stream_names: Sequence[str], period_seconds: float
) -> Callable[[Sequence[float]], JointChains]:
    """Return the class of a fitted joint chain as a function of the streams' rates.

    A rate is the largest loss of a stream about a tick. If `as_fitted`, the class has the odds ratio of the fitted
    chain; otherwise it covers the recording. A chain of order 2 is always taken as fitted, by the odds ratio of two
    steps.

    Raises:
        PlanningError: there is no such class; one line says what to do instead.
    """
    step_counts = np.array(model.counts, dtype=np.int64)
    if not as_fitted and model.order == 1 and model.chains is None:
        raise PlanningError(f"{model.refused}; --known takes the fitted chain as it is")
    typical_steps = matrix_rows(smooth_counts(step_counts) if model.order == 1 else smooth_pair_counts(step_counts))
    try:
        largest_odds = odds_ratio(typical_steps if model.order == 1 else two_steps(typical_steps, model.shows))
    except ValueError as error:
        raise PlanningError(f"no policy can declare such a joint chain: {error}") from None
    if not as_fitted and model.chains is not None:
        largest_odds = max(model.chains.odds_bound, largest_odds)

    def class_of(rates: Sequence[float]) -> JointChains:
        try:
            return JointChains(
                streams=tuple(
                    JointStream(name=name, states=stream.states, rate=rate)
                    for name, stream, rate in zip(stream_names, model.streams, rates, strict=True)
                ),
                period_us=round(period_seconds * 1_000_000),
                shows=model.shows,
                odds_ratio=largest_odds,
                steps=model.order,
                transition=typical_steps,
            )
        except ValueError as error:
            problem = first_problem(error) if isinstance(error, ValidationError) else error
            raise PlanningError(f"no policy can declare such a joint chain: {problem}") from None

    class_of([1.0] * len(stream_names))
    return class_of


def marginal(model: ChainModel, column: int) -> Floats:
    """The transition matrix (k, k) of a single stream of a joint chain."""
    indicator = np.eye(model.streams[column].states)[[shown_states[column] for shown_states in model.shows]]
    return transition_matrix((indicator.T @ np.array(model.counts, dtype=np.float64) @ indicator).astype(np.int64))


_PERIOD_TOLERANCE = 0.02


class StreamRule(NamedTuple):
    """How one stream's states are formed: by a threshold (a number or "mean"), a baseline in ticks, or as recorded."""

    path: Path
    column: str | None = None
    threshold: float | str | None = None
    baseline: int | None = None


class Stream(NamedTuple):
    """A stream's readings and their (n,) states, -1 for no state; `notes` say how the states were chosen."""

    readings: Readings
    discretiser: Discretiser
    states: Ints
    notes: tuple[str, ...]


class JointRecording(NamedTuple):
    """States (n, streams) of several streams at common ticks; `left_out` counts the longest stream's other ticks."""

    states: Ints
    segments: Ints
    period_seconds: float | None
    streams: tuple[Stream, ...]
    left_out: int


def read_stream(rule: StreamRule, options: ReadOptions) -> Stream:
    """Read a stream, and choose its states as for a plan.

    Raises:
        PlanningError: the readings have no states of this kind.
        FuguError: the file cannot be read.
        QuestionError: the file can be read in more than one way.
    """
    readings = read_readings(rule.path, replace(options, column=rule.column))
    threshold = rule.threshold
    if threshold == "mean":
        if readings.has_names:
            raise PlanningError(f"{readings.source}: column {readings.column} holds names, which have no mean")
        threshold = float(readings.values[readings.present].mean())
    assert not isinstance(threshold, str)
    discretiser, _, *_, notes = choose_states(readings, Question(baseline=rule.baseline, threshold=threshold))
    return Stream(readings, discretiser, states_of(discretiser, readings.values, readings.segments), notes)


def read_joint(rules: Sequence[StreamRule], options: ReadOptions) -> JointRecording:
    """Read streams, and keep the ticks at which all streams have a state.

    Raises:
        PlanningError: the files do not share a clock, or have no ticks in common.
        FuguError: a file cannot be read.
        QuestionError: a file can be read in more than one way.
    """
    streams = tuple(read_stream(rule, options) for rule in rules)
    moments = [stream.readings.moments for stream in streams]
    different_times = {times is not None and times.tobytes() for times in moments}
    if len(different_times) == len({rule.path for rule in rules}) == 1:
        ticks = np.arange(streams[0].states.size)
        common_rows = [ticks] * len(streams)
    else:
        common_rows, ticks = _common_ticks(rules, streams)
    breaks = np.cumsum(np.diff(ticks, prepend=ticks[:1] - 1) != 1)
    states = np.stack([stream.states[rows] for stream, rows in zip(streams, common_rows, strict=True)], axis=1)
    for stream, rows in zip(streams, common_rows, strict=True):
        breaks = breaks + np.cumsum(np.diff(stream.readings.segments[rows], prepend=0) != 0)
    has_states = (states >= 0).all(axis=1)
    segments = (breaks + np.cumsum(~has_states))[has_states]
    most_ticks = max(int((stream.states >= 0).sum()) for stream in streams)
    left_out = max(most_ticks - int(has_states.sum()), 0)
    return JointRecording(states[has_states], segments, streams[0].readings.period_seconds, streams, left_out)


def _common_ticks(rules: Sequence[StreamRule], streams: Sequence[Stream]) -> tuple[list[Ints], Ints]:
    """Return each stream's rows at the ticks that all have, and these ticks, counted by the first stream's clock."""
    clocks, indexed_rows = [], []
    for rule, stream in zip(rules, streams, strict=True):
        moments, period = stream.readings.moments, stream.readings.period_seconds
        if moments is None or period is None:
            raise PlanningError(f"{rule.path.name} has no times: nobody knows which rows belong together")
        if (np.diff(moments) <= 0.0).any():
            raise PlanningError(f"{rule.path.name}: times do not rise: of several people give the columns of one file")
        clocks.append((moments[0], period))
        first_moment, first_period = clocks[0]
        if abs(period / first_period - 1.0) > _PERIOD_TOLERANCE:
            raise PlanningError(
                f"{rules[0].path.name} has a row every {first_period:g} s and {rule.path.name} every {period:g} s: "
                "streams that move together need one clock"
            )
        ticks = np.rint((moments - first_moment) / first_period).astype(np.int64)
        indexed_rows.append(np.unique(ticks, return_index=True))
    common_ticks = reduce(np.intersect1d, (ticks for ticks, _ in indexed_rows))
    if not common_ticks.size:
        raise PlanningError(f"{' and '.join(rule.path.name for rule in rules)} have no ticks in common")
    return [stream_rows[np.searchsorted(ticks, common_ticks)] for ticks, stream_rows in indexed_rows], common_ticks
