"""A device that says ever new things, as fast as it likes, beside honest ones: they are not late, and it is named."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import cycle
from pathlib import Path

import pytest

from fugu.contract.frames import SymbolFrame
from fugu.contract.reports import Health
from fugu.contract.topics import topic_of
from gateway.fleet.registry import Registry
from tests.support.brokers import Mosquitto, await_end, wait_until
from tests.support.enrolled import SIGNED, write_gateway_files
from tests.support.ever_new import GENERATORS
from tests.support.gateway_service import Device
from tests.support.processes import GatewayProcess, Recorder
from tests.support.scenes import policy, write_policies
from tests.support.signing import Keys

DEVICES = 100
SECONDS, A_SECOND = 40, 500
LATE_SECONDS, ALARM_SECONDS = 2.0, 30.0
MOST_GROWN = 100 << 20
"""Of the gateway's memory; 32 MiB of messages may wait, and take up to as much again."""


def messages(topic: str) -> Iterator[tuple[str, bytes]]:
    """Ever new content on a topic of one device, whose names are of the catalogue."""
    for name, payload in cycle(GENERATORS[topic]()):
        parts = name.split("/")
        parts[3] = "d1"
        yield "/".join(parts), payload


def resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) * 1024


@pytest.mark.soak
@pytest.mark.parametrize("topic", GENERATORS)
def test_beside_a_device_that_says_ever_new_things_others_are_in_time_and_it_is_named(
    broker: Mosquitto, tmp_path: Path, topic: str
) -> None:
    """The gateway has a registry, in which the loud device is enrolled: its answers to documents count as well."""
    write_policies(tmp_path / "policies", [policy(1, device=f"d{number}") for number in range(DEVICES)])
    write_gateway_files(tmp_path, Keys())
    with closing(Registry(tmp_path / "fleet.sqlite", fleet="home")) as registry, registry.transaction():
        registry.enrol("d1", (), who="me", time_us=1)
    gateway = GatewayProcess(tmp_path, broker.port, home_assistant=True, signed=SIGNED)
    health = Recorder(broker.broker, topic_of("health", "home"))
    honest, loud = Device(broker, "d0"), Device(broker, "d1")
    honest.say_birth()
    wait_until(honest.answered_after(0), "the gateway")
    ending = threading.Event()

    def talk() -> None:
        every = messages(topic)
        while not ending.wait(0.1):
            for _ in range(A_SECOND // 10):
                loud.say(*next(every))

    def alarmed() -> bool:
        newest = Health.decode(health.payloads[-1]) if health.payloads else None
        return newest is not None and any("d1" in alarm.names for alarm in newest.alarms)

    talking = threading.Thread(target=talk)
    before, began = resident(gateway.process.pid), time.monotonic()
    talking.start()
    late, named_after, tick = 0.0, None, 0
    try:
        while time.monotonic() - began < SECONDS:
            sent = time.monotonic()
            honest.send([SymbolFrame(1, tick - 1, tick, bytes(10))])
            tick += 10
            wait_until(lambda: not honest.outbox, "an honest frame")
            late = max(late, time.monotonic() - sent)
            if named_after is None and alarmed():
                named_after = time.monotonic() - began
            ending.wait(max(0.0, sent + 1.0 - time.monotonic()))
    finally:
        ending.set()
        await_end(talking)
    grown = resident(gateway.process.pid) - before
    print(topic, f"late {late:.2f} s, named after {named_after} s, grown {grown / 2**20:.0f} MB")
    assert gateway.process.poll() is None
    assert late <= LATE_SECONDS
    assert named_after is not None
    assert named_after <= ALARM_SECONDS
    assert grown < MOST_GROWN
    for device in (honest, loud):
        device.stop()
    health.link.stop()
    gateway.kill()
