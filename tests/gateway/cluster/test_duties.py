"""Words between processes that share devices, and messages of devices that are another one's."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from fugu.contract.reports import AlarmCode
from fugu.contract.topics import topic_of
from fugu.host.database import DatabaseError, FileLostError
from fugu.host.process import Wake
from fugu.mqtt import Broker
from gateway.cluster.duties import OwnDevices, ShardReader
from gateway.cluster.shard_watch import ShardChannel, ShardWatch
from gateway.health.monitor import Alarms
from gateway.loop import gateway as gateway_module
from gateway.loop import process
from gateway.loop.duties import NotArrangedError, SoleProcess
from gateway.loop.gateway import Gateway
from gateway.parts import Message
from gateway.store.shards import Shard, owner
from tests.support.brokers import wait_until
from tests.support.gateway_files import gateway_config
from tests.support.scenes import loop_of, write_policies

DEVICES = [f"sensor-{index}" for index in range(6)]


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ShardChannel]:
    channel = ShardChannel(tmp_path / "channel.db")
    channel.begin()
    yield channel
    channel.close()


def test_what_releases_need_is_known_once_it_was_said_and_never_that_of_a_process_before(channel: ShardChannel) -> None:
    """A shard would erase ticks that a release is still to be made of."""
    for needed in ({("watch", "hr"): 5, ("ring", "hr"): 7}, {("ring", "hr"): 9}):
        assert not channel.is_known or needed == {("ring", "hr"): 9}
        channel.put_needed(needed)
        assert (channel.is_known, channel.needed_ticks()) == (True, needed)
    channel.begin()
    assert not channel.is_known
    with pytest.raises(DatabaseError, match="not known yet"):
        channel.needed_ticks()


def test_alarms_of_a_shard_are_told_once_and_so_is_one_that_stays_away(channel: ShardChannel, tmp_path: Path) -> None:
    now = 100.0
    watch = ShardWatch(ShardChannel(tmp_path / "channel.db"), 1, Counter(), lambda: now)
    alarms = Alarms(lambda: now, lambda: now)

    def after(count: int | None, *, connected: bool = True) -> dict[str, int]:
        """Counts of all alarms, once a shard has said that of its own; with `None` it has said nothing."""
        if count is not None:
            alarm_rows = [(AlarmCode.FLOOD, "watch", "", count)]
            channel.beat(0, {"connected": connected, "since": 1.0, "counters": {}, "alarms": alarm_rows})
        watch.read()
        watch.look(alarms, now)
        return {str(alarm.code): alarm.count for alarm in alarms.current()}

    try:
        assert [after(count) for count in (2, 2, 3)] == [{"flood": 2}, {"flood": 2}, {"flood": 3}]
        assert after(5, connected=False) == {"flood": 3}, "it is told when the shard is there again"
        assert after(6) == {"flood": 6}
        now += 6.0
        assert after(None) == {"flood": 6}
        now += 10.0
        assert after(None) == {"flood": 6}
        now += 0.5
        assert after(None) == {"flood": 6, "shard": 1}
    finally:
        watch.stop()


def test_what_a_shard_says_and_nobody_can_read_is_logged_once(
    channel: ShardChannel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.cluster.shard_watch._ROUND_SECONDS", 0.0)
    channel.beat(0, {"connected": True})
    clock = itertools.count()
    watch = ShardWatch(ShardChannel(tmp_path / "channel.db"), 1, Counter(), lambda: float(next(clock)))
    watch.start()
    wait_until(lambda: next(clock) > 10, "some rounds")
    watch.stop()
    assert [record.message for record in caplog.records] == ["what shards say cannot be read: KeyError"]


def test_a_shard_hears_its_own_devices_and_ends_other_subscriptions_once_a_connection() -> None:
    own, other = (next(name for name in DEVICES if owner(name, 2) == index) for index in (1, 0))
    link, store, counters = Mock(), Mock(), Counter[str]()
    catalogue: Any = SimpleNamespace(fleet="home", names=lambda: [own])
    part = OwnDevices(loop_of(store=store, link=link, catalogue=catalogue, counters=counters), Shard(1, 2))

    def heard(device: str) -> bool:
        return part.heard(Message(topic_of("symbols", "home", device, "hr"), b""))

    (subscribed,) = (list(call.args[0]) for call in link.subscribe.call_args_list)
    assert {topic.split("/")[3] for topic in subscribed} == {own}
    assert (heard(own), counters["strays"], link.unsubscribe.call_count) == (False, 0, 0)
    assert (heard(other), heard(other)) == (True, True)
    assert (counters["strays"], link.unsubscribe.call_count) == (2, 1)
    part.connected(begun_anew=False)
    assert heard(other)
    assert link.unsubscribe.call_count == 2
    store.check.side_effect = FileLostError("another process has taken it")
    with pytest.raises(FileLostError):
        part.pump()


def test_a_shard_that_comes_back_unsettles_releases_and_what_they_need_is_said_when_it_changes() -> None:
    store, channel, progress, releasing = Mock(), Mock(), Mock(), Mock()
    part = ShardReader(loop_of(store=store), channel, progress, releasing)
    progress.note_return.return_value = False
    releasing.needed_ticks.return_value = {("watch", "hr"): 5}
    part.pump()
    part.pump()
    assert (releasing.wait_again.call_count, releasing.stored.call_count) == (0, 2)
    channel.put_needed.assert_called_once_with({("watch", "hr"): 5})
    progress.note_return.return_value, progress.refresh.return_value = True, False
    part.pump()
    assert (releasing.wait_again.call_count, releasing.stored.call_count) == (1, 2), "also between two reads"
    progress.note_return.return_value = False
    part.pump()
    assert releasing.wait_again.call_count == 1
    releasing.needed_ticks.return_value = {}
    part.pump()
    channel.put_needed.assert_called_with({})
    for guard in (store, channel):
        guard.check.side_effect = FileLostError("another process has its place")
        with pytest.raises(FileLostError):
            part.pump()
        guard.check.side_effect = None


class Unarranged(SoleProcess):
    """The duty of a shard while another number of processes has the devices."""

    def await_turn(self) -> None:
        raise NotArrangedError("one process may have the devices now")


def test_a_shard_that_waits_to_be_arranged_is_alive_however_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that is not alive for so long ends its process."""
    monkeypatch.setattr(gateway_module, "STUCK_SECONDS", 0.5)
    monkeypatch.setattr(process, "IDLE_SECONDS", 0.2)
    settings = gateway_config("home", Broker(port=1), tmp_path / "s", write_policies(tmp_path / "policies"))
    gateway, stop = Gateway(settings, Unarranged(settings)), Wake()
    turns: list[bool] = []

    def turn() -> None:
        turns.append(gateway.is_alive)
        if len(turns) == 5:
            stop.set()

    assert process.serve(gateway, stop, lambda: None, turn) == 0
    assert turns == [True] * 5
