"""A store's files when there are more shards, or fewer: only what has to moves, and nothing is lost or there twice."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from gateway.service.ownership import Shard, owner
from gateway.service.shard_channel import ShardChannel
from gateway.service.shard_stores import arrange as arrange_stores
from gateway.service.shard_stores import channel_of, delete_shard, retired, shard_store, store_of, stores
from gateway.service.store import Lease, Store, StoreError, moving
from gateway.service.store.store import KIND
from tests.support.scenes import Scene, frames, policy
from tests.support.sealing import seal

TABLES = moving.tables(KIND.schema)
DEVICES = tuple(f"sensor-{i}" for i in range(12))
POLICIES = tuple(policy(device=device) for device in DEVICES)


def filled(path: Path) -> Path:
    """A store with frames of every device, in order, late and doubled, and a contradiction of one."""
    scene = Scene(path, policies=POLICIES)
    for i, device in enumerate(DEVICES):
        made = frames([10, 5, 20, 3], gaps=[0, 2], seed=i)
        for frame in (made[0], made[2], made[1], made[1], made[3]):
            scene.record(frame, device=device)
    scene.recorder.seal(now=True)
    scene.store.conflicts.note("sensor-3", "hr", 5, 1_000)
    scene.store.reserve_counter(77)
    scene.store.discovered.keep("sensor-1", {"a": "b"})
    scene.store.close()
    return path


def arrange(store: Path, shards: int) -> int:
    """As a gateway does at its start."""
    with (
        closing(Store(store, lease=Lease())) as home,
        closing(ShardChannel(channel_of(store), Lease("fleet"))) as channel,
    ):
        return arrange_stores(home, channel, store, shards, seal)


def contents(path: Path) -> dict[str, bytes]:
    """By device, what stands for all that is stored of it."""
    with closing(Store(path)) as store:
        return {device: moving.digest(store._db, device, TABLES) for device in store.devices()}


def everything(store: Path) -> dict[str, bytes]:
    """Of all files together; no device may be in two."""
    found: dict[str, bytes] = {}
    for path in (store, *stores(store).values()):
        mine = contents(path)
        assert not found.keys() & mine.keys()
        found |= mine
    return found


@pytest.mark.long
def test_devices_move_to_their_owners_and_back_and_nothing_changes(tmp_path: Path) -> None:
    store = filled(tmp_path / "home.db")
    before = contents(store)
    assert sorted(before) == sorted(DEVICES)
    assert arrange(store, 2) == len(DEVICES)
    assert contents(store) == {}
    for shards in (2, 3, 2, 5, 1):
        last = {device: store_of(store, device) for device in DEVICES}
        moved = arrange(store, shards)
        for device in DEVICES:
            home = store if shards == 1 else shard_store(store, owner(device, shards))
            assert store_of(store, device) == home
        assert moved == sum(store_of(store, device) != last[device] for device in DEVICES)
        assert everything(store) == before
        for path in retired(store, shards).values():
            delete_shard(path)
    assert stores(store) == {}
    with closing(Store(store)) as opened:
        assert opened.reserved_counter() == 77
        assert opened.discovered.every() == {"sensor-1": {"a": "b"}}
        assert [one.device for one in opened.conflicts.every()] == ["sensor-3"]


def test_what_is_in_the_journal_is_sealed_and_moved(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "home.db", policies=POLICIES)
    made = {device: frames([10, 5], seed=seed) for seed, device in enumerate(DEVICES)}
    for device, some in made.items():
        scene.record(*some, device=device)
    with pytest.raises(StoreError, match="journal"):
        scene.store.move_device(DEVICES[0], scene.store)
    scene.store.close()
    arrange(scene.path, 2)
    for device, some in made.items():
        with closing(Store(store_of(scene.path, device))) as store:
            number = store.stream_id(device, "hr")
            assert number is not None
            assert [one.symbols for one in store.symbols.holding(number, 0, 14)] == [b"".join(f.symbols for f in some)]
            assert store.coverage(number) == [(-1, 14)]


def test_one_more_shard_moves_its_part_only(tmp_path: Path) -> None:
    store = filled(tmp_path / "home.db")
    arrange(store, 2)
    assert arrange(store, 3) == sum(Shard(2, 3).owns(device) for device in DEVICES)
    assert arrange(store, 3) == 0


@pytest.mark.parametrize("step", ["copy_device", "remove_device"])
@pytest.mark.parametrize("after", [0, 4])
def test_a_move_that_is_cut_short_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: int
) -> None:
    store = filled(tmp_path / "home.db")
    before, done = contents(store), [0]
    real = getattr(moving, step)

    def cut(*arguments: object) -> None:
        if done[0] == after:
            raise KeyboardInterrupt
        done[0] += 1
        real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(moving, step, cut)
        with pytest.raises(KeyboardInterrupt):
            arrange(store, 3)
    arrange(store, 2)  # and another number of shards than the one before
    assert everything(store) == before


def test_two_files_that_disagree_about_a_device_are_not_merged(tmp_path: Path) -> None:
    store = filled(tmp_path / "home.db")
    arrange(store, 2)
    other = Scene(store, policies=POLICIES)
    other.record(frames([7])[0], device="sensor-0")
    other.store.close()
    own = contents(shard_store(store, owner("sensor-0", 2)))
    with pytest.raises(StoreError, match="sensor-0, and not the same"):
        arrange(store, 2)
    assert contents(shard_store(store, owner("sensor-0", 2))) == own
    assert sorted(contents(store)) == ["sensor-0"]


def test_files_that_are_in_use_are_not_touched(tmp_path: Path) -> None:
    store = filled(tmp_path / "home.db")
    arrange(store, 2)
    with closing(Store(shard_store(store, 0), lease=Lease())), pytest.raises(StoreError, match="another gateway"):
        arrange(store, 1)


def test_a_shard_with_devices_is_not_deleted(tmp_path: Path) -> None:
    store = filled(tmp_path / "home.db")
    arrange(store, 2)
    with pytest.raises(StoreError, match="still holds devices"):
        delete_shard(shard_store(store, 1))


def test_every_table_of_devices_is_moved(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "s.db")) as store:
        tables = {row[0] for row in store._db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        once = {"streams", "watermarks", "release_record", "released", "discovered", "sqlite_sequence", "journal"}
        assert {table.name for table in TABLES} == tables - once
        for table in TABLES:
            assert table.columns == tuple(row[1] for row in store._db.execute(f"PRAGMA table_info({table.name})"))
