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

from fugu.contract.topics import topic_of
from fugu.mqtt.broker import Broker
from fugu.mqtt.link import Link
from fugu.mqtt.readings import Decoder, Reading

__all__ = ["AsyncSubscription", "Subscription"]


POLL_SECONDS = 0.2
"""How often a face serves its link."""
_MOST_WAITING_BYTES = 1 << 26


class Subscriber:
    """Common base of both subscriptions: a link, what has arrived by it, and readings that are ready."""

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
        choice = {
            topic_of("symbols", fleet, device, stream): symbols,
            topic_of("window", fleet, device, stream): windows,
            topic_of("estimate", fleet, device, stream): estimates,
            topic_of("count", fleet, device, stream): counts,
            topic_of("release", fleet, "+", "+"): releases and device == "+",
        }
        self.decoder = Decoder(stream=stream, descriptions=descriptions)
        self.rejected = self.decoder.rejected
        # Descriptions come first, so that a broker sends those that it keeps before anything that they describe.
        topics = (topic_of("description", fleet, device, stream), *(topic for topic, flag in choice.items() if flag))
        self.link = Link(
            broker,
            client_id=f"subscriber-{secrets.token_hex(6)}",
            subscriptions=topics,
            on_message=lambda topic, payload, _retained: self._delivered(topic, payload),
        )
        self.messages = 0
        self._timeout = timeout
        self._arrived: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._bytes_delivered = self._bytes_taken = 0  # each is written by one thread
        self._ready: deque[Reading] = deque()
        self._left = False

    def _delivered(self, topic: str, payload: bytes) -> None:
        """Keep a message for whoever iterates, unless too many wait; called in the network thread."""
        message_bytes = _size(topic, payload)
        if self._bytes_delivered + message_bytes - self._bytes_taken > _MOST_WAITING_BYTES:
            self.rejected["not_taken"] += 1
        else:
            self._bytes_delivered += message_bytes
            self._arrived.put((topic, payload))

    def _take(self, topic: str, payload: bytes) -> None:
        self.messages += 1
        self._bytes_taken += _size(topic, payload)
        self._ready.extend(self.decoder.decode(topic, payload))


class Subscription(Subscriber):
    """Iterate over the readings of a fleet's streams, as they arrive.

        with Subscription(Broker("127.0.0.1", 1883), fleet="home") as readings:
            for reading in readings:
                print(reading)

    Frames that arrive twice are handed out once; symbols of a tick on which the device was not running are left out. Of
    releases, those that the account may read come; the newest of each name at the beginning, because the broker keeps
    it. Payloads that are not valid are counted in `rejected`, by reason, and otherwise ignored; so are those for which
    64 MB of others wait to be iterated over (`not_taken`). `messages` counts all that were looked at.

    Args:
        device: a name, or "+" for all.
        stream: a name, or "+" for all.
        symbols: hand out the symbols or points that devices release.
        windows: hand out the noisy counts that devices release.
        estimates: hand out what the gateway makes of symbols and points.
        counts: hand out what the gateway makes of noisy counts.
        releases: the gateway's releases; they are not a device's, and come only if all devices are wanted.
        descriptions: hand them out as readings, too; they are heard and used (`decoder.descriptions`) in any case.
        timeout: end the iteration after this many seconds without a reading; `None` waits for ever.
    """

    def __enter__(self) -> Self:
        """Connect, in the background; LinkError if TLS or password files cannot be read."""
        self.link.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        """Disconnect; whoever iterates gets what has arrived, then the end."""
        self.link.stop()
        self._left = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Reading:
        reading = self.wait(self._timeout)
        if reading is None:
            raise StopIteration
        return reading

    def wait(self, seconds: float | None = None) -> Reading | None:
        """The next reading; none if there is none within so many seconds, or after the end."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._ready:
            wait_seconds = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
            try:
                self._take(*self._arrived.get(timeout=max(wait_seconds, 0.0)))
            except queue.Empty:
                if self._left:
                    return None
            if wait_seconds <= 0.0 and not self._ready:
                return None
            self.link.maintain()
        return self._ready.popleft()


def _size(topic: str, payload: bytes) -> int:
    return 200 + len(topic) + len(payload)


class AsyncSubscription(Subscriber):
    """Iterate over the readings of a fleet's streams in asyncio; the rest is as for `Subscription`.

        async with AsyncSubscription(Broker("127.0.0.1", 1883), fleet="home") as readings:
            async for reading in readings:
                print(reading)

    The network has a thread of its own; readings are decoded in the event loop. A wait that is cancelled, or timed out
    with `asyncio.timeout`, loses no reading. Several tasks may wait at once: each reading goes to one of them.
    """

    async def __aenter__(self) -> Self:
        """Connect, in the background; LinkError if TLS or password files cannot be read."""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._linking = threading.Lock()
        self.link.start()
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self._left = True
        self._wake.set()
        await asyncio.to_thread(self._stop)  # ends even if this is cancelled

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Reading:
        reading = await self.wait(self._timeout)
        if reading is None:
            raise StopAsyncIteration
        return reading

    async def wait(self, seconds: float | None = None) -> Reading | None:
        """The next reading; none if there is none within so many seconds, or after the end."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._ready:
            await asyncio.sleep(0)  # other tasks go on, however fast messages come
            wait_seconds = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
            try:
                self._take(*self._arrived.get_nowait())
            except queue.Empty:
                if self._left:
                    return None
                await self._wait_for_messages(max(wait_seconds, 0.0))
            if wait_seconds <= 0.0 and not self._ready:
                return None
        return self._ready.popleft()

    async def _wait_for_messages(self, seconds: float) -> None:
        """Wait until a message may have arrived, but not long: the link has to be served."""
        self._wake.clear()  # what arrives from here on sets it, in this loop, so not before the next line waits
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        if self.link.falls_back:
            await asyncio.to_thread(self._fall_back)  # joins a thread

    def _delivered(self, topic: str, payload: bytes) -> None:
        super()._delivered(topic, payload)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake.set)

    def _fall_back(self) -> None:
        with self._linking:
            if not self._left:
                self.link.maintain()

    def _stop(self) -> None:
        with self._linking:
            self.link.stop()
