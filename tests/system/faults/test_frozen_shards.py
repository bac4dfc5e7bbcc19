"""Shards that are killed, frozen with another in their place, and cut off: every tick once, every release once."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest

from fugu.contract.frames import SymbolFrame
from fugu.contract.reports import ReleaseFrame
from gateway.releases.audit import verify
from gateway.releases.ledger import Ledger
from gateway.store.location import Server, ledger_beside
from tests.support.brokers import Mosquitto, wait_until
from tests.support.gateway_service import Device
from tests.support.postgres import break_connections
from tests.support.release_scenes import Public, scheduled, write_config
from tests.support.scenes import frames, policy, write_policies
from tests.support.shard_processes import Process, check_store

NAMES = ("sensor-0", "sensor-2", "sensor-6")
ROLES = ("0/2", "1/2", "fleet/2")
_FROZEN_SECONDS = (2.0, 20.0, 60.0)
"""The longest is more than twice as long as anybody waits for a shard."""


class Site:
    """Parts of a gateway, and those that were frozen and have been replaced, with the time at which they go on."""

    def __init__(self, folder: Path, broker: Mosquitto, server: Server) -> None:
        self._started = 0
        self._make = lambda role, name: Process(folder, broker, server, role, name)
        self.frozen: list[tuple[float, Process]] = []
        self.parts = {role: self._start(role) for role in ROLES}

    def _start(self, role: str) -> Process:
        self._started += 1
        return self._make(role, str(self._started))

    def kill(self, role: str) -> None:
        self.parts[role].kill()
        self.parts[role] = self._start(role)

    def freeze(self, role: str, seconds: float) -> None:
        """Freeze a part that has begun, else it would be the newest when it goes on, and start another in its place."""
        old = self.parts[role]
        wait_until(lambda: "has started" in old.log or old.has_ended(), role)
        old.send(signal.SIGSTOP)
        self.frozen.append((time.monotonic() + seconds, old))
        self.parts[role] = self._start(role)

    def go_on(self, *, all_of_them: bool = False) -> None:
        """Let those go on whose time has come: each finds that it was replaced, or cut off, and ends.

        One that was frozen before it had begun takes the place of its replacement, which is started again.
        """
        for at, old in [*self.frozen]:
            if all_of_them:
                wait_until(lambda at=at: time.monotonic() >= at, "the end of its time")
            if time.monotonic() >= at:
                self.frozen.remove((at, old))
                old.send(signal.SIGCONT)
                wait_until(lambda old=old: old.has_ended() or self._restarted(), "the end of what was frozen")
                assert old.ended() == 1, old.log

    def _restarted(self) -> bool:
        """Start again what has ended; always false."""
        for role in ROLES:
            if self.parts[role].has_ended():
                self.parts[role] = self._start(role)
        return False

    def settle(self) -> None:
        """Wait until each part works; one that lost the database has ended in order, and is started again."""

        def work() -> bool:
            return self._restarted() or all("has started" in part.log for part in self.parts.values())

        wait_until(work, "all parts")


@pytest.mark.soak
def test_shards_lose_nothing_and_tell_nothing_twice(broker: Mosquitto, server: Server, tmp_path: Path) -> None:
    seed = int(os.environ.get("FAULTS_SEED", random.SystemRandom().randrange(2**32)))
    print(f"FAULTS_SEED={seed}")
    chosen = random.Random(seed)
    write_policies(tmp_path / "policies", [policy(1, device=name) for name in NAMES])
    write_config(tmp_path, scheduled())
    site = Site(tmp_path, broker, server)
    devices = {name: Device(broker, name) for name in NAMES}
    sent: dict[str, list[SymbolFrame]] = {name: [] for name in NAMES}
    public = Public(broker)
    site.settle()
    for fault in range(24):
        for number, (name, device) in enumerate(devices.items()):
            sizes = [*(len(frame.symbols) for frame in sent[name]), chosen.randrange(1, 12)]
            every = frames(sizes, seed=number)
            device.send(every[len(sent[name]) :])
            sent[name] = every
        role = chosen.choice(ROLES)
        match chosen.choice(("kill", "kill", "freeze", "freeze", "cut")):
            case "kill":
                site.kill(role)
            case "freeze":
                site.freeze(role, _FROZEN_SECONDS[fault % 3])
            case _:
                break_connections(server)
        site.go_on()
        if chosen.random() < 0.5:  # else the next fault comes while the last one is felt
            settle(site, devices)
    site.go_on(all_of_them=True)
    settle(site, devices)
    check(server, sent, public)


def settle(site: Site, devices: dict[str, Device]) -> None:
    """Wait until every frame is stored, as its device is told."""
    site.settle()

    def stored(device: Device) -> bool:
        if device.outbox:
            device.say_birth()
            device.send_again()
        site.settle()
        return not device.outbox

    for device in devices.values():
        wait_until(lambda device=device: stored(device), f"all frames of {device.name}")


def check(server: Server, sent: dict[str, list[SymbolFrame]], public: Public) -> None:
    """Every tick is stored once, as it was sent; every release was published once, and is in the ledger."""
    ticks = min(some[-1].last + 1 for some in sent.values())
    check_store(server, sent)
    wait_until(
        lambda: len({ReleaseFrame.decode(payload).first for payload in public.payloads}) >= ticks // 20 - 1, "releases"
    )
    payloads = dict.fromkeys(public.payloads)  # the newest is published again at every start
    released = {payload: ReleaseFrame.decode(payload) for payload in payloads}
    assert len({frame.first for frame in released.values()}) == len(released), "nothing is released twice"
    with closing(Ledger(ledger_beside(server))) as ledger:
        assert verify(ledger, {frame.entry: payload for payload, frame in released.items()}).problems == ()
