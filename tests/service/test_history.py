"""Estimates from a store: those that were published, each tick once, in order, whatever their kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.measure_frames import MeasureFrame, Released, decode_measure_estimate
from contract.window_frames import WindowFrame
from contract.windows import Window
from gateway.service.history import estimates_between
from gateway.service.ingest import Received
from gateway.service.store import StoreError
from mqtt_link.estimate_frames import MeasureEstimateReading, TickEstimateReading, estimate_readings
from tests.support.measured import measure_policy
from tests.support.scenes import Scene, frames, policy

LAG = 3


def published(scene: Scene) -> dict[tuple[int, int], object]:
    """What subscribers would have heard, by tick and lag; of several readings the newest."""
    found: dict[tuple[int, int], object] = {}
    for outgoing in scene.store.outbox(0, 10_000):
        for payload in scene.recorder.estimates(outgoing):
            for reading in estimate_readings(outgoing.device, outgoing.stream, payload):
                found[reading.tick, getattr(reading, "lag", 0)] = reading
    return found


@pytest.mark.parametrize("batch", [1, 3, 256])
def test_every_tick_of_symbols_is_told_once_in_order_across_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr("gateway.service.history._BATCH", batch)
    scene = Scene(tmp_path / "s.sqlite", lag=LAG)
    for frame in frames([5, 1, 9, 2] * 8, gaps=[0, 0, 2, 0, 40, 0, 9_000], versions=[1, 1, 1, 2, 2]):
        scene.record(frame)
    heard = published(scene)
    told = list(estimates_between(scene.path, "watch", "hr", lag=LAG))
    assert [reading.tick for reading in told] == sorted(tick for tick, _ in heard)
    assert {(reading.tick, 0): reading for reading in told} == heard
    ticks = sorted(tick for tick, _ in heard)
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
    assert {(one.tick, 0): one for one in told} == published(scene)


def test_points_are_told_with_and_without_later_ones(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "p.sqlite", lag=LAG, policies=(measure_policy(),))  # type: ignore[arg-type]
    for first in range(0, 40, 10):
        points = tuple(Released(0, (tick % 3, 1)) for tick in range(10))
        scene.recorder.record([Received("watch", "place", MeasureFrame(1, first - 1, first, 2, points))])
    told = list(estimates_between(scene.path, "watch", "place", 4, 30, LAG))
    assert [(one.tick, one.lag) for one in told if isinstance(one, MeasureEstimateReading)] == [
        (tick, lag) for tick in range(4, 31) for lag in (0, LAG)
    ]
    heard = published(scene)
    assert told == [heard[tick, lag] for tick in range(4, 31) for lag in (0, LAG)]


def test_what_the_helper_makes_of_an_estimate_is_what_history_does(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "p.sqlite", lag=0, policies=(measure_policy(),))  # type: ignore[arg-type]
    scene.recorder.record([Received("watch", "place", MeasureFrame(1, -1, 0, 2, (Released(0, (1, 1)),)))])
    (outgoing,) = scene.store.outbox(0, 10)
    (payload,) = scene.recorder.estimates(outgoing)
    (reading,) = estimates_between(scene.path, "watch", "place", lag=0)
    assert isinstance(reading, MeasureEstimateReading)
    assert not isinstance(reading, TickEstimateReading)
    assert reading.mean == decode_measure_estimate(payload).means[0]


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        next(estimates_between(tmp_path / "none.sqlite", "watch", "hr"))
    assert list(tmp_path.iterdir()) == []
