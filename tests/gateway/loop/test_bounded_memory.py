"""However much a stream sends, and in whatever order: what the gateway holds in memory of it is bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu.contract.frames import SymbolFrame
from tests.support.containers import held
from tests.support.scenes import Scene, frames


def test_a_stream_that_is_sent_for_long_grows_nothing_in_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the journal is sealed when it is large enough, as it is between rounds."""
    monkeypatch.setattr("gateway.loop.recorder.SEAL_BYTES", 30_000)
    monkeypatch.setattr("gateway.loop.recorder.STREAM_BYTES", 0)
    scene = Scene(tmp_path / "s.sqlite")
    sequence = frames([10] * 1_500, gaps=[0, 0, 3])
    largest, sealed = 0, []
    for begin in range(0, 1_500, 20):
        scene.record(*sequence[begin : begin + 20])
        scene.committed()
        scene.recorder.symbols.reports.take(9)
        scene.recorder.seal()
        tail = scene.store.symbols.tail
        largest = max(largest, tail.size)
        if not tail.rows:
            sealed.append(held(scene.recorder))
    assert largest <= 30_000
    assert len(sealed) > 5
    assert all(body == sealed[0] for body in sealed)


def test_a_device_that_scatters_its_frames_makes_no_endless_list_of_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.loop.recorder.MOST_INTERVALS", 50)
    scene = Scene(tmp_path / "s.sqlite")
    scattered = [SymbolFrame(1, 10 * i - 1, 10 * i, b"\x01") for i in range(200)]
    scene.record(*scattered)
    assert +scene.counters == {"stored": 50, "scattered": 150}
    scene.recorder.seal(now=True)
    assert len(scene.store.coverage(1)) == 50
    through = scene.committed().streams[0].through
    assert through <= 490  # what was not taken is not said to be safe
    filling = [SymbolFrame(1, 10 * i, 10 * i + 1, bytes(9)) for i in range(49)]
    scene.record(*filling)  # gaps are filled, and there is room again
    assert scene.counters["stored"] == 99
    scene.record(*scattered)
    assert scene.counters["stored"] == 99 + 49
    assert scene.counters["duplicate"] == 50
