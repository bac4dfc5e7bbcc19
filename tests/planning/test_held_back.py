"""The three sets of a recording: disjoint, contiguous blocks, far apart, and in turns where there is room."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fugu.planning.errors import PlanningError
from fugu.planning.question import BASELINES_APART, apart_ticks, three_sets


@pytest.mark.parametrize(("ticks", "baseline"), [(16_859, 300), (16_859, 100), (43_200, 0), (10_000, 30), (4_000, 0)])
def test_sets_are_ten_baselines_apart_and_made_of_blocks(ticks: int, baseline: int) -> None:
    sets = three_sets(np.zeros(ticks, dtype=np.int64), baseline)
    assert sets.apart == apart_ticks(baseline) >= BASELINES_APART * baseline
    for first, second in combinations((sets.fit, sets.choose, sets.test), 2):
        nearest = np.abs(first.rows[:, None] - second.rows[None, :: max(1, sets.apart // 3)]).min()
        assert nearest > sets.apart / 2
        edges = [part.rows[np.flatnonzero(np.diff(part.rows, prepend=-2) != 1)] for part in (first, second)]
        ends = [part.rows[np.flatnonzero(np.diff(part.rows, append=ticks + 2) != 1)] for part in (first, second)]
        assert min(np.abs(edges[0][:, None] - ends[1]).min(), np.abs(ends[0][:, None] - edges[1]).min()) > sets.apart
    used = sum(len(part.rows) for part in (sets.fit, sets.choose, sets.test))
    assert used >= 0.25 * ticks
    for part in (sets.fit, sets.choose, sets.test):
        assert (np.diff(part.segments) == (np.diff(part.rows) != 1)).all()


def test_blocks_take_turns_where_there_is_room() -> None:
    sets = three_sets(np.zeros(100_000, dtype=np.int64), 100)
    assert sets.fit.segments.max() == sets.test.segments.max() == 4


def test_gaps_of_the_recording_stay_gaps() -> None:
    segments = np.repeat([0, 1, 2, 3], 3_000)
    sets = three_sets(segments, 0)
    for part in (sets.fit, sets.choose, sets.test):
        jump = (np.diff(part.rows) != 1) | (np.diff(segments[part.rows]) != 0)
        assert (np.diff(part.segments) == jump).all()


def test_a_recording_that_is_too_short_says_what_it_would_need() -> None:
    with pytest.raises(PlanningError, match="3 ticks are too few to plan from"):
        three_sets(np.zeros(3, dtype=np.int64), 0)
    message = ""
    try:
        three_sets(np.zeros(6_000, dtype=np.int64), 300)
    except PlanningError as error:
        message = str(error)
    least = int(message.split("need ")[1].split(" ")[0])
    three_sets(np.zeros(least, dtype=np.int64), 300)
    with pytest.raises(PlanningError):
        three_sets(np.zeros(least - 2, dtype=np.int64), 300)
