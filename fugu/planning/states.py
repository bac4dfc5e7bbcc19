"""States of readings, with the code that devices run; and a test of ticks without one: do they depend on states?"""

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
    has_values_only = kinds <= {str, type(None)} or (kinds == {float} and discretiser.kind == "thresholds")
    if (
        has_values_only and not discretiser.remembers
    ):  # a state follows from its reading alone: each is asked about once
        state_of = {value: observe(tick, value) for tick, value in enumerate(set(values))}
        return np.array([-1 if (state := state_of[value]) is None else state for value in values], dtype=np.int64)
    is_begin = np.ones(len(segments), dtype=np.bool_)
    is_begin[1:] = segments[1:] != segments[:-1]
    for tick, (value, starts_stretch) in enumerate(zip(values, is_begin.tolist(), strict=True)):
        if starts_stretch:
            classifier.restart()
        if (state := observe(tick, value)) is not None:
            states[tick] = state
    return states


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


def gaps_of(cuts: Iterable[tuple[Ints, Ints]], missing_state: int | None) -> Gaps | None:
    """The gaps of recordings, None without any; ticks of the state `missing_state`, or without a state, are in gaps."""
    states_seen, states_before, states_after = [], [], []
    for states, segments in cuts:
        has_reading = (states >= 0) & (states != (-1 if missing_state is None else missing_state))
        edges = np.diff(has_reading.astype(np.int8))
        begins, ends = np.flatnonzero(edges == -1), np.flatnonzero(edges == 1) + 1
        next_ends = np.searchsorted(ends, begins, side="right")
        begins, ends = begins[next_ends < len(ends)], ends[next_ends[next_ends < len(ends)]]
        in_segment = segments[begins] == segments[ends]
        states_seen.append(states[has_reading])
        states_before.append(states[begins[in_segment]])
        states_after.append(states[ends[in_segment]])
    gap_count = sum(map(len, states_before))
    if not gap_count:
        return None
    counts = np.bincount(np.concatenate(states_seen))
    shares, rng = counts / counts.sum(), np.random.default_rng(1)
    return Gaps(gap_count, *(_p_value(np.concatenate(side), shares, rng) for side in (states_before, states_after)))


def _p_value(states: Ints, shares: Floats, rng: np.random.Generator) -> float:
    """How often as many independent draws are at least as far from their expectation, by Pearson's statistic."""
    expected_counts = np.maximum(len(states) * shares, 1e-12)
    drawn_counts = np.vstack([np.bincount(states, minlength=len(shares)), rng.multinomial(len(states), shares, _DRAWS)])
    statistics = ((drawn_counts - expected_counts) ** 2 / expected_counts).sum(axis=1)
    return float((statistics[1:] >= statistics[0] * (1.0 - 1e-9)).sum() + 1) / (_DRAWS + 1)
