"""A private stream as a Python iterator, also for asyncio: subscribe, decode, hand out typed readings."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import secrets
import threading
import time
from collections import deque
from typing import Self

from fugu.contract.topics import Kind, topic_of
from fugu.mqtt.broker import Broker
from fugu.mqtt.link import Link
from fugu.mqtt.readings import Decoder, Reading

__all__ = ["AsyncSubscription", "Subscription"]

POLL_SECONDS = 0.2
"""How often a subscription calls `maintain` of its link."""
_MOST_WAITING_BYTES = 1 << 26


class Subscriber:
    """Common base of both subscriptions: a link, the messages that have arrived, and decoded readings."""

    def __init__(
        self,
        broker: Broker,
        *,
        fleet: str,
        device: str = "+",
        stream: str = "+",
        symbols: bool = True,
        windows: bool = True,
        estimates: bool = True,
        counts: bool = True,
        releases: bool = True,
        descriptions: bool = False,
        timeout: float | None = None,
    ) -> None:
        # Descriptions come first, so that a broker sends retained ones before the messages that they describe.
        wanted_kinds: dict[Kind, bool] = {"description": True, "symbols": symbols, "window": windows}
        wanted_kinds |= {"estimate": estimates, "count": counts}
        topics = [topic_of(kind, fleet, device, stream) for kind, is_wanted in wanted_kinds.items() if is_wanted]
        if releases and device == "+":
            topics.append(topic_of("release", fleet, "+", "+"))
        self.decoder = Decoder(stream=stream, descriptions=descriptions)
        self.rejected = self.decoder.rejected
        self.link = Link(
            broker,
            client_id=f"subscriber-{secrets.token_hex(6)}",
            subscriptions=tuple(topics),
            on_message=lambda topic, payload, _retained: self._queue_message(topic, payload),
        )
        self.messages = 0
        self._timeout = timeout
        self._arrived_messages: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._bytes_delivered = self._bytes_taken = 0  # each is written by one thread
        self._ready_readings: deque[Reading] = deque()
        self._has_ended = False

    def _queue_message(self, topic: str, payload: bytes) -> None:
        """Queue a message for the iteration, unless too much waits. Called in the network thread."""
        message_bytes = _message_bytes(topic, payload)
        if self._bytes_delivered + message_bytes - self._bytes_taken > _MOST_WAITING_BYTES:
            self.rejected["not_taken"] += 1
        else:
            self._bytes_delivered += message_bytes
            self._arrived_messages.put((topic, payload))

    def _decode(self, topic: str, payload: bytes) -> None:
        self.messages += 1
        self._bytes_taken += _message_bytes(topic, payload)
        self._ready_readings.extend(self.decoder.decode(topic, payload))


class Subscription(Subscriber):
    """Iterate over the readings of a fleet's streams, as they arrive.

        with Subscription(Broker("127.0.0.1", 1883), fleet="home") as readings:
            for reading in readings:
                print(reading)

    A frame that arrives twice is handed out once. There are no readings of ticks at which the device was not running.
    Only releases that the account may read come, first the newest of each name, which the broker retains. Invalid
    payloads are counted in `rejected`, by reason, and otherwise ignored. So are messages that come while 64 MB of
    others wait (`not_taken`). `messages` counts all messages that were decoded.

    Args:
        device: a name, or "+" for all.
        stream: a name, or "+" for all.
        symbols: hand out the symbols or points that devices release.
        windows: hand out the noisy counts that devices release.
        estimates: hand out the gateway's estimates from symbols and points.
        counts: hand out the gateway's reports of noisy counts.
        releases: hand out the gateway's releases. They belong to no device, and come only with `device="+"`.
        descriptions: hand out descriptions as readings; they are used (`decoder.descriptions`) in any case.
        timeout: end the iteration after this many seconds without a reading; `None` waits for ever.
    """

    def __enter__(self) -> Self:
        """Connect, in the background; LinkError if TLS or password files cannot be read."""
        self.link.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        """Disconnect. The iteration hands out the messages that have arrived, then ends."""
        self.link.stop()
        self._has_ended = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Reading:
        reading = self.wait(self._timeout)
        if reading is None:
            raise StopIteration
        return reading

    def wait(self, seconds: float | None = None) -> Reading | None:
        """Return the next reading; `None` if none comes within some seconds, or after the end."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._ready_readings:
            wait_seconds = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
            try:
                self._decode(*self._arrived_messages.get(timeout=max(wait_seconds, 0.0)))
            except queue.Empty:
                if self._has_ended:
                    return None
            if wait_seconds <= 0.0 and not self._ready_readings:
                return None
            self.link.maintain()
        return self._ready_readings.popleft()


def _message_bytes(topic: str, payload: bytes) -> int:
    return 200 + len(topic) + len(payload)


class AsyncSubscription(Subscriber):
    """Iterate over the readings of a fleet's streams in asyncio; arguments and attributes as of `Subscription`.

        async with AsyncSubscription(Broker("127.0.0.1", 1883), fleet="home") as readings:
            async for reading in readings:
                print(reading)

    The network has a thread of its own; readings are decoded in the event loop. A wait that is cancelled, or timed out
    with `asyncio.timeout`, loses no reading. Several tasks may wait at once: each reading goes to one task.
    """

    async def __aenter__(self) -> Self:
        """Connect, in the background; LinkError if TLS or password files cannot be read."""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._is_waking = False
        self._link_lock = threading.Lock()
        self.link.start()
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self._has_ended = True
        self._wake.set()
        await asyncio.to_thread(self._stop)  # the thread ends the link even if this task is cancelled

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Reading:
        reading = await self.wait(self._timeout)
        if reading is None:
            raise StopAsyncIteration
        return reading

    async def wait(self, seconds: float | None = None) -> Reading | None:
        """Return the next reading; `None` if none comes within some seconds, or after the end."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._ready_readings:
            await asyncio.sleep(0)  # lets other tasks run, however fast messages come
            wait_seconds = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
            try:
                self._decode(*self._arrived_messages.get_nowait())
            except queue.Empty:
                if self._has_ended:
                    return None
                await self._wait_for_messages(max(wait_seconds, 0.0))
            if wait_seconds <= 0.0 and not self._ready_readings:
                return None
        return self._ready_readings.popleft()

    async def _wait_for_messages(self, seconds: float) -> None:
        """Wait until a message may have arrived, at most some seconds; then fall back to MQTT 3.1.1 if that is due."""
        self._wake.clear()  # a message that arrives now sets it in this event loop, so not before the wait below
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        if self.link.falls_back:
            await asyncio.to_thread(self._fall_back)  # joins a thread

    def _queue_message(self, topic: str, payload: bytes) -> None:
        super()._queue_message(topic, payload)
        if not self._is_waking:  # otherwise a loop that is blocked would collect a call for every message
            self._is_waking = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake_up)

    def _wake_up(self) -> None:
        self._is_waking = False
        self._wake.set()

    def _fall_back(self) -> None:
        with self._link_lock:
            if not self._has_ended:
                self.link.maintain()

    def _stop(self) -> None:
        with self._link_lock:
            self.link.stop()
