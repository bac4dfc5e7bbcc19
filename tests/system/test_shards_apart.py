"""Shards that are started one by one, with a store on a server: whatever is frozen, killed or replaced, all is once."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from fugu.contract.chains import BinaryChains
from fugu.contract.dating import dates_of
from fugu.contract.descriptions import Description
from fugu.contract.frames import Status, StreamStatus, SymbolFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.history import History, Noise, Span
from fugu.contract.topics import topic_of
from fugu.privacy.randomised_response import calibrate
from gateway.health.monitor import ask_gateway
from gateway.store.location import Server
from gateway.store.shards import owner
from tests.support.brokers import Mosquitto, wait_until
from tests.support.gateway_service import Device
from tests.support.processes import Recorder
from tests.support.release_scenes import Public, scheduled, write_config
from tests.support.scenes import frames, policy, write_policies
from tests.support.shard_processes import Process, check_releases, check_store

NAMES = ("sensor-0", "sensor-2", "sensor-6")


def epochs(server: Server, shard: int) -> list[tuple[str, int]]:
    """The epochs of all that a shard holds."""
    epochs = []
    with psycopg.connect(server.url) as connection:
        (schema,) = connection.execute("SELECT current_schema()").fetchone() or ("",)
        for part, name in ((schema, f"shard {shard}"), (f"{schema}_shards", f"beats-{shard}")):
            query = SQL("SELECT epoch FROM {} WHERE name=%s").format(Identifier(part, "holders"))
            epochs += [(f"{part} {name}", epoch) for (epoch,) in connection.execute(query, (name,))]
    return epochs


@pytest.mark.long
def test_a_shard_that_was_frozen_writes_nothing_and_a_fleet_that_is_killed_releases_once(
    broker: Mosquitto, server: Server, tmp_path: Path
) -> None:
    write_policies(tmp_path / "policies", [policy(1, device=name) for name in NAMES])
    write_config(tmp_path, scheduled())
    shards = [Process(tmp_path, broker, server, f"{index}/2") for index in range(2)]
    wait_until(
        lambda: all("waits: one process may have the devices now" in shard.log for shard in shards), "shards that wait"
    )
    fleet = Process(tmp_path, broker, server, "fleet/2")
    devices = {name: Device(broker, name) for name in NAMES}
    sent: dict[str, list[SymbolFrame]] = {name: [] for name in NAMES}
    public = Public(broker)

    def send(*sizes: int) -> None:
        for seed, (name, device) in enumerate(devices.items()):
            mine = sent[name]
            every = frames([*(len(frame.symbols) for frame in mine), *sizes], seed=seed)
            device.send(every[len(mine) :])
            mine[:] = every

    def again() -> None:
        for device in devices.values():
            before = device.watermarks
            device.say_birth()
            wait_until(device.answered_after(before), "a watermark")
            device.send_again()

    def all_stored() -> bool:
        return not any(device.outbox for device in devices.values())

    again()
    send(10, 5, 7)
    wait_until(all_stored, "the first frames")
    wait_until(lambda: len(set(public.payloads)) == 1, "a release")
    wait_until(lambda: not ask_gateway(server)["missing"], "word of each shard")
    assert sorted(ask_gateway(server)["devices"]) == sorted(NAMES)

    # A shard is frozen with frames on their way to it, and its place is taken.
    frozen = owner(NAMES[0], 2)
    old, before = shards[frozen], epochs(server, frozen)
    old.send(signal.SIGSTOP)
    send(4)
    shards[frozen] = Process(tmp_path, broker, server, f"{frozen}/2", "again")
    wait_until(lambda: "has started" in shards[frozen].log, "the one that takes its place")
    again()
    wait_until(all_stored, "frames that the frozen one never acknowledged")
    taken = epochs(server, frozen)
    assert [(name, epoch + 1) for name, epoch in before] == taken
    old.send(signal.SIGCONT)
    assert old.ended() == 1
    assert "another process has taken" in old.log
    assert epochs(server, frozen) == taken

    # The process of the whole fleet is killed when a release has just been published, and nothing more of it is known.
    killed = threading.Event()

    def kill(_payload: bytes) -> None:
        if not killed.is_set():
            fleet.send(signal.SIGKILL)
            killed.set()

    Public(broker, kill)
    send(9, 9)
    wait_until(killed.is_set, "the next release")
    fleet.ended()
    send(4)
    wait_until(all_stored, "frames that come while there is no process of the whole fleet")
    status = ask_gateway(server)  # by the shards of this machine
    assert (status["process"], sorted(status["devices"])) == ("shard 0/2, shard 1/2", sorted(NAMES))
    again_fleet = Process(tmp_path, broker, server, "fleet/2", "again")
    wait_until(lambda: "has started" in again_fleet.log, "the process of the whole fleet")
    send(20)
    wait_until(lambda: len(set(public.payloads)) == 3, "the release after that")
    assert ask_gateway(server)["missing"] == []
    for shard in shards:
        assert shard.stop() == 0
    assert again_fleet.stop() == 0

    check_store(server, sent)
    released = check_releases(server, public)
    assert [(frame.first, frame.devices, frame.observed) for frame in released] == [(at, 3, 60) for at in (0, 20, 40)]


@pytest.mark.long
def test_a_change_that_a_shard_stores_dates_what_the_fleet_s_process_says_also_after_a_restart(
    broker: Mosquitto, server: Server, tmp_path: Path
) -> None:
    """A shard stores the first tick of a stronger policy; another process describes the stream."""
    chains, policies = BinaryChains(q=(0.1, 0.3), r=(0.1, 0.3)), []
    for version, epsilon in ((1, 4.0), (2, 1.0)):
        table = calibrate(chains, epsilon, "informed", slack=True).table
        promise = {"guarantee": Guarantee(epsilon=epsilon, adversary="informed")}
        policies.append(policy(version, device="sensor-2", chains=chains, table=table).model_copy(update=promise))
    write_policies(tmp_path / "policies", policies)
    write_config(tmp_path, scheduled())
    heard = Recorder(broker.broker, topic_of("description", "home", "sensor-2", "hr"))

    def described() -> list[Description]:
        return heard.of("description", Description.decode)

    shards = [Process(tmp_path, broker, server, f"{index}/2") for index in range(2)]
    fleet = Process(tmp_path, broker, server, "fleet/2")
    for process in (*shards, fleet):
        wait_until(lambda process=process: "has started" in process.log, "a start")
    device = Device(broker, "sensor-2")
    every = frames((10,) * 12, versions=(1,) * 4 + (2,) * 8)

    def say(version: int, frame: SymbolFrame) -> None:
        status = Status(True, "1.0", 0, (), (StreamStatus("hr", version, frame.last + 1),))
        device.send([frame])
        wait_until(lambda: not device.outbox, "a watermark")
        device.say(topic_of("status", "home", "sensor-2"), status.encode())

    for frame in every[:4]:
        say(1, frame)
    wait_until(lambda: described() and described()[-1].version == 1 and described()[-1].confirmed)
    assert described()[-1].guarantee.holds_always
    for frame in every[4:]:
        say(2, frame)
    wait_until(lambda: described()[-1].version == 2 and described()[-1].guarantee.since is not None, "a date")
    since = described()[-1].guarantee.since
    history = History((Span(1, Noise.of(policies[0]), 0, 39), Span(2, Noise.of(policies[1]), 40, None)))
    assert since == dates_of(policies[1], history).since
    assert since > 40
    assert fleet.stop() == 0
    heard.link.publish(topic_of("description", "home", "sensor-2", "hr"), b"", retain=True)
    again = Process(tmp_path, broker, server, "fleet/2", "again")
    before = len(described())
    wait_until(lambda: len(described()) > before and described()[-1].guarantee.since == since, "the same date")
    assert [process.stop() for process in (*shards, again)] == [0, 0, 0]
