"""A private stream as an asynchronous iterator: `fugu.mqtt.subscription` for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from types import TracebackType
from typing import Self

from fugu.mqtt.readings import Reading
from fugu.mqtt.subscription import POLL_SECONDS, Subscriber

__all__ = ["AsyncSubscription"]


class AsyncSubscription(Subscriber):
    """Iterate over the readings of a fleet's streams in asyncio; the rest is as for `Subscription`.

        async with AsyncSubscription(Broker("127.0.0.1", 1883), fleet="home") as readings:
            async for reading in readings:
                print(reading)

    The network has a thread of its own; readings are decoded in the event loop. A wait that is cancelled, or timed
    out with `asyncio.timeout`, loses no reading. Several tasks may wait at once: each reading goes to one of them.
    """

    async def __aenter__(self) -> Self:
        """Connect, in the background.

        Raises:
            LinkError: TLS or password files cannot be read.
        """
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._linking = threading.Lock()
        self.link.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect; whoever iterates gets what has arrived, then the end."""
        self._left = True
        self._wake.set()
        await asyncio.to_thread(self._stop)  # ends even if this is cancelled

    def __aiter__(self) -> Self:
        """The readings, in the order of arrival."""
        return self

    async def __anext__(self) -> Reading:
        """The next reading."""
        reading = await self.wait(self._timeout)
        if reading is None:
            raise StopAsyncIteration
        return reading

    async def wait(self, seconds: float | None = None) -> Reading | None:
        """The next reading; none if there is none within so many seconds, or after the end."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._ready:
            await asyncio.sleep(0)  # other tasks go on, however fast messages come
            left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
            try:
                self._take(*self._arrived.get_nowait())
            except queue.Empty:
                if self._left:
                    return None
                await self._wait_for_messages(max(left, 0.0))
            if left <= 0.0 and not self._ready:
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

    def _delivered(self, topic: str, payload: bytes) -> bool:
        delivered = super()._delivered(topic, payload)
        if delivered:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake.set)
        return delivered

    def _fall_back(self) -> None:
        with self._linking:
            if not self._left:
                self.link.maintain()

    def _stop(self) -> None:
        with self._linking:
            self.link.stop()
