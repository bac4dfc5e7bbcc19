"""Many devices behind one connection: they send frames at a steady pace, and keep each until a watermark covers it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from itertools import islice
from typing import Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from fugu.contract.frames import Committed, SymbolFrame
from fugu.contract.topics import parse_topic, topic_of
from tests.support.brokers import Mosquitto, await_end, wait_until
from tests.support.outboxes import is_committed

__all__ = ["Crowd"]

_AGAIN_SECONDS = 4.0
_MOST_AGAIN = 10
_TURN_SECONDS = 0.02


class _One:
    """A device.

    Attributes:
        waiting: frames that no watermark covers, by their last tick; with when each was made and last sent.
        covered_of: when the newest frame was made that a watermark covers, and when that watermark came.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sent: list[SymbolFrame] = []
        self.waiting: dict[int, tuple[SymbolFrame, float, float]] = {}
        self.covered_of: list[tuple[float, float]] = []
        self.again_at = 0.0


class Crowd:
    """Runs within a context; a stream `hr` each, and so many frames per second of all devices together."""

    def __init__(self, broker: Mosquitto, names: Sequence[str], *, ticks: int = 10, frames_per_second: float = 200.0):
        self._ones = {name: _One(seed) for seed, name in enumerate(names)}
        self._ticks, self._pause = ticks, len(names) / frames_per_second
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._producing = True
        self._subscribed = threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="crowd", clean_session=False)
        self._client.max_queued_messages_set(0)
        self._client.on_connect = lambda client, *_: client.subscribe(topic_of("committed", "home", "+"), 1)
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = self._told
        self._client.connect_async("127.0.0.1", broker.port)
        self._thread = threading.Thread(target=self._work, name="crowd", daemon=True)

    @property
    def sent(self) -> dict[str, list[SymbolFrame]]:
        with self._lock:
            return {name: list(member.sent) for name, member in self._ones.items()}

    @property
    def all_stored(self) -> bool:
        """True if all that was sent is durable."""
        with self._lock:
            return not any(member.waiting for member in self._ones.values())

    def finish(self) -> None:
        """Make no more frames; go on sending those that wait."""
        self._producing = False

    def stored_again(self, name: str, since: float) -> float | None:
        """When a watermark has first covered a frame that the device made after a moment of the steady clock."""
        with self._lock:
            times = [came for sent_at, came in self._ones[name].covered_of if sent_at > since]
        return min(times, default=None)

    def __enter__(self) -> Self:
        self._client.loop_start()
        wait_until(self._subscribed.is_set, "the crowd's connection")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        await_end(self._thread)
        self._client.disconnect()
        self._client.loop_stop()

    def _work(self) -> None:
        due = {name: time.monotonic() + i * self._pause / len(self._ones) for i, name in enumerate(self._ones)}
        while not self._ending.wait(_TURN_SECONDS):
            now = time.monotonic()
            for name, member in self._ones.items():
                with self._lock:
                    late = (last for last, (_, _, sent) in member.waiting.items() if now - sent > _AGAIN_SECONDS)
                    sending = [*islice(late, _MOST_AGAIN)] if now >= member.again_at else []
                    if sending:
                        member.again_at = now + _AGAIN_SECONDS
                    if self._producing and now >= due[name]:
                        due[name] += self._pause
                        sending.append(self._make(member, now))
                    frames = [member.waiting[last][0] for last in sending]
                    for last in sending:
                        frame, sent_at, _ = member.waiting[last]
                        member.waiting[last] = (frame, sent_at, now)
                for frame in frames:
                    self._client.publish(topic_of("symbols", "home", name, "hr"), frame.encode(), qos=1)

    def _make(self, member: _One, now: float) -> int:
        previous = member.sent[-1].last if member.sent else -1
        symbols = bytes(member.random.choices([0, 1, 1], k=self._ticks))
        member.sent.append(SymbolFrame(1, previous, previous + 1, symbols, bits=1))
        last = member.sent[-1].last
        member.waiting[last] = (member.sent[-1], now, now)
        return last

    def _told(self, _client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        now = time.monotonic()
        member = self._ones[parse_topic(message.topic).device]
        for commit in Committed.decode(bytes(message.payload)).streams:
            with self._lock:
                for last, (frame, sent_at, _) in list(member.waiting.items()):
                    if is_committed(commit, frame):
                        del member.waiting[last]
                        member.covered_of.append((sent_at, now))
