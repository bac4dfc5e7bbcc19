"""Knowledge of shards from their words alone: which are missing, and the sums of their counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from gateway.cluster.shard_watch import ShardChannel, ShardWatch


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
    assert (watch.missing, watch.reports) == ((0, 1), {})
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
