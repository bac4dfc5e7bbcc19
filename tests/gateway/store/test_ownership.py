"""Which shard owns a device, how few devices move, how evenly they are spread; and what shards say of themselves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fugu.contract.errors import UsageError
from gateway.cluster.shard_watch import ShardChannel, ShardWatch
from gateway.store.shards import Shard, owner, read_role

NAMES = [f"device-{i}" for i in range(4000)]


def test_owners_are_the_same_for_ever_and_everywhere() -> None:
    assert [owner(name, 8) for name in ("watch", "ring", "hall-7", "a", "Z_-9")] == GOLDEN
    assert [owner(name, 1) for name in NAMES[:20]] == [0] * 20


GOLDEN = [3, 5, 0, 5, 7]


@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_one_more_shard_takes_its_part_and_nobody_else_moves(shards: int) -> None:
    before, after = [owner(name, shards) for name in NAMES], [owner(name, shards + 1) for name in NAMES]
    moved = [(former, other) for former, other in zip(before, after, strict=True) if former != other]
    assert {other for _, other in moved} == {shards}
    mean = len(NAMES) / (shards + 1)
    assert abs(len(moved) - mean) < 5 * mean**0.5


def test_devices_are_spread_evenly() -> None:
    sizes = Counter(owner(name, 8) for name in NAMES)
    assert sorted(sizes) == list(range(8))
    assert max(abs(size - 500) for size in sizes.values()) < 5 * 500**0.5


def test_every_device_belongs_to_exactly_one_shard() -> None:
    shards = [Shard(index, 5) for index in range(5)]
    assert all(sum(shard.owns(name) for shard in shards) == 1 for name in NAMES[:500])


@pytest.mark.parametrize(
    "text", ["", "1", "2/2", "0/1", "0/257", "-1/3", "1/ 3", "a/b", "0/4/4", "٣/4", "fleet", "fleet/1", "Fleet/2"]
)
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_role(text)


def test_a_shard_is_written_as_it_is_read() -> None:
    assert read_role("2/3") == (3, Shard(2, 3))
    assert str(Shard(2, 3)) == "2/3"
    assert read_role("fleet/256") == (256, None)


def test_shards_are_known_by_what_they_say(tmp_path: Path) -> None:
    now, counters = [100.0], Counter[str]()
    shards = ShardChannel(tmp_path / "c.db")
    shards.begin()

    def say(shard: int, since: float, stored: int, **more: object) -> None:
        beat = {"alive": True, "connected": True, "since": since, "counters": {"stored": stored}}
        shards.beat(shard, beat | more)
        watch.read()

    watch = ShardWatch(ShardChannel(tmp_path / "c.db"), 2, counters, lambda: now[0])
    watch.read()
    assert (watch.missing, watch.counters(), watch.heard) == ((0, 1), Counter(), 0)
    say(0, 7.0, 10)
    say(1, 8.0, 1)
    assert watch.missing == ()
    say(1, 8.0, 2, connected=False, alive=False)
    assert watch.missing == (1,)
    now[0] = 105.5
    say(1, 8.0, 3)
    assert watch.missing == (0,)  # it has said nothing for more than five seconds
    say(0, 107.0, 4)  # and was another process then
    assert (watch.missing, watch.counters(), counters["shards_restarted"]) == ((), Counter(stored=10 + 4 + 3), 1)
    say(0, 109.0, 0)
    assert (watch.missing, watch.counters()["stored"], counters["shards_restarted"]) == ((), 17, 2)
    # The fleet's process was started again: what it finds is of shards that go on.
    shards.begin()
    again = ShardWatch(ShardChannel(tmp_path / "c.db"), 2, counters, lambda: now[0])
    again.read()
    assert again.missing == (0, 1)
    shards.beat(0, {"alive": True, "connected": True, "since": 109.0, "counters": {"stored": 5}})
    again.read()
    assert (again.missing, again.counters(), counters["shards_restarted"]) == ((1,), Counter(stored=5), 2)
    for shard in (watch, again):
        shard.stop()
    shards.close()
