"""On the wire: what is kept no longer."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.loop.gateway import Gateway
from tests.support.brokers import Mosquitto, wait_until
from tests.support.gateway_files import gateway_config
from tests.support.gateway_service import Device
from tests.support.scenes import frames, write_policies


def test_what_is_kept_no_longer_is_not_asked_for_again_and_not_taken_twice(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symbols in the journal are taken note of when they are sealed, here at once; of a chunk an hour more is kept."""
    monkeypatch.setattr("gateway.loop.retention._REST_SECONDS", 0.1)
    monkeypatch.setattr("gateway.loop.recorder.SEAL_SECONDS", 0.1)
    store, policies = tmp_path / "s.sqlite", write_policies(tmp_path / "policies")
    gateway = Gateway(gateway_config("home", broker.broker, store, policies, keep={"symbols": "1h"}))
    gateway.start()

    def asked(query: str) -> int:
        with closing(sqlite3.connect(store)) as database:
            number: int | None = database.execute(query).fetchone()[0]
        return -1 if number is None else number

    def oldest_is_kept() -> bool:
        return 10_800 <= asked("SELECT MIN(first) FROM chunks") <= 14_400

    device, sequence = Device(broker), frames([600] * 30)
    device.say_birth()
    wait_until(device.answered_after(0))
    device.send(sequence)
    wait_until(lambda: not device.outbox)
    wait_until(lambda: gateway.counters["frames_removed"] > 0)
    wait_until(oldest_is_kept)
    assert asked("SELECT COUNT(*) FROM journal") == 0
    device.send_again(sequence)
    wait_until(lambda: not device.outbox and gateway.counters["duplicate"] == 30)
    assert oldest_is_kept()
    assert gateway.counters["stored"] == 30
    device.stop()
    gateway.stop()
    assert not gateway.failed.is_set()
