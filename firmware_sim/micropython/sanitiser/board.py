"""A board, made by `sanitiser.start`: its policies, its ticks, and what it publishes."""

import asyncio
import gc
import time

from fugu.core import messages
from fugu.core.clocks import Anchored
from fugu.core.stream import Stream
from fugu.core.ticks import Ticker
from sanitiser.clock import SystemClock
from sanitiser.entropy import system_entropy
from sanitiser.following import Following
from sanitiser.mqtt import Link
from sanitiser.outbox import Outbox

_RESEND_MS = 10000
_MOST_RESEND_MS = 3600000
_STATUS_MS = 60000
CODES = ("storage-full", "storage", "clock", "policy-inactive", "policy-expired", "stopped")
"""The codes of a status, in their order in it."""


class Line:
    """A stream of the image: its ticks, its outbox, and how far the outbox was sent.

    Segments up to `sent` were sent on this connection. They are sent again `patience` milliseconds after `moved`, the
    time of the last progress.
    """

    def __init__(self, name: str, outbox, ticker, version: int) -> None:
        self.name, self.outbox, self.ticker, self.version = name, outbox, ticker, version
        self.sent, self.patience, self.moved = 0, _RESEND_MS, 0

    def begin_again(self, patience: int) -> None:
        """Send all segments again that the gateway is not known to have, from the oldest on."""
        self.sent = self.outbox.oldest - 1
        self.patience = patience
        self.moved = time.ticks_ms()


class Board:
    """The program of a board.

    `image` is burnt in, `trusted` has the accepted documents. `own`, the image's own policies, say which streams there
    are; the verified `policies` run. `read` is the sensor, or a dictionary of the sensors by stream: a function that
    returns an integer at once, or None without a reading. `feed` feeds the watchdog. Raises OutboxError for an outbox
    of another clock.
    """

    def __init__(self, image, trusted, own, policies, read, feed, clock=None) -> None:
        fleet = "fugu/2/%s/" % own[0].fleet
        self._fleet, self._device, self._key = own[0].fleet, own[0].device, image.KEY
        self._base = fleet + self._device + "/"
        self._feed = feed
        self._clock = Anchored(clock or SystemClock(), lambda wall: wall >= image.NOT_BEFORE)
        entropy = system_entropy(image.BOARD)

        def stream(policy, outbox):
            return Stream(policy, entropy, outbox)

        version = policies[0].version if policies else trusted.version
        self.following = Following(image, trusted, version, self._seconds, self._switch, self._idle, self._base, fleet)
        self.lines = []
        running = {policy.stream: policy for policy in policies}
        for pinned in own:
            name = pinned.stream
            policy = running.get(name)
            outbox = Outbox("outbox/" + name, policy or pinned)
            sensor = read[name] if isinstance(read, dict) else read
            ticker = Ticker(policy, self._clock, outbox, stream, sensor, self.following.silent)
            self.lines.append(Line(name, outbox, ticker, version))
        self._to_send = asyncio.Event()
        self.stopping = False
        self._randomness = image.RANDOMNESS
        will = messages.status(False, 0, ["connection-lost"], [], image.RANDOMNESS)
        self.link = Link(
            (image.HOST, image.PORT),
            self._fleet + "-" + self._device,
            (image.USERNAME, image.PASSWORD),
            _context(image.CA),
            (self._base + "status", will),
            ([self._base + "committed"] if self._key else []) + self.following.topics,
            self._deliver,
        )

    async def run(self) -> None:
        """Draw and publish until `stopping` is set."""
        jobs = self.link.run, self._send, lambda: self.following.run(self.link)
        tasks = [asyncio.create_task(_for_ever(job)) for job in jobs]
        while not self.stopping:
            if self._idle():
                gc.collect()
            wait = 1000
            for line in self.lines:
                due = line.ticker.due_us()
                if due is not None:
                    wait = min(wait, (due - self._clock.elapsed_us()) // 1000)
            await asyncio.sleep_ms(max(wait, 1))
        for line in self.lines:
            line.ticker.close()
        await self._drain()
        for task in tasks:
            task.cancel()
        await self.link.close()

    def _idle(self) -> bool:
        """Draw the ticks that have come. True if a segment was written."""
        self._feed()
        has_sealed = False
        for line in self.lines:
            newest = line.outbox.newest
            line.ticker.step()
            has_sealed = has_sealed or line.outbox.newest != newest
        if has_sealed:
            self._to_send.set()
        return has_sealed

    def _seconds(self) -> int:
        return self._clock.now_us() // 1000000

    def _switch(self, trusted, policies) -> None:
        """Store a trust, and put policies in force with the next tick, unless they are None."""
        if policies is not None:
            for line in self.lines:
                line.ticker.close()
        trusted.store("trust")
        if policies is None:
            return
        by_stream = {policy.stream: policy for policy in policies}
        for line in self.lines:
            line.ticker.switch(by_stream.get(line.name))
            line.version = trusted.version
        self._to_send.set()

    async def _drain(self) -> None:
        for _ in range(100):
            if all(line.outbox.next(line.sent) is None for line in self.lines):
                return
            self._feed()
            self._to_send.set()
            await asyncio.sleep_ms(50)

    async def _send(self) -> None:
        connection, last_state, last_status, due = 0, None, None, 0
        while True:
            self._to_send.clear()
            if not self.link.connected:
                await asyncio.sleep_ms(100)
                continue
            if connection != self.link.connections:
                connection, last_state, last_status = self.link.connections, None, None
                for line in self.lines:
                    line.begin_again(_RESEND_MS)
            now = time.ticks_ms()
            codes = self._codes()
            state = codes, [line.version for line in self.lines if line.ticker.policy]
            if (last_state != state or time.ticks_diff(now, due) >= 0) and await self._publish_status(codes):
                last_state, due = state, time.ticks_add(now, _STATUS_MS)
            if self.following.topics:
                status = self.following.next_status(self._seconds())
                if status != last_status and await self.link.publish(self._base + "policy/status", status, True):
                    last_status = status
            sent = False
            for line in self.lines:
                sent = await self._send_next(line) or sent
            if not sent:
                try:
                    await asyncio.wait_for_ms(self._to_send.wait(), 1000)
                except asyncio.TimeoutError:
                    pass

    async def _send_next(self, line: Line) -> bool:
        if self._key and time.ticks_diff(time.ticks_ms(), line.moved) > line.patience:
            line.begin_again(min(2 * line.patience, _MOST_RESEND_MS))  # the broker may have lost what it had
        batch = line.outbox.next(line.sent)
        if batch is None:
            return False
        segment_id, frames = batch
        for name, _, _, frame in frames:
            stream, _, window = name.partition("/")
            topic = self._base + ("window/" if window else "symbols/") + stream
            if not await self.link.publish(topic, frame):
                return False
        line.sent = max(line.sent, segment_id)
        if not self._key:
            line.outbox.forget(segment_id)
        return True

    def _codes(self) -> list:
        """Return the codes of problems with storage, clock and policy; none may depend on a reading."""
        troubles = [line.ticker.trouble for line in self.lines]
        silent = self.following.silent(self._seconds())
        if not self._clock.anchors or self._clock.jump:
            troubles.append("clock")
        return [code for code in CODES if code in troubles or code == silent]

    async def _publish_status(self, codes: list) -> bool:
        streams, depth = [], 0
        for line in self.lines:
            depth += max(0, line.outbox.depth)
            if line.ticker.policy:
                streams.append([line.name, line.version, max(0, line.ticker.next_tick)])
        return await self.link.publish(
            self._base + "status", messages.status(True, depth, codes, streams, self._randomness), True
        )

    def _deliver(self, topic: str, payload) -> None:
        if topic != self._base + "committed":
            self.following.arrived(topic, payload)
            return
        try:
            counter, commits = messages.read_watermark(payload or b"", self._key, self._fleet, self._device)
        except messages.MessageError:
            return
        if counter <= max([line.outbox.counter for line in self.lines]):
            return
        for line in self.lines:
            outbox = line.outbox
            outbox.counter = counter
            oldest = outbox.oldest
            own_commits = [commit for commit in commits if commit[0].partition("/")[0] == line.name]
            missed = outbox.forget_committed(own_commits, line.sent)
            if outbox.oldest != oldest:
                line.patience, line.moved = _RESEND_MS, time.ticks_ms()
            elif missed and time.ticks_diff(time.ticks_ms(), line.moved) > _RESEND_MS // 2:
                line.begin_again(line.patience)


async def _for_ever(job) -> None:
    """Start a job again whenever it fails, as it may for lack of memory."""
    while True:
        try:
            await job()
        except Exception:  # ticks go on after any error, and segments are sent later
            gc.collect()
            await asyncio.sleep_ms(1000)


def _context(authorities: list):
    if not authorities:
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    for authority in authorities:
        context.load_verify_locations(cadata=authority)
    return context
