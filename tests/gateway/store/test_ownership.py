"""Which shard owns a device: golden values, how few devices move, and how evenly they are spread."""

from __future__ import annotations

from collections import Counter

import pytest

from fugu.contract.errors import UsageError
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
