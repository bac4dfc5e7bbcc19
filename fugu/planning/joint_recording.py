"""Read two or three streams of one device or room, on one clock: columns of one file, or files with times.

Files are put side by side by their times: a tick is a period of the first, and those are kept that every stream has.
Wherever a tick is left out, and wherever one of the files begins a segment, no transition is counted across.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import ValidationError

from fugu.chains.arrays import Floats, Ints
from fugu.contract._document import first_problem
from fugu.contract.chains import JointChains, odds_ratio, two_steps
from fugu.contract.class_of_chains import Shown
from fugu.contract.discretisers import Discretiser
from fugu.planning.errors import PlanningError
from fugu.planning.question import Question, choose_states
from fugu.planning.states import states_of
from fugu.privacy.chain_fit import matrix_rows
from fugu.privacy.chain_model import ChainModel
from fugu.privacy.covering_class import smoothed, smoothed_pairs
from fugu.privacy.transitions import transition_matrix
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import Readings, read_readings

__all__ = ["JointRecording", "Stream", "StreamRule", "joint_class", "marginal", "read_joint", "read_stream"]


_US = 1_000_000


def joint_class(
    model: ChainModel, is_known: bool, names: Sequence[str], period_seconds: float
) -> Callable[[Sequence[float]], JointChains]:
    """The class of a fitted joint chain, as a function of what each of its streams may tell of a tick.

    It has the odds ratio of the chain as it is if `is_known`, and covers the recording otherwise. One of order 2 is
    always taken as it is, by the odds ratio of two steps.

    Raises:
        PlanningError: there is no such class; one line that says what else there is.
    """
    counts = np.array(model.counts, dtype=np.int64)
    if not is_known and model.order == 1 and model.chains is None:
        raise PlanningError(f"{model.refused}; --known takes the fitted chain as it is")
    typical = matrix_rows(smoothed(counts) if model.order == 1 else smoothed_pairs(counts))
    try:
        odds = odds_ratio(typical if model.order == 1 else two_steps(typical, model.shows))
    except ValueError as error:
        raise PlanningError(f"no policy can declare such a joint chain: {error}") from None
    if not is_known and model.chains is not None:
        odds = max(model.chains.odds_bound, odds)

    def class_of(rates: Sequence[float]) -> JointChains:
        try:
            return JointChains(
                streams=tuple(
                    Shown(name=name, states=stream.states, rate=rate)
                    for name, stream, rate in zip(names, model.streams, rates, strict=True)
                ),
                period_us=round(period_seconds * _US),
                shows=model.shows,
                odds_ratio=odds,
                steps=model.order,
                transition=typical,
            )
        except ValueError as error:
            problem = first_problem(error) if isinstance(error, ValidationError) else error
            raise PlanningError(f"no policy can declare such a joint chain: {problem}") from None

    class_of([1.0] * len(names))
    return class_of


def marginal(model: ChainModel, column: int) -> Floats:
    """How one stream moves by itself, (k, k), as the joint chain has it."""
    own_states = np.eye(model.streams[column].states)[[row[column] for row in model.shows]]
    return transition_matrix((own_states.T @ np.array(model.counts, dtype=np.float64) @ own_states).astype(np.int64))


_ALIKE = 0.02


class StreamRule(NamedTuple):
    """How the states of one stream come about: a number or "mean", or the ticks of a running mean, else as found."""

    path: Path
    column: str | None = None
    threshold: float | str | None = None
    baseline: int | None = None


class Stream(NamedTuple):
    """The readings of a stream, and their (n,) states, -1 where there is none; `notes` say how these were chosen."""

    readings: Readings
    discretiser: Discretiser
    states: Ints
    notes: tuple[str, ...]


class JointRecording(NamedTuple):
    """(n, streams) states of several streams at the same ticks; `left_out` are the longest one's other ticks."""

    states: Ints
    segments: Ints
    period_seconds: float | None
    streams: tuple[Stream, ...]
    left_out: int


def read_stream(rule: StreamRule, options: ReadOptions) -> Stream:
    """Read the states of a stream, chosen as for a plan.

    Raises:
        PlanningError: it has no states, or no such states.
        FuguError: it cannot be read.
        QuestionError: it can be read in more than one way.
    """
    readings = read_readings(rule.path, replace(options, column=rule.column))
    threshold = rule.threshold
    if threshold == "mean":
        if readings.named:
            raise PlanningError(f"{readings.source}: column {readings.column} holds names, which have no mean")
        threshold = float(readings.values[readings.present].mean())
    assert not isinstance(threshold, str)
    discretiser, _, *_, notes = choose_states(readings, Question(baseline=rule.baseline, threshold=threshold))
    return Stream(readings, discretiser, states_of(discretiser, readings.values, readings.segments), notes)


def read_joint(rules: Sequence[StreamRule], options: ReadOptions) -> JointRecording:
    """Read streams, and keep the ticks at which all of them have a state.

    Raises:
        PlanningError: the files do not have one clock, or no ticks in common.
        FuguError: a file cannot be read.
        QuestionError: a file can be read in more than one way.
    """
    streams = tuple(read_stream(rule, options) for rule in rules)
    first = streams[0].readings.moments
    if len({rule.path for rule in rules}) == 1 and all(_same(stream.readings.moments, first) for stream in streams):
        rows = [np.arange(streams[0].states.size)] * len(streams)
        breaks = np.zeros(streams[0].states.size, dtype=np.int64)
    else:
        rows, ticks = _common(rules, streams)
        breaks = np.cumsum(np.diff(ticks, prepend=ticks[:1] - 1) != 1)
    states = np.stack([stream.states[row] for stream, row in zip(streams, rows, strict=True)], axis=1)
    for stream, row in zip(streams, rows, strict=True):
        breaks = breaks + np.cumsum(np.diff(stream.readings.segments[row], prepend=0) != 0)
    selected = (states >= 0).all(axis=1)
    segments = (breaks + np.cumsum(~selected))[selected]
    longest = max(int((stream.states >= 0).sum()) for stream in streams)
    left_out = max(longest - int(selected.sum()), 0)
    return JointRecording(states[selected], segments, streams[0].readings.period_seconds, streams, left_out)


def _same(moments: Floats | None, others: Floats | None) -> bool:
    if moments is None or others is None:
        return moments is others
    return np.array_equal(moments, others)


def _common(rules: Sequence[StreamRule], streams: Sequence[Stream]) -> tuple[list[Ints], Ints]:
    periods, starts = [], []
    readings = [stream.readings for stream in streams]
    for rule, reading in zip(rules, readings, strict=True):
        period = reading.period_seconds
        if reading.moments is None or period is None:
            raise PlanningError(f"{rule.path.name} has no times: nobody knows which rows belong together")
        if (np.diff(reading.moments) <= 0.0).any():
            raise PlanningError(f"{rule.path.name}: times do not rise: of several people give the columns of one file")
        periods.append(period)
        starts.append(float(reading.moments[0]))
    for rule, period in zip(rules, periods, strict=True):
        if abs(period / periods[0] - 1.0) > _ALIKE:
            raise PlanningError(
                f"{rules[0].path.name} has a row every {periods[0]:g} s and {rule.path.name} every {period:g} s: "
                "streams that move together need one clock"
            )
    every = []
    for recording in readings:
        assert recording.moments is not None
        ticks, rows = np.unique(
            np.rint((recording.moments - starts[0]) / periods[0]).astype(np.int64), return_index=True
        )
        every.append((ticks, rows))
    common = every[0][0]
    for ticks, _ in every[1:]:
        common = np.intersect1d(common, ticks)
    if not common.size:
        raise PlanningError(f"{' and '.join(rule.path.name for rule in rules)} have no ticks in common")
    return [rows[np.searchsorted(ticks, common)] for ticks, rows in every], common
