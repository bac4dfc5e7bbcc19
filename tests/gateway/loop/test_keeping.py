"""On the wire: what is published in a backlog, what is kept no longer, what was forgotten, what devices are told."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from gateway.estimates.history import estimates_between
from gateway.loop.gateway import Gateway
from gateway.loop.retention import forget_device
from tests.support.brokers import Mosquitto, wait_until
from tests.support.gateway_files import gateway_config
from tests.support.gateway_service import Device
from tests.support.scenes import frames, write_policies


@contextmanager
def running(broker: Mosquitto, folder: Path, *keep: str) -> Iterator[Gateway]:
    """A gateway in this process."""
    policies = write_policies(folder / "policies")
    ages = dict(text.split("=") for text in keep)
    gateway = Gateway(gateway_config("home", broker.broker, folder / "s.sqlite", policies, keep=ages))
    gateway.start()
    yield gateway
    gateway.stop()
    assert not gateway.failed.is_set()


def greeted(broker: Mosquitto, name: str = "watch") -> Device:
    """A device that the gateway has answered."""
    device = Device(broker, name)
    device.say_birth()
    wait_until(device.answered_after(0))
    return device


def rows(folder: Path, table: str) -> int:
    with closing(sqlite3.connect(folder / "s.sqlite")) as database:
        found: int = database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
    return found


def first_tick(folder: Path) -> int:
    """Where the first chunk begins."""
    with closing(sqlite3.connect(folder / "s.sqlite")) as database:
        found: int | None = database.execute("SELECT MIN(first) FROM chunks").fetchone()[0]
    return -1 if found is None else found


def test_estimates_starved_by_a_flood_of_frames_the_newest_of_every_stream_is_heard(
    broker: Mosquitto, tmp_path: Path
) -> None:
    with running(broker, tmp_path) as gateway:
        busy, quiet = greeted(broker), greeted(broker, "ring")
        made = frames([1] * 600)
        busy.send(made[:590])
        quiet.send(frames([20]))
        busy.send(made[590:])
        wait_until(lambda: not busy.outbox and not quiet.outbox)
        wait_until(lambda: 599 in busy.told and 19 in quiet.told)
        assert busy.estimates[-1].tick == 599
        wait_until(lambda: gateway.counters["coalesced"] + gateway.counters["estimates"] == 601)
        busy.stop()
        quiet.stop()
    unheard = estimates_between(tmp_path / "s.sqlite", "watch", "hr", 300, 301)
    assert [one.tick for one in unheard] == [300, 301]  # what nobody heard is there


def test_what_waits_for_a_broker_that_answers_nothing_is_bounded_and_the_newest_is_heard_after_it(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(broker, tmp_path) as gateway:
        device = greeted(broker)
        monkeypatch.setattr("gateway.loop.publisher.Publisher.MAX_IN_FLIGHT", 0)
        device.send(frames([2] * 500))
        wait_until(lambda: gateway.counters["stored"] == 500)
        wait_until(lambda: gateway._details()["estimates_waiting"] == 1)
        assert device.estimates == []
        monkeypatch.undo()
        device.say_birth()
        wait_until(lambda: 999 in device.told and not device.outbox)
        assert device.told == {998, 999}
        assert gateway.counters["coalesced"] == 499
        device.stop()


def test_what_is_kept_no_longer_is_not_asked_for_again_and_not_taken_twice(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symbols in the journal are taken note of when they are sealed, here at once; of a chunk an hour more is kept."""
    monkeypatch.setattr("gateway.loop.retention._REST_SECONDS", 0.1)
    monkeypatch.setattr("gateway.loop.recorder.SEAL_SECONDS", 0.1)
    made = frames([600] * 30)
    with running(broker, tmp_path, "symbols=1h") as gateway:
        device = greeted(broker)
        device.send(made)
        wait_until(lambda: not device.outbox)
        wait_until(lambda: gateway.counters["frames_removed"] > 0)
        wait_until(lambda: 10_800 <= first_tick(tmp_path) <= 14_400)
        assert rows(tmp_path, "journal") == 0
        device.send_again(made)
        wait_until(lambda: not device.outbox and gateway.counters["duplicate"] == 30)
        assert 10_800 <= first_tick(tmp_path) <= 14_400
        assert gateway.counters["stored"] == 30
        device.stop()


def test_a_forgotten_device_sends_everything_again_and_nothing_of_it_is_taken(
    broker: Mosquitto, tmp_path: Path
) -> None:
    made = frames([100] * 30)
    with running(broker, tmp_path):
        device = greeted(broker)
        device.send(made)
        wait_until(lambda: not device.outbox)
    assert forget_device(tmp_path / "s.sqlite", "watch").symbols == 3_000
    packed = np.packbits(np.frombuffer(made[0].symbols, dtype=np.uint8)).tobytes()
    assert not any(packed[:12] in path.read_bytes() for path in tmp_path.glob("s.sqlite*"))
    with running(broker, tmp_path) as gateway:
        device.send_again(made)
        device.say_birth()
        wait_until(lambda: not device.outbox)
        wait_until(lambda: gateway.counters["duplicate"] == 30)
        assert rows(tmp_path, "journal") == rows(tmp_path, "chunks") == 0
        before = len(device.estimates)
        more = frames([100] * 31)[30:]
        device.send(more)
        wait_until(lambda: len(device.estimates) > before and not device.outbox)
        assert rows(tmp_path, "journal") == 1
    device.stop()
