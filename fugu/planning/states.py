"""States of readings, with the code that devices run; and a test of ticks without one: do they depend on states?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.contract.classify import classifier_of
from fugu.contract.compiler import compile_discretiser
from fugu.contract.discretisers import Baseline, Discretiser, Thresholds
from fugu.planning.errors import PlanningError
from fugu.recordings.places import MOST_MISSING
from fugu.recordings.readings import Readings

__all__ = ["MOST_MISSING", "Gaps", "Recording", "gaps_of", "recording_of", "states_of"]

_LARGEST_STATE = 254


def states_of(discretiser: Discretiser, readings: Sequence[object] | Floats, segments: Ints) -> Ints:
    """(n,) states of a recording, -1 where there is none, tick by tick, with the code that devices run.

    None, NaN and other unusable readings are ticks without one. `segments` are equal inside a stretch of consecutive
    ticks; each stretch begins like a device that was started.
    """
    if len(readings) != len(segments):
        raise ValueError(f"{len(readings)} readings and {len(segments)} segments")
    classifier = classifier_of(compile_discretiser(discretiser))
    observe = classifier.observe
    states = np.full(len(readings), -1, dtype=np.int64)
    values = readings.tolist() if isinstance(readings, np.ndarray) else readings
    kinds = set(map(type, values))
    alike = kinds <= {str, type(None)} or (kinds == {float} and discretiser.kind == "thresholds")
    if alike and not discretiser.remembers:  # a state follows from its reading alone: each is asked about once
        known = {value: observe(tick, value) for tick, value in enumerate(set(values))}
        return np.array([-1 if (state := known[value]) is None else state for value in values], dtype=np.int64)
    begins = np.ones(len(segments), dtype=np.bool_)
    begins[1:] = segments[1:] != segments[:-1]
    for tick, (value, begin) in enumerate(zip(values, begins.tolist(), strict=True)):
        if begin:
            classifier.restart()
        if (state := observe(tick, value)) is not None:
            states[tick] = state
    return states


class Recording(NamedTuple):
    """The ticks of a recording with their (n,) states, -1 where there is none, and segment numbers that count up.

    `moments` are (n,) seconds, None without times. `discretiser` is None if the column held states. `missing` counts
    rows without a reading, `missing_share` is their share, `missing_state` their state, or None if they have none.
    """

    states: Ints
    segments: Ints
    moments: Floats | None
    period_seconds: float | None
    discretiser: Discretiser | None
    column: str
    missing: int
    missing_state: int | None
    missing_share: float


def recording_of(readings: Readings, threshold: float | str | None, baseline: int | None = None) -> Recording:
    """States of readings.

    They are numbers from 0, or made by a threshold (a number, or "mean") or a baseline (ticks of a running mean; the
    first of each segment have no state).

    Raises:
        PlanningError: a reading is no number, or no state.
    """
    values, column = readings.values, readings.column
    if isinstance(values, list):
        raise PlanningError(f"{readings.source}: column {column} holds names: fugu plan auto makes states of them")
    present, absent = readings.present, readings.absent
    rows = ~absent
    share = float((~present[rows]).mean())
    missing = int((~present & rows).sum())
    made: Discretiser | None = None
    lost = None
    if baseline is not None:
        lowest, highest = _range(values)
        made = Baseline(baseline_ticks=baseline, lowest=lowest, highest=highest)
        if share > MOST_MISSING:
            lost = len(made.states)
            made = made.model_copy(update={"states": (*made.states, "missing"), "missing": "missing"})
        states = states_of(made, values, readings.segments)
        states[absent] = -1
    else:
        usable = values[present]
        if threshold is None:
            found = _states(usable, readings.source, column)
        else:
            edge = float(usable.mean()) if isinstance(threshold, str) else threshold
            found, made = (usable >= edge).astype(np.int64), Thresholds(edges=(edge,), states=("low", "high"))
        if share > MOST_MISSING:
            lost = int(found.max()) + 1 if made is None else 2
            if lost > _LARGEST_STATE:
                raise PlanningError(
                    f"{readings.source}: {lost} states leave no room for one of the {missing} rows without reading"
                )
        states = np.full(len(values), -1 if lost is None else lost, dtype=np.int64)
        states[absent] = -1
        states[present] = found
    return Recording(
        *(states, readings.segments, readings.moments, readings.period_seconds, made, column, missing, lost, share)
    )


def _range(values: Floats) -> tuple[float, float]:
    """A range of round numbers that holds readings (n,), NaN where there is none: of a policy, hence public."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    step = 10.0 ** math.floor(math.log10(max(high - low, abs(high) * 1e-6, 1e-9)))
    return math.floor(low / step) * step, (math.floor(high / step) + 1.0) * step


def _states(values: Floats, file: str, column: str) -> Ints:
    if ((values != np.floor(values)) | (values < 0) | (values > _LARGEST_STATE)).any():
        raise PlanningError(
            f"{file}: column {column} does not hold states (whole numbers from 0 to {_LARGEST_STATE}): give --threshold"
        )
    return values.astype(np.int64)


_FEWEST, _SIGNIFICANT, _DRAWS = 20, 0.05, 2000


class Gaps(NamedTuple):
    """Ticks without a reading between others: how many such gaps there are, and how the states beside them are.

    `before` and `after` are p-values: how often as many states, drawn like all states of the recording, differ from
    these by as much. Gaps that come in groups make them too small, never too large.
    """

    number: int
    before: float
    after: float

    @property
    def dependent(self) -> bool:
        """True if they have to do with the states before or after them; both tests together err once in 20."""
        return self.number >= _FEWEST and min(self.before, self.after) < _SIGNIFICANT / 2.0

    @property
    def independent(self) -> bool:
        """True if there are enough gaps to tell, and they look independent."""
        return self.number >= _FEWEST and not self.dependent


def gaps_of(cuts: Iterable[tuple[Ints, Ints]], missing: int | None) -> Gaps | None:
    """The gaps of recordings, None without any; ticks of the state `missing`, or without a state, are in gaps."""
    seen, before, after = [], [], []
    for states, segments in cuts:
        stated = (states >= 0) & (states != (-1 if missing is None else missing))
        edges = np.diff(stated.astype(np.int8))
        begins, ends = np.flatnonzero(edges == -1), np.flatnonzero(edges == 1) + 1
        place = np.searchsorted(ends, begins, side="right")
        begins, ends = begins[place < len(ends)], ends[place[place < len(ends)]]
        inside = segments[begins] == segments[ends]
        seen.append(states[stated])
        before.append(states[begins[inside]])
        after.append(states[ends[inside]])
    number = sum(map(len, before))
    if not number:
        return None
    counts = np.bincount(np.concatenate(seen))
    shares, rng = counts / counts.sum(), np.random.default_rng(1)
    return Gaps(number, *(_p_value(np.concatenate(side), shares, rng) for side in (before, after)))


def _p_value(states: Ints, shares: Floats, rng: np.random.Generator) -> float:
    """How often as many independent draws are at least as far from their expectation, by Pearson's statistic."""
    expected = np.maximum(len(states) * shares, 1e-12)
    drawn = np.vstack([np.bincount(states, minlength=len(shares)), rng.multinomial(len(states), shares, _DRAWS)])
    far = ((drawn - expected) ** 2 / expected).sum(axis=1)
    return float((far[1:] >= far[0] * (1.0 - 1e-9)).sum() + 1) / (_DRAWS + 1)
