"""Old frames, conflicts and stops in a store: they only go one way, and a shard has those of its own devices."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from gateway.store.shards import Shard, owner
from gateway.store.store import SYMBOLS, Conflict, Store
from tests.support.scenes import Scene, frames


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A stream with three chunks of ten ticks, as far apart as chunks have to be."""
    scene = Scene(tmp_path / "s.sqlite")
    for frame in frames([10, 10, 10], gaps=(99_990,)):
        scene.record(frame)
        scene.recorder.seal(now=True)
    return scene


def test_the_first_frame_that_the_next_one_needs_ends_a_lag_before_the_newest(scene: Scene) -> None:
    number = scene.store.number_of("watch", "hr")
    needed = [scene.store.aged.needed_frame(SYMBOLS, number, lag) for lag in (0, 100_000, 100_001, 200_000, 200_001)]
    assert needed == [299_990, 199_990, 99_990, 99_990, -1]
    assert scene.store.aged.needed_frame(SYMBOLS, number + 1, 0) is None
    scene.store.close()


def test_what_was_removed_once_is_never_kept_again(scene: Scene) -> None:
    number = scene.store.number_of("watch", "hr")
    for through, begin in ((199_990, 200_000), (99_990, 100_000)):
        scene.store.aged.remove(SYMBOLS, number, through, begin)
        assert scene.store.aged.begin(number) == 200_000
        assert [frame.key for frame in scene.store.aged.oldest(SYMBOLS, number, 9)] == [299_990]
    scene.store.close()


def test_conflicts_say_when_they_began_and_a_stop_ends_for_its_own_device(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "s.sqlite")) as store:
        for first, now in ((7, 100), (3, 200)):
            store.conflicts.note("watch", "hr", first, now)
        assert store.conflicts.all_conflicts() == [Conflict("watch", "hr", 7, 100, 200, 2)]
        for device in ("ring", "watch", "yard"):
            store.conflicts.stop(device, 5)
        store.conflicts.end_stop("watch")
        assert store.conflicts.stops() == {"ring": (5, False), "watch": (5, True), "yard": (5, False)}
        store.conflicts.stop("watch", 6)
        assert store.conflicts.stops()["watch"] == (6, False)


def test_a_shard_knows_conflicts_and_stops_of_its_own_devices(tmp_path: Path) -> None:
    devices = [f"d{i}" for i in range(8)]
    with closing(Store(tmp_path / "s.sqlite")) as store:
        store.arrange(2, lambda: None)
        for device in devices:
            store.conflicts.note(device, "hr", 0, 1)
            store.conflicts.stop(device, 1)
    for index in range(2):
        with closing(Store(tmp_path / "s.sqlite", shard=Shard(index, 2))) as store:
            mine = {device for device in devices if owner(device, 2) == index}
            assert 0 < len(mine) < 8
            assert {conflict.device for conflict in store.conflicts.all_conflicts()} == mine
            assert store.conflicts.stops().keys() == mine
