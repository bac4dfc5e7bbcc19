"""Classify readings with the code that devices run, and test whether gaps depend on the states beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.contract.classify import classifier_of
from fugu.contract.compiler import compile_discretiser
from fugu.contract.discretisers import Discretiser
from fugu.recordings.places import MOST_MISSING

__all__ = ["MOST_MISSING", "Gaps", "gaps_of", "states_of"]


def states_of(discretiser: Discretiser, readings: Sequence[object] | Floats, segments: Ints) -> Ints:
    """Classify a recording tick by tick with the code that devices run: states (n,), -1 for no state.

    `None`, NaN and other unusable readings count as missing. `segments` (n,) are equal within a stretch of consecutive
    ticks; the classifier restarts at each stretch, as on a started device.
    """
    if len(readings) != len(segments):
        raise ValueError(f"{len(readings)} readings and {len(segments)} segments")
    classifier = classifier_of(compile_discretiser(discretiser))
    reading_list = readings.tolist() if isinstance(readings, np.ndarray) else readings
    kinds = set(map(type, reading_list))
    has_values_only = kinds <= {str, type(None)} or (kinds == {float} and discretiser.kind == "thresholds")
    if has_values_only and not discretiser.remembers:  # a state follows from its reading alone: classify each once
        state_of = {reading: classifier.observe(tick, reading) for tick, reading in enumerate(set(reading_list))}
        states = [state_of[reading] for reading in reading_list]
    else:
        states = []
        is_begin = np.diff(segments, prepend=segments[:1] - 1) != 0
        for tick, (reading, starts_stretch) in enumerate(zip(reading_list, is_begin.tolist(), strict=True)):
            if starts_stretch:
                classifier.restart()
            states.append(classifier.observe(tick, reading))
    return np.array([-1 if state is None else state for state in states], dtype=np.int64)


_FEWEST, _SIGNIFICANT, _DRAWS = 20, 0.05, 2000


class Gaps(NamedTuple):
    """Gaps between ticks with readings: their number, and tests of the states before and after them.

    `before` and `after` are p-values: the share of equally many random states of the recording that deviate at least as
    much. Gaps that come in groups make the p-values too small, never too large.
    """

    number: int
    before: float
    after: float

    @property
    def dependent(self) -> bool:
        """True if gaps depend on the states before or after them; both tests together err once in 20."""
        return self.number >= _FEWEST and min(self.before, self.after) < _SIGNIFICANT / 2.0

    @property
    def independent(self) -> bool:
        """True if there are enough gaps to tell, and no dependence shows."""
        return self.number >= _FEWEST and not self.dependent


def gaps_of(cuts: Iterable[tuple[Ints, Ints]], missing_state: int | None) -> Gaps | None:
    """Test the gaps of recordings; `None` without gaps. Ticks in `missing_state` or without a state are gaps."""
    states_seen, states_before, states_after = [], [], []
    for states, segments in cuts:
        has_reading = (states >= 0) & (states != (-1 if missing_state is None else missing_state))
        edges = np.diff(has_reading.astype(np.int8))
        gap_begins, gap_ends = np.flatnonzero(edges == -1), np.flatnonzero(edges == 1) + 1
        next_ends = np.searchsorted(gap_ends, gap_begins, side="right")
        gap_begins, gap_ends = gap_begins[next_ends < len(gap_ends)], gap_ends[next_ends[next_ends < len(gap_ends)]]
        in_segment = segments[gap_begins] == segments[gap_ends]
        states_seen.append(states[has_reading])
        states_before.append(states[gap_begins[in_segment]])
        states_after.append(states[gap_ends[in_segment]])
    gap_count = sum(map(len, states_before))
    if not gap_count:
        return None
    state_counts = np.bincount(np.concatenate(states_seen))
    shares, rng = state_counts / state_counts.sum(), np.random.default_rng(1)
    return Gaps(gap_count, *(_p_value(np.concatenate(side), shares, rng) for side in (states_before, states_after)))


def _p_value(states: Ints, shares: Floats, rng: np.random.Generator) -> float:
    """The share of simulated draws whose Pearson statistic is at least that of `states`."""
    expected_counts = np.maximum(len(states) * shares, 1e-12)
    drawn_counts = np.vstack([np.bincount(states, minlength=len(shares)), rng.multinomial(len(states), shares, _DRAWS)])
    statistics = ((drawn_counts - expected_counts) ** 2 / expected_counts).sum(axis=1)
    return float((statistics[1:] >= statistics[0] * (1.0 - 1e-9)).sum() + 1) / (_DRAWS + 1)
