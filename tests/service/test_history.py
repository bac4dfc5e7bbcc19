"""Estimates from a store: each tick once, in order, whatever its kind, and as its frame determines it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from contract.measure_frames import MeasureFrame, Released
from contract.window_frames import WindowFrame
from contract.windows import Window
from gateway.service.history import StateRow, ValueRow, estimates_between
from gateway.service.ingest import Received
from gateway.service.kinds.kind import Place
from gateway.service.store import StoreError
from tests.support.measured import measure_policy
from tests.support.scenes import Scene, frames, policy

LAG = 3


def stored(scene: Scene, first: list[int]) -> dict[int, tuple[float, ...]]:
    """What the frames that begin at some ticks determine, by tick."""
    number = scene.store.stream_id("watch", "hr")
    assert number is not None
    runs = (run for tick in first for _, run in scene.store.symbols.estimates(number, tick))
    return {run.first + i: tuple(row.tolist()) for run in runs for i, row in enumerate(run.probabilities)}


@pytest.mark.parametrize("batch", [1, 3, 256])
def test_every_tick_of_symbols_is_told_once_in_order_across_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr("gateway.service.history._BATCH", batch)
    scene = Scene(tmp_path / "s.sqlite", lag=LAG)
    made = frames([5, 1, 9, 2] * 8, gaps=[0, 0, 2, 0, 40, 0, 9_000], versions=[1, 1, 1, 2, 2])
    for frame in made:
        scene.record(frame)
    wanted = stored(scene, [frame.first for frame in made])
    told = list(estimates_between(scene.path, "watch", "hr", lag=LAG))
    assert {one.tick: one.probabilities for one in told if isinstance(one, StateRow)} == wanted
    assert all(one.most_likely == np.argmax(one.probabilities) for one in told if isinstance(one, StateRow))
    ticks = sorted(wanted)
    assert [one.tick for one in told] == ticks
    some = list(estimates_between(scene.path, "watch", "hr", ticks[7], ticks[-9], LAG))
    assert some == told[7:-8]


def test_counts_of_windows_are_seen_where_they_have_come(tmp_path: Path) -> None:
    window = Window(name="high", length=5, stride=5, start=0, states=(1,), scale="2")
    scene = Scene(tmp_path / "s.sqlite", lag=LAG, policies=(policy(1, windows=(window,)),))
    for frame in frames([7] * 10):
        scene.record(frame)
    plain = list(estimates_between(scene.path, "watch", "hr", lag=LAG))
    scene.recorder.record(
        [Received("watch", "hr", WindowFrame(1, "high", i - 1, i, 5 * i, 5, 5, (4,))) for i in range(3)]
    )
    told = list(estimates_between(scene.path, "watch", "hr", lag=LAG))
    assert [one.tick for one in told] == [one.tick for one in plain]
    assert [one.tick for one, other in zip(told, plain, strict=True) if one != other] == list(range(15))


def test_points_are_told_with_and_without_later_ones(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "p.sqlite", lag=LAG, policies=(measure_policy(),))  # type: ignore[arg-type]
    for first in range(0, 40, 10):
        points = tuple(Released(0, (tick % 3, 1)) for tick in range(10))
        scene.recorder.record([Received("watch", "place", MeasureFrame(1, first - 1, first, 2, points))])
    told = list(estimates_between(scene.path, "watch", "place", 4, 30, LAG))
    rows = [one for one in told if isinstance(one, ValueRow)]
    assert [(one.tick, one.lag) for one in rows] == [(tick, lag) for tick in range(4, 31) for lag in (0, LAG)]
    place = Place(scene.store.stream_id("watch", "place") or 0, "watch", "place")
    now = scene.recorder.points.estimate(place, 10)
    assert now is not None
    assert [one.mean for one in rows if one.lag == 0 and 10 <= one.tick < 20] == list(now.means)
    later = scene.recorder.points.lagged(place, 20)
    assert {one.tick: one.covariance for one in rows if one.lag == LAG and 17 <= one.tick < 27} == {
        some.first + i: row for some in later for i, row in enumerate(some.covariances)
    }


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        next(estimates_between(tmp_path / "none.sqlite", "watch", "hr"))
    assert list(tmp_path.iterdir()) == []
