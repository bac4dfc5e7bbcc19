"""Many devices on one gateway, each with a connection of its own and a frame a second: how late is what they say?"""

from __future__ import annotations

import asyncio
import os
import random
import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fugu.contract.frames import Committed, SymbolFrame
from fugu.contract.topics import topic_of
from gateway.store.store import Store
from tests.support.brokers import PATIENCE, await_end, wait_until
from tests.support.mqtt_packets import Publication, Splitter, acknowledgement, connect, publication, publish, subscribe
from tests.support.processes import GatewayProcess, policy
from tests.support.shipped import Shipped
from tests.support.work import high_water_bytes

pytestmark = pytest.mark.fresh

TICKS, PERIOD_US = 10, 100_000
_GROWTH = 0.1
_AT_ONCE = 20
_SILENT = 30.0
_MOST_WAITING = 2


class Device:
    """Sends a frame a second, unless the ones before are not durable yet; `lags` are seconds until it heard that."""

    def __init__(self, broker: Shipped, name: str, phase: float) -> None:
        self.name = name
        self.lags: list[float] = []
        self.sent = 0
        self._broker = broker
        self._phase = phase
        self._waiting: list[tuple[int, float]] = []

    async def run(self, context: ssl.SSLContext, doors: asyncio.Semaphore, begin: float, seconds: int) -> None:
        """Connect, and send for some seconds from a moment on, which is the policy's tick 0."""
        await asyncio.sleep(begin - _SILENT - time.time())  # a connection that says nothing for longer is closed
        async with doors:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._broker.port, ssl=context)
            password = (self._broker.root / self.name / "password").read_text().strip()
            writer.write(connect(self.name, self.name, password, 60))
            writer.write(subscribe(topic_of("committed", "home", self.name)))
            await writer.drain()
            await reader.readexactly(4 + 5)
        listening = asyncio.ensure_future(self._listen(reader, writer))
        for number in range(seconds):
            await asyncio.sleep(begin + number + 1 + self._phase - time.time())
            await self._heard(listening, _MOST_WAITING)  # else a slow machine would have ever more in the gateway
            symbols = bytes(random.choices((0, 1), k=TICKS))
            first = number * TICKS
            frame = SymbolFrame(1, first - 1, first, symbols).encode()
            topic = topic_of("symbols", "home", self.name, "hr")
            self._waiting.append((first + TICKS - 1, time.monotonic()))
            writer.write(publish(Publication(topic, frame, False), 4, 1 + number % 65_000))
            self.sent += 1
        await self._heard(listening, 0)
        listening.cancel()
        writer.close()

    async def _heard(self, listening: asyncio.Future[None], most: int) -> None:
        """Wait until no more frames than that are not durable yet."""
        while len(self._waiting) > most:
            assert not listening.done(), f"{self.name} has lost its connection"
            await asyncio.sleep(0.2)

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter = Splitter()
        while data := await reader.read(1 << 16):
            for packet in splitter.feed(data):
                if (answer := acknowledgement(packet)) is not None:
                    writer.write(answer)
                if (published := publication(packet, 4)) is not None:
                    self._take_note(published.payload)

    def _take_note(self, payload: bytes) -> None:
        now = time.monotonic()
        for commit in Committed.decode(payload).streams:
            while self._waiting and self._waiting[0][0] <= commit.through:
                self.lags.append(now - self._waiting.pop(0)[1])


@pytest.mark.soak
def test_a_frame_a_second_of_a_thousand_devices_is_durable_and_memory_stays_flat(tmp_path: Path) -> None:
    """For 200 seconds, or CROWD_SECONDS: after 115,000 frames the journal is as large as it gets, and is sealed."""
    many, seconds = 1000, int(os.environ.get("CROWD_SECONDS", 200))
    broker = Shipped(tmp_path)
    broker.add("gateway", "gateway")
    begin = time.time() + 10 + many / 10
    (tmp_path / "policies").mkdir()
    devices = [Device(broker, f"d{number:04}", number / many) for number in range(many)]
    for device in devices:
        broker.add("device", device.name)
        draft = policy(epoch_us=int(begin * 1e6), period_us=PERIOD_US, device=device.name, frame_ticks=TICKS)
        (tmp_path / "policies" / f"{device.name}.json").write_text(draft.to_json())
    with broker:
        gateway = GatewayProcess(tmp_path, broker.address("gateway"))
        wait_until(gateway.hears, "the gateway")
        memory: list[tuple[int, int]] = []
        done = threading.Event()
        watching = threading.Thread(target=_watch, args=(gateway.process.pid, devices, memory, done))
        watching.start()
        context = ssl.create_default_context(cafile=str(broker.folder / "ca.pem"))
        asyncio.run(asyncio.wait_for(_crowd(devices, context, begin, seconds), PATIENCE + 2 * seconds))
        done.set()
        await_end(watching)
        load = os.getloadavg()[0]
        assert gateway.stop() == 0
    lags = np.array([lag for device in devices for lag in device.lags])
    middle, late, latest = np.quantile(lags, (0.5, 0.99, 1.0))
    early, end = next(most for sent, most in memory if sent > 0.7 * many * seconds), memory[-1][1]
    print(
        f"{many} devices, {seconds} s, load {load:.1f}: {len(lags)} frames; lag {middle:.3f} s (99 %: {late:.3f}, "
        f"most: {latest:.3f}); gateway {early / 1e6:.1f} MB after 70 %, {end / 1e6:.1f} MB at the end"
    )
    with closing(Store(gateway.store)) as store:
        for device in devices:
            number = store.stream_id(device.name, "hr")
            assert number is not None
            assert store.aged.coverage(number) == [(-1, device.sent * TICKS - 1)], device.name
    assert [device.sent for device in devices] == [seconds] * many
    assert end < early * (1 + _GROWTH)


async def _crowd(devices: Sequence[Device], context: ssl.SSLContext, begin: float, seconds: int) -> None:
    doors = asyncio.Semaphore(_AT_ONCE)
    await asyncio.gather(*(device.run(context, doors, begin, seconds) for device in devices))


def _watch(pid: int, devices: Sequence[Device], memory: list[tuple[int, int]], done: threading.Event) -> None:
    """Note how many frames were sent, and the most memory until then, each second and at the end."""
    ended = False
    while not ended:
        ended = done.wait(1.0)
        memory.append((sum(device.sent for device in devices), high_water_bytes(pid)))
