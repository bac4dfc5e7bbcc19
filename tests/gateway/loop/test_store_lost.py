"""A store or a ledger that vanishes or rots under a gateway: nothing more is called durable, and it ends."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fugu.host.database import is_lost
from gateway.loop.gateway import Gateway
from gateway.store.store import Store, StoreError
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.gateway_files import gateway_config
from tests.support.gateway_service import Device, GatewayProcess
from tests.support.release_scenes import Bench, scheduled
from tests.support.scenes import Scene, frames, write_policies

PAGE = 4096
MADE = frames([1000] * 60)


def delete(store: Path) -> None:
    store.unlink()


def delete_log(store: Path) -> None:
    store.with_name("s.sqlite-wal").unlink()


def replace_by_a_copy(store: Path) -> None:
    copy = store.with_name("copy")
    shutil.copy(store, copy)
    copy.replace(store)


def cut(store: Path) -> None:
    with store.open("r+b") as file:
        file.truncate(2 * PAGE)


def overwrite(store: Path) -> None:
    """All pages but the first two, whatever the gateway has read of them."""
    with store.open("r+b") as file:
        file.seek(2 * PAGE)
        file.write(b"\x5a" * (store.stat().st_size - 2 * PAGE))


def checkpoint(store: Path) -> None:
    """Move the log into the file, as happens by itself after some time."""
    with sqlite3.connect(store) as db:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    db.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("attack", "says"),
    [  # tests/host/test_database.py has all of them, without a gateway
        pytest.param(delete, "s.sqlite is gone: No such file", marks=pytest.mark.soak),
        pytest.param(delete_log, "s.sqlite-wal is gone: No such file", marks=pytest.mark.soak),
        (replace_by_a_copy, "s.sqlite is another file now"),
        pytest.param(cut, "s.sqlite has been cut short", marks=pytest.mark.soak),
        (overwrite, "s.sqlite has been overwritten, and is damaged ("),
    ],
)
def test_a_store_that_is_damaged_under_the_gateway_ends_it_and_nothing_more_is_called_durable(
    broker: Mosquitto, tmp_path: Path, attack: Callable[[Path], None], says: str
) -> None:
    store = tmp_path / "s.sqlite"
    write_policies(tmp_path / "policies")
    gateway, device = GatewayProcess(broker, tmp_path), Device(broker)
    device.say_birth()
    wait_until(device.answered_after(0))
    device.send(MADE[:20])
    wait_until(lambda: not device.outbox)
    checkpoint(store)
    device.send(MADE[20:21])
    wait_until(lambda: not device.outbox)
    attack(store)
    for frame in MADE[21:]:  # while it flows, whichever frame it is that meets the damage
        device.send([frame])
    device.say_birth()
    assert gateway.ended() == 1
    assert says in gateway.log
    assert "Traceback" not in gateway.log
    assert device.outbox
    held = list(device.outbox)
    for ending in ("", "-wal", "-shm"):
        store.with_name(f"s.sqlite{ending}").unlink(missing_ok=True)
    gateway = GatewayProcess(broker, tmp_path)
    device.send_again()
    wait_until(lambda: not device.outbox)
    gateway.kill()
    with closing(Store(store)) as again:
        number = again.number_of("watch", "hr")
        stored = {tick for frame in again.symbols.following(number, 0) for tick in range(frame.first, frame.last + 1)}
    assert {tick for frame in held for tick in range(frame.first, frame.last + 1)} <= stored
    device.stop()


def test_a_damaged_store_is_refused_at_the_start_in_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    scene.record(*MADE)
    scene.store.close()
    whole = (tmp_path / "s.sqlite").read_bytes()
    settings = gateway_config("home", Mosquitto().broker, tmp_path / "s.sqlite", write_policies(tmp_path / "policies"))
    for damaged in (
        whole[: 3 * PAGE] + b"\x5a" * 2 * PAGE + whole[5 * PAGE :],
        whole[: len(whole) // PAGE // 2 * PAGE],
        b"\x5a" * PAGE + whole[PAGE:],
    ):
        (tmp_path / "s.sqlite").write_bytes(damaged)
        with pytest.raises(StoreError, match=r"store s\.sqlite.*: put back a copy, or move it away") as refused:
            Gateway(settings).start()
        assert "\n" not in str(refused.value)
    (tmp_path / "s.sqlite").write_bytes(whole)
    Store(tmp_path / "s.sqlite").refuse_damage(history=True)


@pytest.mark.parametrize("attack", [delete, replace_by_a_copy, overwrite])
def test_a_ledger_that_is_damaged_under_the_gateway_ends_it(tmp_path: Path, attack: Callable[[Path], None]) -> None:
    bench = Bench(tmp_path, scheduled(devices=["watch"]))
    bench.work(*frames([10] * 3))
    checkpoint(tmp_path / "l.sqlite")
    attack(tmp_path / "l.sqlite")
    bench.ledger._db.execute("PRAGMA shrink_memory")
    bench.scene.record(*frames([10] * 30)[3:])
    bench.schedule.has_changed = True

    def all_are_made() -> bool:
        bench.schedule.pump(idle=True)
        return len(bench.frames) >= 14

    with pytest.raises(sqlite3.DatabaseError) as lost:
        wait_until(all_are_made)
    assert is_lost(lost.value)


def test_who_cannot_store_does_not_tell_the_watchdog_that_it_lives(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that somebody else holds is waited for, but nobody is told that all is well, and not for ever."""
    service = sys.modules["gateway.loop.gateway"]
    policies = write_policies(tmp_path / "policies")
    gateway = Gateway(gateway_config("home", broker.broker, tmp_path / "s.sqlite", policies))
    gateway.start()
    gateway._store._db.execute("PRAGMA busy_timeout=1")
    device = Device(broker)
    device.say_birth()
    wait_until(device.answered_after(0))
    with sqlite3.connect(tmp_path / "s.sqlite", isolation_level=None) as other:
        for held in (True, False, True):
            if held:
                other.execute("BEGIN IMMEDIATE")
                device.send(MADE[len(device.outbox) :][:1])
                wait_until(lambda: not gateway.is_alive)
                assert not gateway.failed.is_set()
            else:
                other.execute("ROLLBACK")
                device.send_again()
                wait_until(lambda: gateway.is_alive and not device.outbox)
        monkeypatch.setattr(service, "_FAILING_SECONDS", 0.0)
        device.send(MADE[5:6])
        wait_until(gateway.failed.is_set)
        other.execute("ROLLBACK")
    other.close()
    assert "the store has taken nothing for 0 s (database is locked)" in caplog.text
    device.stop()
    gateway.stop()


def with_damaged_history(store: Path) -> bytes:
    """Make a store in whose file a page of its chunks is overwritten; what the file had when it was whole."""
    scene = Scene(store)
    scene.record(*frames([1000] * 1000))
    scene.recorder.seal(now=True)
    scene.store.close()
    whole = store.read_bytes()
    with closing(sqlite3.connect(store)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name='chunks'").fetchone()
    store.write_bytes(whole[: (root - 1) * PAGE] + b"\x5a" * PAGE + whole[root * PAGE :])
    return whole


@pytest.mark.long
def test_damage_in_the_history_is_found_while_the_gateway_serves_and_refused_at_the_next_start(
    broker: Mosquitto, tmp_path: Path
) -> None:
    store, mark = tmp_path / "s.sqlite", tmp_path / "s.sqlite.damaged"
    whole = with_damaged_history(store)
    settings = gateway_config("home", broker.broker, store, write_policies(tmp_path / "policies"))

    def serve() -> Gateway:
        gateway = Gateway(settings)
        gateway.start()
        return gateway

    gateway = serve()
    assert gateway.failed.wait(PATIENCE)
    gateway.stop()
    assert mark.exists()
    with pytest.raises(StoreError, match=r"store s\.sqlite is damaged .*: put back a copy, or move it away"):
        serve()
    assert mark.exists()
    store.write_bytes(whole)
    gateway = serve()
    assert not mark.exists()
    gateway.stop()
    assert not gateway.failed.is_set()
    assert not mark.exists()
