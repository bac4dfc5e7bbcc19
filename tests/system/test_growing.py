"""From two shards to three and back, under load, with the old ones still running: nothing is lost or twice."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gateway.releases.ledger import Ledger
from gateway.store.location import Server, ledger_beside
from gateway.store.store import Store
from tests.support.brokers import Mosquitto, wait_until
from tests.support.crowd import Crowd
from tests.support.release_scenes import Public, scheduled, write_config
from tests.support.scenes import policy, write_policies
from tests.support.shard_processes import Process, check_releases, check_store

NAMES = tuple(f"sensor-{index}" for index in range(4))
WINDOW = 100


def roles(count: int) -> list[str]:
    """All processes of so many shards."""
    return ["fleet", *map(str, range(count))]


@pytest.mark.long
@pytest.mark.processes
def test_from_two_shards_to_three_and_back_under_load_with_the_old_ones_still_running(
    broker: Mosquitto, server: Server, tmp_path: Path
) -> None:
    write_policies(tmp_path / "policies", [policy(1, device=name) for name in NAMES])
    write_config(tmp_path, scheduled(length=WINDOW))
    generations: list[list[Process]] = []
    with ExitStack() as running:
        public = Public(broker)
        running.callback(public.link.stop)
        crowd = running.enter_context(Crowd(broker, NAMES, frames_per_second=15.0))
        for turn, count in enumerate((2, 3, 2)):
            since = time.monotonic()
            new = [Process(tmp_path, broker, server, f"{role}/{count}", str(turn)) for role in roles(count)]
            for shard in new:
                running.callback(shard.kill)
            generations.append(new)
            wait_until(lambda new=new: all("has started" in shard.log for shard in new), f"{count} shards")
            if turn:
                for former in generations[turn - 1]:
                    assert former.ended() == 1, "whoever was there ends by itself"
                    assert (
                        "another generation of processes has" in former.log or "another process has taken" in former.log
                    )
            wait_until(
                lambda since=since: all(crowd.stored_again(name, since) for name in NAMES),
                f"frames of all devices by {count} shards",
            )
            before = len(set(public.payloads))
            wait_until(lambda before=before: len(set(public.payloads)) > before, "a release")
        late = Process(tmp_path, broker, server, "2/3", "late")  # as whatever starts processes again would
        running.callback(late.kill)
        wait_until(
            lambda: "shard 2/3 waits: 2 shards may have the devices now" in late.log, "one of before, that waits"
        )
        crowd.finish()
        wait_until(lambda: crowd.all_stored, "every frame")
        sent = crowd.sent
        past = min(frames[-1].last for frames in sent.values()) // WINDOW  # a window is past once a later tick is there
        wait_until(lambda: len(set(public.payloads)) >= past, "a release of every window")
        for last_shard in (*generations[-1], late):
            last_shard.send(signal.SIGTERM)
        assert [shard.ended() for shard in (*generations[-1], late)] == [0] * 4
        with closing(Ledger(ledger_beside(server))) as ledger:
            entries = len(ledger.entries())
        wait_until(lambda: len(set(public.payloads)) == entries, "what the ledger has")
    assert check_store(server, sent) > 0
    with closing(Store(server)) as store:
        assert store.shards == 2
    assert len(check_releases(server, public)) >= 3
