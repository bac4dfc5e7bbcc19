"""Releases over a real broker: metadata, the ledger first, once for each window whatever is killed, and refusals."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from fugu.contract.reports import ReleaseFrame
from gateway.loop.gateway import Gateway
from gateway.releases.audit import verify
from gateway.releases.ledger import Ledger
from tests.support.brokers import Mosquitto, wait_until
from tests.support.gateway_files import gateway_config
from tests.support.gateway_service import Device, gateway_here
from tests.support.release_scenes import FLEET, Public, scheduled, start_gateway, write_config
from tests.support.scenes import frames, write_policies


@pytest.fixture
def gateway(broker: Mosquitto, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway in this process that releases a count of both devices."""
    write_policies(tmp_path / "policies", FLEET)
    config = write_config(tmp_path, scheduled())
    place = "home", broker.broker, tmp_path / "s.sqlite", tmp_path / "policies"
    with gateway_here(gateway_config(*place, releases=config, ledger=tmp_path / "l.sqlite")) as running:
        yield running
    assert not running.failed.is_set()


def test_a_scheduled_release_arrives_and_its_entry_was_there_before(
    broker: Mosquitto, gateway: Gateway, tmp_path: Path
) -> None:
    entries: list[tuple[bytes, int, int]] = []
    noted: list[bool] = []

    def look_up(payload: bytes) -> None:
        number = ReleaseFrame.decode(payload).entry
        with sqlite3.connect(f"file:{tmp_path / 'l.sqlite'}?mode=ro", uri=True) as ledger:
            query = "SELECT payload, first, last FROM entries WHERE number=?"
            entries.append(ledger.execute(query, (number,)).fetchone())
        with sqlite3.connect(f"file:{tmp_path / 's.sqlite'}?mode=ro", uri=True) as store:
            noted.append(store.execute("SELECT entry FROM release_record").fetchone()[0] >= number)

    public = Public(broker, look_up)
    devices = [Device(broker, name) for name in ("watch", "ring")]
    for device in devices:
        device.say_birth()
        wait_until(device.answered_after(0))
    for seed, device in enumerate(devices):
        device.send(frames([10] * 5, seed=seed))
    wait_until(lambda: len(public.payloads) == 2)
    assert entries == [(public.payloads[0], 0, 19), (public.payloads[1], 20, 39)]
    assert noted == [True, True]  # in the store too, before it was published
    frame = public.releases[0]
    assert (frame.name, frame.stream, frame.audience, frame.query) == ("active", "hr", "public", "count")
    assert (frame.states, frame.devices, frame.first, frame.length) == (("level 1",), 2, 0, 20)
    assert 0 < frame.observed <= 40
    assert (frame.confidence, frame.epsilon, frame.adversary) == (0.95, 1.0, "informed")
    assert (frame.mechanism, frame.noise, frame.entry, frame.noisy) == ("chain", "discrete-laplace", 1, True)
    assert frame.low[0] <= frame.values[0] <= frame.high[0]  # an end where no truth is beyond the number
    wait_until(lambda: gateway.counters["releases_published"] == 2)
    with sqlite3.connect(tmp_path / "l.sqlite") as ledger:
        charges = dict(ledger.execute("SELECT device, charge FROM members JOIN entries USING (in_group)").fetchall())
        allowed = dict(ledger.execute("SELECT device, allowance FROM accounts").fetchall())
    assert frame.charge == max(charges.values()) / 10**12
    assert all(0 < charge <= allowed[device] for device, charge in charges.items())
    late = Public(broker)  # the newest one is retained
    wait_until(lambda: late.payloads)
    assert (late.payloads, late.retained) == ([public.payloads[1]], [True])
    for client in (public, late):
        client.link.stop()
    for device in devices:
        device.stop()


def test_killed_and_restarted_each_window_is_released_at_most_once(broker: Mosquitto, tmp_path: Path) -> None:
    write_policies(tmp_path / "policies", FLEET)
    write_config(tmp_path, scheduled(devices=["watch"]), scheduled("plain", "site", scale="3", devices=["watch"]))
    sequence, generator = frames([10] * 20), random.Random(2)
    public, device = Public(broker), Device(broker)
    device.say_birth()
    for part in range(2):
        seen = device.watermarks
        gateway = start_gateway(broker, tmp_path)
        wait_until(device.answered_after(seen), what="the gateway")
        device.send_again()
        arrived = len(public.payloads) + generator.randrange(0, 8)
        device.send(sequence[10 * part : 10 * part + 10])
        wait_until(lambda arrived=arrived: len(public.payloads) >= arrived)
        gateway.kill()
    seen = device.watermarks
    gateway = start_gateway(broker, tmp_path)
    wait_until(device.answered_after(seen))
    device.send_again()
    expected = {(name, first) for name in ("active", "plain") for first in range(0, 180, 20)}
    wait_until(lambda: {(frame.name, frame.first) for frame in public.releases} == expected)
    assert gateway.stop() == 0
    ledger = Ledger(tmp_path / "l.sqlite", create=False)
    published = {ReleaseFrame.decode(payload).entry: payload for payload in public.payloads}
    assert set(published.values()) == set(public.payloads)  # what arrived again had the same bytes
    assert len(published) == len(expected) == len(ledger.entries())
    assert verify(ledger, published).problems == ()
    assert {entry.state for entry in ledger.entries()} == {"published"}
    log = gateway.log
    assert "Traceback" not in log
    assert "no release" not in log
    ledger.close()
    public.link.stop()
    device.stop()


def test_what_the_broker_refuses_is_published_at_the_next_start_with_the_same_bytes(tmp_path: Path) -> None:
    write_policies(tmp_path / "policies", FLEET)
    write_config(tmp_path, scheduled(devices=["watch"]))
    access = tmp_path / "access"
    access.write_text("topic readwrite fugu/2/home/+/#\ntopic deny fugu/2/home/release/#\n")
    (tmp_path / "broker").mkdir()
    options = f"allow_anonymous true\nacl_file {access}\n"
    with Mosquitto(tmp_path / "broker", options) as broker:
        device = Device(broker)
        device.say_birth()
        gateway = start_gateway(broker, tmp_path)
        wait_until(device.answered_after(0))
        device.send(frames([10] * 3))
        wait_until(lambda: pending(tmp_path))
        assert gateway.stop() == 0
        assert "publish_refused=1" in gateway.log
        (reserved,) = pending(tmp_path)
        access.write_text("topic readwrite fugu/2/home/#\n")
        broker.restart()
        public = Public(broker)
        gateway = start_gateway(broker, tmp_path)
        wait_until(lambda: public.payloads)
        assert public.payloads == [reserved]
        wait_until(lambda: not pending(tmp_path))
        assert gateway.stop() == 0
        public.link.stop()
        device.stop()


def pending(folder: Path) -> list[bytes]:
    ledger = Ledger(folder / "l.sqlite", create=False)
    payloads = [entry.payload for entry in ledger.entries(pending=True)]
    ledger.close()
    return payloads
