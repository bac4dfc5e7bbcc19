"""A board: its policy, its ticks, and what it publishes.

`sanitiser.start` makes it.
"""

import asyncio
import gc
import time

from sanitiser import messages
from sanitiser.entropy import system_entropy
from sanitiser.mqtt import Link
from sanitiser.outbox import Outbox
from sanitiser.stream import Stream
from sanitiser.ticks import Anchored, SystemClock, Ticker

RESEND_MS = 10000
MOST_RESEND_MS = 3600000
STATUS_MS = 60000


class Board:
    """What runs on a board.

    Args:
        image: what was burnt in.
        policy: of the image, verified.
        read: the sensor: gives an integer, or none if there is no reading; does not wait.
        folder: of the outbox.

    Raises:
        OutboxError: the outbox is another stream's.
    """

    def __init__(self, image, policy, read, folder: str = "outbox", clock=None) -> None:
        self.policy = policy
        entropy = system_entropy(image.BOARD)
        self._key = image.KEY
        self.outbox = Outbox(folder, policy)

        def stream(outbox):
            return Stream(policy, entropy, outbox.last_framed, outbox.indices, outbox.since, outbox.shift)

        clock = Anchored(clock or SystemClock(), image.NOT_BEFORE)
        self.ticker = Ticker(policy, clock, self.outbox, stream, read)
        self._clock = clock
        self._name = "fugu/2/%s/%s/" % (policy.fleet, policy.device)
        self._fresh = asyncio.Event()
        self._sent = 0
        self._patience, self._moved = RESEND_MS, 0
        self.stopping = False
        will = messages.status(False, 0, ["connection-lost"], [])
        self.link = Link(
            (image.HOST, image.PORT),
            policy.fleet + "-" + policy.device,
            (image.USERNAME, image.PASSWORD),
            _context(image.CA),
            (self._name + "status", will),
            [self._name + "committed"] if self._key else [],
            self._delivered,
        )

    async def run(self) -> None:
        """Draw and publish until `stopping` is set."""
        tasks = [asyncio.create_task(self.link.run()), asyncio.create_task(self._send())]
        while not self.stopping:
            if self.ticker.step():
                self._fresh.set()
                gc.collect()
            due = self.ticker.due_us()
            wait = 1000 if due is None else (due - self._clock.elapsed_us()) // 1000
            await asyncio.sleep_ms(min(max(wait, 1), 1000))
        self.ticker.close()
        await self._drain()
        for task in tasks:
            task.cancel()
        await self.link.close()

    async def _drain(self) -> None:
        """Give what is left some time to leave."""
        for _ in range(100):
            if self.outbox.next(self._sent) is None:
                return
            self._fresh.set()
            await asyncio.sleep_ms(50)

    async def _send(self) -> None:
        connection, said = 0, None
        while True:
            self._fresh.clear()
            if not self.link.connected:
                await asyncio.sleep_ms(100)
                continue
            if connection != self.link.connections:
                connection, said = self.link.connections, None
                self._begin_again(RESEND_MS)
            elif self._key and time.ticks_diff(time.ticks_ms(), self._moved) > self._patience:
                self._begin_again(min(2 * self._patience, MOST_RESEND_MS))  # the broker may have lost what it had
            trouble = self.ticker.trouble if self._clock.anchors else "clock"
            codes = [trouble] if trouble else []
            if said != codes and await self._say(codes):
                said = codes
            found = self.outbox.next(self._sent)
            if found is None:
                if not await self._wait(self._patience if self.outbox.depth > 0 else STATUS_MS):
                    said = None
                continue
            one, frames = found
            if await self._publish(frames):
                self._sent = max(self._sent, one)
                if not self._key:
                    self.outbox.forget(one)

    def _begin_again(self, patience: int) -> None:
        """Send again what is not known to be safe, from the oldest on."""
        self._sent = self.outbox.oldest - 1
        self._patience = patience
        self._moved = time.ticks_ms()

    async def _wait(self, milliseconds: int) -> bool:
        """Wait for something to send; whether there is."""
        try:
            await asyncio.wait_for_ms(self._fresh.wait(), milliseconds)
        except asyncio.TimeoutError:
            return False
        return True

    async def _publish(self, frames: list) -> bool:
        for name, _, _, frame in frames:
            stream, _, window = name.partition("/")
            topic = self._name + ("window/" if window else "symbols/") + stream
            if not await self.link.publish(topic, frame):
                return False
        return True

    async def _say(self, codes: list) -> bool:
        policy = self.policy
        streams = [[policy.stream, policy.version, max(0, self.ticker.next_tick)]]
        status = messages.status(True, max(0, self.outbox.depth), codes, streams)
        return await self.link.publish(self._name + "status", status, True)

    def _delivered(self, topic: str, payload: bytes) -> None:
        if topic != self._name + "committed":
            return
        try:
            counter, commits = messages.committed(payload, self._key, self.policy.fleet, self.policy.device)
        except messages.MessageError:
            return
        if counter <= self.outbox.counter:
            return
        self.outbox.counter = counter
        before = self.outbox.oldest
        missed = self.outbox.forget_committed(commits, self._sent)
        if self.outbox.oldest != before:
            self._patience, self._moved = RESEND_MS, time.ticks_ms()
        elif missed and time.ticks_diff(time.ticks_ms(), self._moved) > RESEND_MS // 2:
            self._begin_again(self._patience)


def _context(authority: bytes):
    """TLS that knows one certificate authority; none without one."""
    if not authority:
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority)
    return context
