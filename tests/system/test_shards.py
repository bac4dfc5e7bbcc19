"""Several shards behind a real broker: whatever is killed, nothing is lost, applied twice or released twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from fugu.contract.frames import SymbolFrame
from fugu.contract.release_frames import decode_release
from gateway.health import asked
from gateway.releases.audit import verify
from gateway.releases.ledger import Ledger
from gateway.service.ownership import owner
from gateway.service.process import start_shards
from gateway.service.service import Gateway
from gateway.service.settings import GatewaySettings
from gateway.service.shard_stores import shard_store, store_of, stores
from gateway.service.store import Location, Server, Store
from tests.support.brokers import Mosquitto, wait_until
from tests.support.gateway_service import Device
from tests.support.release_scenes import Public, scheduled, write_config
from tests.support.scenes import frames, policy, write_policies

NAMES = ("sensor-0", "sensor-2", "sensor-6", "sensor-7")


class Site:
    """A gateway with shards in this process, its devices, and what they have sent."""

    def __init__(self, broker: Mosquitto, folder: Path, store: Location, **more: object) -> None:
        self.store = store
        policies = write_policies(folder / "policies", [policy(1, device=name) for name in NAMES])
        self.settings = {"fleet": "home", "broker": broker.broker, "store": self.store, "policies": policies, **more}
        self.devices = [Device(broker, name) for name in NAMES]
        self.public = Public(broker)
        self.sent: dict[str, list[SymbolFrame]] = {name: [] for name in NAMES}

    def run(self, shards: int) -> Gateway:
        settings = GatewaySettings(**self.settings, shards=shards)  # type: ignore[arg-type]
        gateway = Gateway(settings, start_shards(settings))
        gateway.start()
        for device in self.devices:
            before = device.watermarks
            device.say_birth()
            wait_until(device.answered_after(before), "a watermark")
            device.send_again()
        return gateway

    def send(self, sizes: Sequence[int]) -> None:
        """Every device sends more."""
        for seed, device in enumerate(self.devices):
            mine = self.sent[device.name]
            every = frames([*(len(frame.symbols) for frame in mine), *sizes], seed=seed)
            device.send(every[len(mine) :])
            mine[:] = every

    @property
    def all_stored(self) -> bool:
        """Whether all that was sent is durable."""
        return not any(device.outbox for device in self.devices)

    def check(self, shards: int) -> None:
        """Every frame is stored once, in the file of the shard that owns its device; what it says is what was sent."""
        for name, sent in self.sent.items():
            home = self.store if shards == 1 else shard_store(self.store, owner(name, shards))
            assert store_of(self.store, name) == home
            with closing(Store(home)) as store:
                number = store.stream_id(name, "hr")
                assert number is not None
                stored = store.symbols.holding(number, 0, sent[-1].last)
                assert b"".join(one.symbols for one in stored) == b"".join(one.symbols for one in sent)
                assert stored[-1].last == sent[-1].last

    def close(self) -> None:
        self.public.link.stop()
        for device in self.devices:
            device.stop()


def process_of(index: int) -> int:
    """The process of a shard of this one."""
    import multiprocessing

    (found,) = [one for one in multiprocessing.active_children() if one.name == f"fugu-shard-{index}"]
    assert found.pid is not None
    return found.pid


@pytest.mark.long
def test_a_shard_that_is_killed_comes_back_and_shards_that_come_and_go_take_their_part(
    broker: Mosquitto, tmp_path: Path
) -> None:
    ledger = tmp_path / "l.sqlite"
    site = Site(broker, tmp_path, tmp_path / "s.sqlite", releases=write_config(tmp_path, scheduled()), ledger=ledger)
    gateway = site.run(2)
    site.send([10, 5])
    wait_until(lambda: site.all_stored, "two frames of each")
    wait_until(lambda: not asked(site.store)["shards"]["missing"], "word of each shard")
    dead = owner("sensor-0", 2)
    os.kill(process_of(dead), signal.SIGKILL)
    site.send([7] * 3)
    others = [device for device in site.devices if owner(device.name, 2) != dead]
    wait_until(lambda: not any(device.outbox for device in others), "the frames of the shard that lives")
    with closing(Ledger(ledger)) as opened:  # the other shard's devices have gone on without it
        assert opened.entries() == []
    wait_until(lambda: site.all_stored, "the frames of the shard that was killed")
    wait_until(lambda: len(site.public.payloads) == 1, "a release about all devices")
    wait_until(lambda: all(device.estimates for device in site.devices), "estimates of each device")
    wait_until(lambda: not asked(site.store)["shards"]["missing"])
    said = asked(site.store)
    assert said["counters"]["shards_restarted"] == 1
    assert "shard" in [alarm["code"] for alarm in said["alarms"]]
    assert sorted(said["devices"]) == sorted(NAMES)
    assert said["counters"]["stored"] >= 3 * len(NAMES)  # of a process that is killed, what it said last
    gateway.stop()
    site.check(2)
    for shards in (3, 1):
        gateway = site.run(shards)
        site.send([4, 4])
        wait_until(lambda: site.all_stored, f"two more frames of each, with {shards} shards")
        wait_until(lambda: len(set(site.public.payloads)) == 2, "the next release")
        if shards == 1:
            wait_until(lambda: not stores(site.store), "the end of the shards' sessions")
        gateway.stop()
        site.check(shards)
    assert not gateway.failed.is_set()
    payloads = list(dict.fromkeys(site.public.payloads))  # the newest is published again at every start
    released = [decode_release(payload) for payload in payloads]
    assert [(one.first, one.devices, one.observed) for one in released] == [(0, 4, 80), (20, 4, 80)]
    published = {one.entry: payload for one, payload in zip(released, payloads, strict=True)}
    with closing(Ledger(ledger)) as opened:
        assert verify(opened, published).problems == ()
    site.close()


@pytest.mark.long
def test_shards_of_one_machine_may_have_their_stores_on_a_server(
    broker: Mosquitto, server: Server, tmp_path: Path
) -> None:
    site = Site(broker, tmp_path, server)
    for shards in (2, 1):
        gateway = site.run(shards)
        site.send([4, 4])
        wait_until(lambda: site.all_stored, f"two more frames of each, with {shards} shards")
        said = asked(server)
        assert sorted(said["devices"]) == sorted(NAMES)
        assert ("shards" in said) == (shards > 1)
        if shards == 1:
            wait_until(lambda: not stores(server), "the end of the shards' sessions")
        gateway.stop()
        assert not gateway.failed.is_set()
        site.check(shards)
    site.close()
