"""Define a question about readings, choose the states that answer it, and cut the recording into three sets.

States are chosen without regard to noise. Without a baseline, a threshold or names of states, the kind of readings
decides. Names and few whole numbers are states as they are, and on and off are two states. Other numbers are above or
below their own running mean of `DEFAULT_BASELINE` ticks.

The first set is for attackers to learn from, the second to choose a candidate, the third is held back until the end.
Each set consists of contiguous blocks. If the recording is long enough, blocks of the three sets take turns, so that
each set covers the whole recording. The first ten baselines are left out, until a running mean is settled. States are
taken at the period of the readings, or at a longer one.

A plan's epsilon is about a stretch: of the length that was asked for, or of a length that suits the period.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.contract.classify import ON_OFF
from fugu.contract.discretisers import Baseline, Categories, Discretiser, Thresholds
from fugu.contract.frames import MAX_FRAME_TICKS
from fugu.contract.losses import Adversary
from fugu.contract.stretches import stretch_ticks
from fugu.planning.errors import PlanningError, TooShortError
from fugu.planning.states import MOST_MISSING, states_of
from fugu.recordings.places import place_columns
from fugu.recordings.readings import Readings
from fugu.recordings.table import Table

__all__ = [
    "LATENCY_SECONDS",
    "MOST_TURNS",
    "ChosenStates",
    "Cut",
    "Part",
    "Progress",
    "Question",
    "Sampled",
    "ThreeSets",
    "Want",
    "choose_states",
    "frame_ticks",
    "long_stay",
    "merged_states",
    "microseconds",
    "no_progress",
    "protected_seconds",
    "protected_ticks",
    "sample_mask",
    "sample_states",
    "three_sets",
]


LATENCY_SECONDS = 60.0
"""The default seconds that a frame gathers: messages this rare are no burden for a small fleet's broker."""
DEFAULT_SECONDS = 600
SLOW_SECONDS = 30.0
"""From this period on, stretches of ten minutes are protected by default; with shorter periods single ticks."""
_NEARLY_ALL_STAYS = 0.99
_ON_OFF = Categories(categories=ON_OFF | {"0": 0, "1": 1}, states=("off", "on"))


def protected_seconds(seconds: int | None, period_seconds: float | None) -> int:
    """The seconds of the protected stretch, 0 for a single tick; the default suits the period.

    Raises:
        PlanningError: a time is asked for, but the period is unknown.
    """
    if seconds is None:
        return 0 if period_seconds is None or period_seconds < SLOW_SECONDS else DEFAULT_SECONDS
    if seconds and period_seconds is None:
        raise PlanningError("--protect is a time, and the seconds from tick to tick are not known: give --period")
    return seconds


def protected_ticks(seconds: int, period_seconds: float | None) -> int:
    """The largest number of ticks in a stretch of `seconds`; 1 for 0 seconds or an unknown period."""
    period_us = microseconds(period_seconds)
    return stretch_ticks(seconds, period_us) if seconds and period_us is not None else 1


def microseconds(period_seconds: float | None) -> int | None:
    """A period in microseconds, at least one; `None` for an unknown period."""
    return None if period_seconds is None else max(1, round(period_seconds * 1_000_000))


def long_stay(states: Ints, segments: Ints) -> int | None:
    """The number of ticks that 99 % of stays in a state do not exceed; `None` without stays.

    `states` (n,) holds -1 for no state; `segments` (n,) are equal within a stretch without gaps. A gap ends a stay.
    """
    stay_begins = np.flatnonzero((np.diff(states, prepend=-2) != 0) | (np.diff(segments, prepend=-1) != 0))
    stay_lengths = np.diff(stay_begins, append=len(states))[states[stay_begins] >= 0]
    return int(np.quantile(stay_lengths, _NEARLY_ALL_STAYS, method="inverted_cdf")) if len(stay_lengths) else None


def frame_ticks(latency_seconds: float, period_seconds: float, max_ticks: int = MAX_FRAME_TICKS) -> int:
    """The number of ticks, at least one, in a frame that gathers no longer than `latency_seconds`."""
    return max(1, int(min(latency_seconds / period_seconds * (1.0 + 1e-12), max_ticks)))


Progress = Callable[[str, float], None]
"""Called with the name of each part of the work, and the share of all work done before it."""


def no_progress(_part: str, _share: float) -> None:
    """Report no progress."""


Want = Literal["now", "share", "histogram", "profile", "place"]
DEFAULT_BASELINE = 300
"""The default number of ticks of a running mean."""
_MOST_BASELINE = 2**20
_MOST_STATES, _MOST_LETTERS = 16, 64
_MISSING = "missing"
_FEW_CODES, _MOST_CODES, _ORDERED = 32, 1024, 0.3
_LEAST_SHARE, _FEWEST_DEPARTURES = 0.05, 20
"""States with a smaller share of the time, or fewer departures, are offered to be merged."""
_ON = ("on", "true", "yes", "open", "opened", "home", "detected", "occupied", "motion", "running", "active", "1")
_PAIR = 2
_NEARLY_ALL, _FARTHEST = (0.001, 0.999), 1e300


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a plan answers.

    `epsilon` is the largest loss, in nats, about any stretch of `protect` seconds. 0 seconds stand for a single tick;
    `None` for ten minutes if a tick is 30 s or more, else a tick. `want` asks for the state now, the share of time in a
    state, that of each state, a profile of the day, or a place. `None` asks for a share if there are two states, for a
    histogram if there are more. `baseline` is in ticks, or in seconds if `baseline_is_time`; readings of at least
    `threshold` are the upper state. `within` is the largest mean absolute error, as a share of 1; `None` aims at 5 %,
    but accepts more. `devices` is the size of a group; `latency_seconds` is the longest time until a subscriber knows.
    A profile is a share for each of the `blocks` of the day, as 4h/Europe/Berlin, over `days`; `None` compares several.
    If `window` is given, only windows of that length are compared, in ticks, or in seconds if `window_is_time`. With
    `missing` "ignore", ticks without a reading have no state; otherwise many such ticks have a state of their own.
    `cell` is the side of a cell of places in metres; `None` compares several.
    """

    epsilon: float = 1.0
    want: Want | None = None
    baseline: float | None = None
    baseline_is_time: bool = False
    threshold: float | None = None
    states: tuple[str, ...] | None = None
    within: float | None = None
    adversary: Adversary = "universal"
    devices: int = 1
    latency_seconds: float | None = None
    blocks: str = ""
    days: int | None = None
    protect: int | None = 0
    window: float | None = None
    window_is_time: bool = False
    missing: Literal["ignore"] | None = None
    cell: float | None = None

    def of_places(self, recording: Table, column: str | None) -> bool:
        """True if the question is about places: it says so, or it is open and the recording holds places."""
        is_other = self.want or column or self.states or self.baseline or self.threshold is not None
        return self.want == "place" or self.cell is not None or (not is_other and place_columns(recording) is not None)

    @property
    def profile_zone(self) -> str | None:
        """The time zone of the parts of the day that a profile asks for; `None` for other questions."""
        return (self.blocks.partition("/")[2] or "UTC") if self.want == "profile" else None

    @property
    def max_latency(self) -> float:
        """The longest latency in seconds, with room for its rounding; infinite if none is asked for."""
        return math.inf if self.latency_seconds is None else self.latency_seconds * (1.0 + 1e-9)

    @property
    def gathering_seconds(self) -> float:
        """The seconds that a frame gathers."""
        return LATENCY_SECONDS if self.latency_seconds is None else min(LATENCY_SECONDS, self.latency_seconds)

    def ticks(self, period_seconds: float | None) -> int:
        """The largest number of ticks in the protected stretch; settle `protect` first, as `None` counts as a tick."""
        return protected_ticks(self.protect or 0, period_seconds)

    def __post_init__(self) -> None:
        if sum(option is not None for option in (self.baseline, self.threshold, self.states)) > 1:
            raise PlanningError("--baseline, --threshold and --states each say what the states are: give one of them")
        if self.window is not None and self.want in ("now", "profile", "place"):
            raise PlanningError(f"--want {self.want} has no --window: that is for a share, or a histogram")
        if (self.blocks or self.days is not None) and self.want not in (None, "profile"):
            raise PlanningError(f"--want {self.want} has no --blocks and no --days: they are for a profile")
        if self.cell is not None and self.want not in (None, "place"):
            raise PlanningError(f"--want {self.want} has no --cell: that is for places")
        states = (self.baseline, self.threshold, self.states, self.within)
        if self.want == "place" and (any(state is not None for state in states) or self.devices != 1):
            raise PlanningError(
                "a place has no --baseline, --threshold, --states, --within or --devices: its cells are found, and "
                "its error is in metres"
            )


class ChosenStates(NamedTuple):
    """The states that answer a question.

    Their running mean has `baseline_ticks` (0 without one). `counted` lists the states whose share is asked for, unless
    `histogram` asks for the share of each. `share_of` names the counted states in words; `notes` say how the states
    were chosen.
    """

    discretiser: Discretiser
    baseline_ticks: int
    counted: tuple[int, ...]
    histogram: bool
    share_of: str
    notes: tuple[str, ...]


def choose_states(readings: Readings, question: Question) -> ChosenStates:
    """Choose the states that a question is about. PlanningError: the readings have no such states."""
    has_gaps = readings.missing_share > MOST_MISSING
    missing_name = _MISSING if has_gaps and question.missing != "ignore" else None
    discretiser, notes = _discretiser_of(readings, question, missing_name)
    baseline_ticks = discretiser.baseline_ticks if isinstance(discretiser, Baseline) else 0
    names = named_states(discretiser)
    if has_gaps:
        treatment = "a state of its own, protected like the others" if missing_name else "such ticks have no state"
        notes = (*notes, f"{readings.missing_share:.1%} of the readings are missing: {treatment}")
    asks_histogram = question.want == "histogram" or (question.want is None and len(names) > _PAIR)
    counted_states = tuple(range(1, len(names)))
    share_of = names[1] if len(names) == _PAIR else f"other than {names[0]}"
    if question.threshold is not None:
        share_of = f"at {question.threshold:g} or above"
    if baseline_ticks:
        share_of = f"above the running mean of {baseline_ticks} ticks"
    return ChosenStates(discretiser, baseline_ticks, counted_states, asks_histogram, share_of, notes)


def _discretiser_of(readings: Readings, question: Question, missing: str | None) -> tuple[Discretiser, tuple[str, ...]]:
    """Choose the discretiser of readings; notes tell choices for which the user did not ask."""
    if readings.has_names:
        if question.baseline is not None or question.threshold is not None:
            raise PlanningError(
                f"{readings.source}: column {readings.column} holds names: --baseline and --threshold need numbers"
            )
        return _categories(readings, question.states, missing), ()
    if question.states is not None:
        try:
            groups = [[float(level) for level in state.split("+")] for state in question.states]
        except ValueError:
            raise PlanningError("the readings are numbers: --states must be numbers as well") from None
        is_other = ~np.isin(readings.values[readings.present], [level for group in groups for level in group])
        note = f"{is_other.mean():.1%} of the readings are other numbers: each has the state of the nearest of these"
        return _levels(groups, question.states, missing), (note,) if is_other.any() else ()
    if question.threshold is not None:
        return _thresholds((question.threshold,), ("below", "above"), missing), ()
    if question.baseline is None:
        if readings.kind == "on/off":
            return _thresholds((0.5,), ("off", "on"), missing), ()
        levels = np.unique(readings.values[readings.present])
        if readings.kind == "levels":
            note = (
                f"the readings are {len(levels)} whole numbers: each is a state (--baseline compares with their mean)"
            )
            names = tuple(f"{level:.0f}" for level in levels)
            return _levels([[level] for level in levels.tolist()], names, missing), (note,)
        if len(levels) <= _MOST_CODES:
            _refuse_codes(readings, levels)
    ticks, notes = _baseline_ticks(readings, question)
    low, high = _clamping_range(readings)
    states = _with_missing(("below", "above"), missing)
    return Baseline(baseline_ticks=ticks, lowest=low, highest=high, states=states, missing=missing), notes


def _with_missing(names: Sequence[str], missing_name: str | None) -> tuple[str, ...]:
    return (*names,) if missing_name is None else (*names, missing_name)


def _baseline_ticks(readings: Readings, question: Question) -> tuple[int, tuple[str, ...]]:
    if question.baseline is None:
        note = (
            f"no --baseline, --threshold or --states: numbers are compared with their running mean of "
            f"{DEFAULT_BASELINE} ticks, whatever noise that needs"
        )
        return DEFAULT_BASELINE, (note,)
    ticks = question.baseline / (readings.period if question.baseline_is_time else 1.0)
    if not 0.5 < ticks <= _MOST_BASELINE:
        raise PlanningError(f"a baseline of {ticks:.3g} ticks is not from 1 to {_MOST_BASELINE}")
    return round(ticks), ()


def _categories(readings: Readings, states: tuple[str, ...] | None, missing_name: str | None) -> Categories:
    """Make states of names, ignoring upper and lower case."""
    spellings = {*readings.values.tolist()} - {None}
    spelling_of = {spelling.casefold(): spelling for spelling in sorted(spellings, reverse=True)}
    sorted_names = sorted(spelling_of, key=lambda name: (name in _ON, name))
    labels = sorted_names if states is None else [state.casefold() for state in states]
    groups = [[name] if name in spelling_of else name.split("+") for name in labels]
    state_names = [name for group in groups for name in group]
    if len(set(state_names)) != len(state_names) or len(groups) < _PAIR:
        raise PlanningError("--states needs at least two different names")
    if unknown_names := [name for name in state_names if name not in spelling_of]:
        raise PlanningError(f"{readings.source}: column {readings.column} never holds {unknown_names[0]!r}")
    if len(groups) > _MOST_STATES:
        are_numbers = sum(name.lstrip("-")[:1].isdigit() for name in state_names) > 0.5 * len(state_names)
        advice = "numbers need a decimal point and no unit" if are_numbers else "choose some by --states"
        raise PlanningError(
            f"{readings.source}: column {readings.column} holds {len(groups)} names; at most {_MOST_STATES} can be "
            f"states: {advice}"
        )
    names = ["+".join(spelling_of[name] for name in group)[:_MOST_LETTERS] for group in groups]
    state_of_name = {name: index for index, group in enumerate(groups) for name in group}
    categories = {
        spelling: state_of_name[spelling.casefold()]
        for spelling in sorted(spellings)
        if spelling.casefold() in state_of_name
    }
    if states is None and {_ON_OFF.categories.get(name) for name in state_names} == {0, 1}:
        # A live sensor may spell the same two states otherwise than the recording.
        names.sort(key=lambda name: _ON_OFF.categories[name.casefold()])
        categories = _ON_OFF.categories | {name: _ON_OFF.categories[name.casefold()] for name in categories}
    all_names = _with_missing(names, missing_name)
    if len(set(all_names)) < len(all_names):
        raise PlanningError(
            f"{readings.source}: two states would have one name, of {_MOST_LETTERS} letters at most: give them others"
        )
    return Categories(categories=categories, states=all_names, missing=missing_name)


def _refuse_codes(readings: Readings, levels: Floats) -> None:
    """Raise a PlanningError for whole numbers that may be codes: few different ones, or steps without order."""
    if (levels != np.floor(levels)).any():
        return
    level_numbers = np.searchsorted(levels, readings.values[readings.present])
    is_move = np.diff(level_numbers) != 0
    correlation = np.corrcoef(level_numbers[:-1][is_move], level_numbers[1:][is_move])[0, 1]
    if len(levels) <= _FEW_CODES or not correlation >= _ORDERED:
        raise PlanningError(
            f"{readings.source}: column {readings.column} holds {len(levels)} different whole numbers: are they codes, "
            "or amounts? Of codes say what is a state, as --states 0,1+2,3+4; of amounts, --baseline 300 or --threshold"
        )


def _levels(groups: list[list[float]], names: tuple[str, ...], missing_name: str | None) -> Thresholds:
    """Make a state of each group of numbers; a reading has the state of the nearest number."""
    levels = [level for group in groups for level in group]
    if len(groups) < _PAIR or sorted(set(levels)) != levels or not all(map(math.isfinite, levels)):
        raise PlanningError("--states needs at least two numbers that increase")
    return _thresholds(tuple((low[-1] + high[0]) / 2.0 for low, high in pairwise(groups)), names, missing_name)


def _thresholds(edges: tuple[float, ...], names: tuple[str, ...], missing_name: str | None) -> Thresholds:
    return Thresholds(edges=edges, states=_with_missing(names, missing_name), missing=missing_name)


def _clamping_range(readings: Readings) -> tuple[float, float]:
    """Find the range to which readings are clamped: three times the range of 99.8 % of them, in round numbers."""
    low, high = np.nanquantile(readings.values, _NEARLY_ALL)
    if low == high:
        low, high = np.nanmin(readings.values), np.nanmax(readings.values)
    low, high = max(float(low), -_FARTHEST), min(float(high), _FARTHEST)
    if not low < high:
        raise PlanningError(f"{readings.source}: the numbers of column {readings.column} are beyond {_FARTHEST:g}")
    span = high - low
    unit = 10.0 ** (math.floor(math.log10(span)) - 1)
    return math.floor((low - span) / unit) * unit, math.ceil((high + span) / unit) * unit


def named_states(discretiser: Discretiser) -> tuple[str, ...]:
    """The states of readings: all but the state of missing readings."""
    return tuple(state for state in discretiser.states if state != discretiser.missing)


def merged_states(choice: ChosenStates, recordings: Sequence[Cut]) -> tuple[str, ...] | None:
    """Merge rare states, and return the option --states: numbers merge with a neighbour, names with the next rarest.

    Return `None` if no state is rare, or the states cannot be merged.
    """
    discretiser = choice.discretiser
    names = named_states(discretiser)
    if choice.baseline_ticks or len(names) <= _PAIR or any(set(",+") & set(name) for name in names):
        return None
    groups = [[state] for state in range(len(names))]
    while len(groups) > _PAIR:
        shares, departures = np.transpose([_share_and_departures(group, recordings) for group in groups])
        is_rare = (shares < _LEAST_SHARE) | (departures < _FEWEST_DEPARTURES)
        if not is_rare.any():
            break
        rare_group = int(np.where(is_rare, shares, np.inf).argmin())
        other_groups = [other for other in range(len(groups)) if other != rare_group]
        if discretiser.kind == "thresholds":
            other_groups = [other for other in other_groups if abs(other - rare_group) == 1]
        low, high = sorted((rare_group, min(other_groups, key=lambda other: float(shares[other]))))
        groups[low] = sorted(groups[low] + groups.pop(high))
    merged_names = tuple("+".join(names[state] for state in group) for group in groups)
    return None if len(groups) == len(names) else merged_names


def _share_and_departures(group: list[int], recordings: Sequence[Cut]) -> Floats:
    """The least share of time in a group of states, and the fewest departures from it, among recordings."""
    figures = []
    for states, segments in recordings:
        in_group, has_state = np.isin(states, group), states >= 0
        departures = in_group[:-1] & ~in_group[1:] & has_state[1:] & (np.diff(segments) == 0)
        figures.append((in_group.sum() / max(has_state.sum(), 1), departures.sum()))
    return np.asarray(np.min(figures, axis=0))


BASELINES_APART = 10
"""The number of baselines between blocks of two sets: a running mean retains e^-10 of the earlier block."""
_LEAST_APART = 300
_SHARES = (0.5, 0.15, 0.35)
MOST_TURNS = 5
"""The most blocks of a set."""
_MOST_LOST = 0.4
_LONG_BLOCK = 1_500
"""Blocks take turns only if the shortest ones have this many ticks, so that long windows fit."""
_LEAST_TICKS = 300


class Part(NamedTuple):
    """A set of ticks: increasing indices (m,), and segments (m,) that are equal within a stretch without gaps."""

    rows: Ints
    segments: Ints


class ThreeSets(NamedTuple):
    """The three sets of a recording."""

    fit: Part
    choose: Part
    test: Part


def set_distance(baseline_ticks: int) -> int:
    """The least distance in ticks between two of the three sets: ten baselines, but at least 300."""
    return max(BASELINES_APART * baseline_ticks, _LEAST_APART)


def three_sets(segments: Ints, baseline_ticks: int, most_turns: int = MOST_TURNS) -> ThreeSets:
    """Cut a recording into three sets whose blocks take turns; `segments` (n,) are equal within a stretch without gaps.

    Each set has at most `most_turns` blocks; a single block leaves room for the longest windows.

    Raises:
        TooShortError: the recording has too few ticks.
    """
    ticks, gap_ticks = len(segments), set_distance(baseline_ticks)
    first_tick = gap_ticks if baseline_ticks and 3 * gap_ticks <= _MOST_LOST * ticks else 0
    usable_by_turns = {turns: ticks - first_tick - (3 * turns - 1) * gap_ticks for turns in range(1, most_turns + 1)}
    turns = 1
    for turn_count, usable_ticks in usable_by_turns.items():
        if usable_ticks >= (1.0 - _MOST_LOST) * ticks and usable_ticks * min(_SHARES) >= _LONG_BLOCK * turn_count:
            turns = turn_count
    usable_ticks = usable_by_turns[turns]
    if usable_ticks * min(_SHARES) < _LEAST_TICKS:
        least_ticks = 2 * gap_ticks + round(_LEAST_TICKS / min(_SHARES))
        raise TooShortError(
            f"{ticks} ticks are too few to plan from: three sets that lie {gap_ticks} ticks apart need "
            f"{least_ticks} or more",
            baseline_ticks,
        )
    blocks: list[list[Ints]] = [[], [], []]
    begin = first_tick
    for set_blocks, share in [*zip(blocks, _SHARES, strict=True)] * turns:
        end = begin + int(usable_ticks / turns * share)
        set_blocks.append(np.arange(begin, end, dtype=np.int64))
        begin = end + gap_ticks
    parts = []
    for rows in map(np.concatenate, blocks):
        is_begin = np.concatenate([[False], (np.diff(rows) != 1) | (np.diff(segments[rows]) != 0)])
        parts.append(Part(rows, np.cumsum(is_begin).astype(np.int64)))  # no segment continues into the next block
    return ThreeSets(*parts)


class Cut(NamedTuple):
    """The states (m,) of a set, -1 for no state, and its segments (m,), equal within a stretch without gaps."""

    states: Ints
    segments: Ints

    @property
    def lengths(self) -> Ints:
        """The number of ticks in each segment, in their order."""
        return np.diff(np.flatnonzero(np.diff(self.segments, prepend=-1, append=-1)))


class Sampled(NamedTuple):
    """The states of a recording, one per `every` ticks, in three sets of its ticks.

    `whole` holds all states of each donor; the class of chains covers these.
    """

    every: int
    discretiser: Discretiser
    sets: ThreeSets
    whole: tuple[Cut, ...]
    fit: Cut
    choose: Cut
    test: Cut

    @property
    def joined(self) -> Cut:
        """The states of all donors, one after another."""
        return Cut(*(np.concatenate(arrays) for arrays in zip(*self.whole, strict=True)))

    def refuse_constant(self, source: str) -> None:
        """Raise a PlanningError if the first set never changes its state; `source` names the recording."""
        if np.unique(self.fit.states[self.fit.states >= 0]).size < 2:
            raise PlanningError(f"{source}: the state never changes in the first set: there is nothing to plan")


def sample_mask(segments: Ints, tick_stride: int) -> NDArray[np.bool_]:
    """Select (n,) the first tick of every stretch without gaps, and every `tick_stride`-th tick after it."""
    begins = np.flatnonzero(np.diff(segments, prepend=segments[:1] - 1) != 0)
    tick_in_stretch = np.arange(len(segments)) - np.repeat(begins, np.diff(begins, append=len(segments)))
    return np.asarray(tick_in_stretch % tick_stride == 0)


def sample_states(readings: Readings, choice: ChosenStates, sets: ThreeSets, tick_stride: int = 1) -> Sampled:
    """Compute the states of every `tick_stride`-th reading in three sets; a running mean covers the same time.

    States are computed over the whole recording, so that a running mean is settled at the beginning of a block.
    """
    discretiser = choice.discretiser
    if isinstance(discretiser, Baseline) and tick_stride > 1:
        baseline_ticks = max(1, round(choice.baseline_ticks / tick_stride))
        discretiser = discretiser.model_copy(update={"baseline_ticks": baseline_ticks})
    is_selected = sample_mask(readings.segments, tick_stride)
    states = np.full(len(readings.segments), -1, dtype=np.int64)
    states[is_selected] = states_of(discretiser, readings.values[is_selected], readings.segments[is_selected])
    in_sets = [(part, is_selected[part.rows]) for part in sets]
    cuts = [Cut(states[part.rows[in_sample]], part.segments[in_sample]) for part, in_sample in in_sets]
    selected_rows = np.flatnonzero(is_selected)
    donor_rows = np.split(selected_rows, np.searchsorted(selected_rows, readings.starts[1:]))
    whole = tuple(Cut(states[selected_rows], readings.segments[selected_rows]) for selected_rows in donor_rows)
    return Sampled(tick_stride, discretiser, sets, whole, *cuts)
