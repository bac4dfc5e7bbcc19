"""Many simulated homes of a group in one process: their masks, shares and reports, without agents and disks."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge_agent.randomiser import system_entropy
from edge_agent.reporter import seal
from fugu.contract.envelope import Envelope, digits
from fugu.contract.errors import FuguError
from fugu.contract.frames import Committed
from fugu.contract.group_frames import OpeningKey, Report, SealedMasks, header, numbers, packed
from fugu.contract.groups import GroupDocument
from fugu.contract.topics import parse_topic, topic_of
from fugu.core.shares import Shares, random_bits
from fugu.mqtt import Broker, Link

__all__ = ["SimulatedHomes"]

_SEND_SECONDS = 1.0
_WORD = 1 << 64


class _Ready(NamedTuple):
    """Masks and share of a home, drawn before a window begins."""

    masks: tuple[int, ...]
    share: int
    sealed: SealedMasks


class _Window(NamedTuple):
    number: int
    homes: Mapping[str, _Ready]


_NOTHING = _Window(-1, {})


class SimulatedHomes:
    """Homes that count the ticks at which their states are 1, by tick since the epoch, and report as agents do.

    Each misses a window with the probability `away`. A report is sent each second until it is acknowledged.

    Attributes:
        digits: of the homes' keys, by name.
        shares: by window the shares of noise of those that reported; only a simulation knows them.
    """

    def __init__(
        self,
        broker: Broker,
        document: GroupDocument,
        states: Mapping[str, Sequence[int]],
        *,
        away: float,
    ) -> None:
        self._document = document
        self._states = states
        self._away = away
        self._chance = random.Random(1)
        self._seeds = {name: os.urandom(32) for name in states}
        self.digits = {name: digits(_public(seed)) for name, seed in self._seeds.items()}
        self.shares: dict[int, dict[str, int]] = {}
        if document.numbers != 1:
            raise ValueError("simulated homes count whole windows, not blocks of a day")
        self._shares = Shares(document.noise, document.honest)
        entropy = system_entropy()
        self._bits = random_bits(lambda buffer: entropy(memoryview(buffer)))
        self._key: list[bytes] = []
        self._opening: OpeningKey | None = None
        self._last = dict.fromkeys(states, -1)
        self._unsent: dict[tuple[str, int], bytes] = {}
        self._stop = threading.Event()
        topics = topic_of("group_key", document.fleet, document.name), topic_of("committed", document.fleet, "+")
        self._link = Link(broker, client_id="simulated-homes", subscriptions=topics, on_message=self._arrived)
        self._thread = threading.Thread(target=self._run, name="homes", daemon=True)

    def start(self) -> None:
        """Begin with the next window for which there is a key."""
        self._link.start()
        self._thread.start()

    def stop(self) -> None:
        """End, whatever is under way."""
        self._stop.set()
        self._thread.join()
        self._link.stop()

    def _arrived(self, topic: str, payload: bytes, _retained: bool) -> None:
        place = parse_topic(topic)
        try:
            if place.kind == "group_key":
                envelope = Envelope.decode(payload)
                opening = OpeningKey.decode(envelope.payload)
                self._key = [envelope.message, envelope.signatures[0].signature, opening.key]
                self._opening = opening
            elif place.kind == "committed":
                through = max((stream.through for stream in Committed.decode(payload).streams), default=-1)
                for name, number in list(self._unsent):
                    if name == place.device and number <= through:
                        del self._unsent[name, number]
        except FuguError:
            return

    def _run(self) -> None:
        begins_us = self._document.begins_us
        under_way, following, sent = _NOTHING, _NOTHING, 0.0
        while not self._stop.wait(0.05):
            if time.monotonic() - sent >= _SEND_SECONDS:
                self._send()
                sent = time.monotonic()
            now_us = time.time_ns() // 1000
            window = (now_us - begins_us(0)) // (begins_us(1) - begins_us(0))
            if under_way.homes and under_way.number < window:
                self._report(under_way)
                self._send()
                under_way = _NOTHING
            if following.homes and following.number <= window:
                under_way, following = (following if following.number == window else _NOTHING), _NOTHING
            if not following.homes and self._opening is not None:
                following = self._prepared(max(window, -1) + 1, self._opening)
                if begins_us(following.number) <= time.time_ns() // 1000:
                    following = _NOTHING  # it has begun meanwhile

    def _prepared(self, number: int, opening: OpeningKey) -> _Window:
        """Draw and encrypt the masks of a window's homes, and draw their shares."""
        document, homes = self._document, dict[str, _Ready]()
        helper = bytes.fromhex(document.helper)
        for name in [name for name in self._states if self._chance.random() >= self._away]:
            head = header(document.fleet, name, document.digest, opening.digest, number)
            with suppress(FuguError):
                signed, signature, key = self._key
                masks, *fields = seal(document.numbers, helper, signed, signature, key, self._seeds[name], head)
                sealed = SealedMasks(name, opening.digest, *fields)
                homes[name] = _Ready(numbers(masks), self._shares.draw(self._bits), sealed)
        return _Window(number, homes)

    def _report(self, window: _Window) -> None:
        document, number = self._document, window.number
        first = document.start + number * document.length
        for name, ready in window.homes.items():
            count = sum(self._states[name][first : first + document.length])
            part = packed([(count + ready.share - mask) % _WORD for mask in ready.masks])
            head = 1, document.name, self._last[name], number, document.digest
            report = Report(*head, (document.length,), part, ready.sealed)
            self._last[name] = number
            self._unsent[name, number] = report.encode()
        self.shares[number] = {name: ready.share for name, ready in window.homes.items()}

    def _send(self) -> None:
        for (name, _), payload in list(self._unsent.items()):
            self._link.publish(topic_of("report", self._document.fleet, name, self._document.stream), payload)


def _public(seed: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
