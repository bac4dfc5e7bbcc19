"""Whatever is sent, and by however many names: what the gateway holds in memory is bounded by its configuration."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fugu.contract.frames import Status, SymbolFrame, WindowFrame
from fugu.contract.topics import topic_of
from gateway.loop import Gateway
from gateway.settings import GatewaySettings
from tests.support.brokers import Mosquitto, wait_until
from tests.support.containers import held
from tests.support.gateway_service import Device
from tests.support.scenes import Scene, frames, write_policies

FRAME = frames([10])[0]
BIRTH = Status(True, "1.0", 0, (), ()).encode()


@pytest.fixture
def gateway(broker: Mosquitto, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway in this process."""
    folder = write_policies(tmp_path / "policies")
    running = Gateway(GatewaySettings("home", broker.broker, tmp_path / "s.sqlite", folder))
    running.start()
    yield running
    running.stop()
    assert not running.failed.is_set()


def flood(name: str, seed: int) -> Iterator[tuple[str, bytes]]:
    """A message of each kind under names that nobody knows, and of a device that is known about what is not."""
    generator, frame = random.Random(seed), FRAME.encode()
    counts = WindowFrame(1, f"w{name}", -1, 0, 0, 10, 10, (3,))
    yield topic_of("symbols", "home", name, "hr"), frame
    yield topic_of("symbols", "home", name, name), b"\xff" + generator.randbytes(50)
    yield topic_of("symbols", "home", "watch", name), frame
    yield topic_of("symbols", "home", "watch", "hr"), replace(FRAME, policy_version=2**31 + seed).encode()
    yield topic_of("symbols", "home", "watch", "hr"), replace(FRAME, first=2**40 + seed).encode()
    yield topic_of("symbols", "home", "watch", "hr"), b"\xff" + generator.randbytes(100)
    yield topic_of("window", "home", "watch", "hr"), counts.encode()
    yield topic_of("window", "home", name, "hr"), counts.encode()
    yield topic_of("status", "home", name), BIRTH
    yield topic_of("status", "home", "watch"), BIRTH
    yield topic_of("status", "home", "ring"), Status(True, name, seed, (), ()).encode()


def heard(gateway: Gateway, sent: int) -> bool:
    """Whether so many messages have been read."""
    return gateway.counters["received"] >= sent


def test_a_flood_of_unknown_names_grows_nothing_in_the_gateway(
    broker: Mosquitto, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.health._MOST_NAMES", 50)
    device = Device(broker)
    device.say_birth()
    wait_until(device.answered_after(0))
    device.send(frames([10]))
    wait_until(lambda: not device.outbox)
    wait_until(lambda: gateway.counters["descriptions"] == 3)  # these take a second, and are kept
    sizes, sent = [], gateway.counters["received"]
    for part in (range(60), range(60, 75), range(75, 90)):  # more names first than alarms tell apart
        for number in part:
            for topic, payload in flood(f"nobody{number}", number):
                device.say(topic, payload)
                sent += 1
        wait_until(partial(heard, gateway, sent))
        wait_until(lambda: gateway._finished and not gateway._monitor._notes.qsize())
        sizes.append(held(gateway))
    assert len(sizes[0]) > 50
    grown = {where: (n, sizes[2][where]) for where, n in sizes[1].items() if sizes[2].get(where, 0) > n}
    assert grown == {}
    assert gateway.counters["unknown_device"] >= 90
    device.stop()


def test_a_stream_that_is_sent_for_long_grows_nothing_in_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the journal is sealed when it is large enough, as it is between rounds."""
    monkeypatch.setattr("gateway.recorder.SEAL_BYTES", 30_000)
    monkeypatch.setattr("gateway.recorder.STREAM_BYTES", 0)
    scene = Scene(tmp_path / "s.sqlite")
    made = frames([10] * 1_500, gaps=[0, 0, 3])
    largest, sealed = 0, []
    for begin in range(0, 1_500, 20):
        scene.record(*made[begin : begin + 20])
        scene.committed()
        scene.recorder.symbols.reports.take(9)
        scene.recorder.seal()
        tail = scene.store.symbols.tail
        largest = max(largest, tail.size)
        if not tail.rows:
            sealed.append(held(scene.recorder))
    assert largest <= 30_000
    assert len(sealed) > 5
    assert all(one == sealed[0] for one in sealed)


def test_a_device_that_scatters_its_frames_makes_no_endless_list_of_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.recorder.MOST_INTERVALS", 50)
    scene = Scene(tmp_path / "s.sqlite")
    scattered = [SymbolFrame(1, 10 * i - 1, 10 * i, b"\x01") for i in range(200)]
    scene.record(*scattered)
    assert +scene.counters == {"stored": 50, "scattered": 150}
    scene.recorder.seal(now=True)
    assert len(scene.store.coverage(1)) == 50
    through = scene.committed().streams[0].through
    assert through <= 490  # what was not taken is not said to be safe
    filling = [SymbolFrame(1, 10 * i, 10 * i + 1, bytes(9)) for i in range(49)]
    scene.record(*filling)  # gaps are filled, and there is room again
    assert scene.counters["stored"] == 99
    scene.record(*scattered)
    assert scene.counters["stored"] == 99 + 49
    assert scene.counters["duplicate"] == 50
