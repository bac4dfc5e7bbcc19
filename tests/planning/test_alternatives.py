"""What else would cost: other states, periods and windows, on recordings that cannot be released as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fugu.planning.recording import read_recording
from fugu.planning.true_class import SPANS, Alternative, alternatives

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.long
def test_four_levels_of_activity_are_not_to_be_had_but_two_are() -> None:
    """Steps from rest to the highest level hardly occur, so that one says nearly everything: merge, or release none."""
    path = DATA / "activity4_nhanes.csv.gz"
    recording = read_recording(path, "value", None)
    found = {each.what: each for each in alternatives(path, recording, 1.0)}
    levels, active = found["as it is"], found["only whether the state is at least 1"]
    assert levels.share_errors is not None
    assert active.share_errors is not None
    assert levels.share_errors[1] > 0.3, "useless over two days"
    assert active.share_errors[1] < 0.03
    assert found["one reading in 20"] == Alternative("one reading in 20", None, None), "too short to tell"


@pytest.mark.long
def test_a_threshold_is_compared_with_running_means_and_longer_periods(tmp_path: Path) -> None:
    """A level that wanders slowly costs much as a threshold, little as a running mean, and periods change both."""
    generator = np.random.default_rng(4)
    slow = np.cumsum(generator.normal(0.0, 0.15, 8_000))
    values = 60.0 + slow - np.linspace(slow[0], slow[-1], slow.size) + generator.normal(0.0, 3.0, slow.size)
    path = tmp_path / "level.csv"
    path.write_text("\n".join(["value", *(f"{value:.3f}" for value in values)]) + "\n")
    recording = read_recording(path, None, "mean")
    found = {each.what: each for each in alternatives(path, recording, 1.0)}
    assert len(found) == 8
    fixed, moving = found["as it is"], found["above the running mean of 100 ticks"]
    assert fixed.share_errors is not None
    assert moving.share_errors is not None
    assert moving.share_errors[0] < fixed.share_errors[0] / 1.5
    assert all(each.share_errors is None or len(each.share_errors) == len(SPANS) for each in found.values())
    assert fixed.share_errors[1] < fixed.share_errors[0], "a longer window"
    by_mean = read_recording(path, None, None, 100)
    assert [each.what for each in alternatives(path, by_mean, 1.0)] == [
        "as it is",
        "above the running mean of 300 ticks",
        "above the running mean of 1000 ticks",
    ]
