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
from fugu.contract.envelope import Envelope, key_digits
from fugu.contract.errors import FuguError
from fugu.contract.frames import Committed
from fugu.contract.group_frames import OpeningKey, Report, SealedMasks, header, pack_numbers, unpack_numbers
from fugu.contract.groups import GroupDocument
from fugu.contract.topics import parse_topic, topic_of
from fugu.core.shares import Shares, random_bits
from fugu.mqtt import Broker, Link

__all__ = ["SimulatedHomes"]

_SEND_SECONDS = 1.0
_WORD = 1 << 64


class _HomeDraws(NamedTuple):
    """Masks and share of noise of a home, drawn before a window begins."""

    masks: tuple[int, ...]
    share: int
    sealed: SealedMasks


class _Window(NamedTuple):
    number: int
    homes: Mapping[str, _HomeDraws]


_NO_WINDOW = _Window(-1, {})


class SimulatedHomes:
    """Homes that count the ticks at which their state is 1, and report as agents do.

    `states` has a sequence of states by home, one for each tick since the epoch. Each home misses a window with the
    probability `away_probability`. A report is sent each second until it is acknowledged.

    Attributes:
        digits: digits of the homes' keys, by name.
        shares: by window, the shares of noise of the homes that reported; only a simulation knows them.
    """

    def __init__(
        self, broker: Broker, document: GroupDocument, states: Mapping[str, Sequence[int]], *, away_probability: float
    ) -> None:
        self._document = document
        self._states = states
        self._away_probability = away_probability
        self._rng = random.Random(1)
        self._seeds = {name: os.urandom(32) for name in states}
        keys = {name: Ed25519PrivateKey.from_private_bytes(seed).public_key() for name, seed in self._seeds.items()}
        self.digits = {name: key_digits(key.public_bytes_raw()) for name, key in keys.items()}
        self.shares: dict[int, dict[str, int]] = {}
        if document.sum_count != 1:
            raise ValueError("simulated homes count whole windows, not blocks of a day")
        self._shares = Shares(document.noise, document.honest)
        entropy = system_entropy()
        self._bits = random_bits(lambda buffer: entropy(memoryview(buffer)))
        self._opening: tuple[OpeningKey, bytes, bytes] | None = None  # with the message and its signature
        self._last_window = dict.fromkeys(states, -1)
        self._unsent_reports: dict[tuple[str, int], bytes] = {}
        self._stop = threading.Event()
        topics = topic_of("group_key", document.fleet, document.name), topic_of("committed", document.fleet, "+")
        self._link = Link(broker, client_id="simulated-homes", subscriptions=topics, on_message=self._on_message)
        self._thread = threading.Thread(target=self._run_windows, name="homes", daemon=True)

    def start(self) -> None:
        """Start; homes report from the next window that has an opening key."""
        self._link.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop at once, also in the middle of a window."""
        self._stop.set()
        self._thread.join()
        self._link.stop()

    def _on_message(self, topic: str, payload: bytes, _retained: bool) -> None:
        parsed_topic = parse_topic(topic)
        with suppress(FuguError):
            if parsed_topic.kind == "group_key":
                envelope = Envelope.decode(payload)
                opening = OpeningKey.decode(envelope.payload)
                self._opening = opening, envelope.message, envelope.signatures[0].signature
            elif parsed_topic.kind == "committed":
                last_window = max((stream.through for stream in Committed.decode(payload).streams), default=-1)
                for name, window_number in list(self._unsent_reports):
                    if name == parsed_topic.device and window_number <= last_window:
                        del self._unsent_reports[name, window_number]

    def _run_windows(self) -> None:
        begins_us = self._document.begins_us
        current_window, next_window, last_sent = _NO_WINDOW, _NO_WINDOW, 0.0
        while not self._stop.wait(0.05):
            if time.monotonic() - last_sent >= _SEND_SECONDS:
                self._send_reports()
                last_sent = time.monotonic()
            now_us = time.time_ns() // 1000
            current_number = (now_us - begins_us(0)) // (begins_us(1) - begins_us(0))
            if current_window.homes and current_window.number < current_number:
                self._report_window(current_window)
                self._send_reports()
                current_window = _NO_WINDOW
            if next_window.homes and next_window.number <= current_number:
                current_window = next_window if next_window.number == current_number else _NO_WINDOW
                next_window = _NO_WINDOW
            if not next_window.homes and self._opening is not None:
                next_window = self._draw_window(max(current_number, -1) + 1, *self._opening)
                if begins_us(next_window.number) <= time.time_ns() // 1000:
                    next_window = _NO_WINDOW  # it has begun meanwhile

    def _draw_window(self, window_number: int, opening: OpeningKey, signed_message: bytes, signature: bytes) -> _Window:
        """Draw the homes that report a window, draw and encrypt their masks, and draw their shares."""
        document, draws_by_home = self._document, dict[str, _HomeDraws]()
        helper = bytes.fromhex(document.helper)
        for name in [name for name in self._states if self._rng.random() >= self._away_probability]:
            request_header = header(document.fleet, name, document.digest, opening.digest, window_number)
            with suppress(FuguError):
                opening_fields = signed_message, signature, opening.key
                masks, *sealed_fields = seal(
                    document.sum_count, helper, *opening_fields, self._seeds[name], request_header
                )
                sealed = SealedMasks(name, opening.digest, *sealed_fields)
                draws_by_home[name] = _HomeDraws(unpack_numbers(masks), self._shares.draw(self._bits), sealed)
        return _Window(window_number, draws_by_home)

    def _report_window(self, window: _Window) -> None:
        document, window_number = self._document, window.number
        first_tick = document.start + window_number * document.length
        for name, draws in window.homes.items():
            own_count = sum(self._states[name][first_tick : first_tick + document.length])
            masked_counts = pack_numbers([(own_count + draws.share - mask) % _WORD for mask in draws.masks])
            report_fields = 1, document.name, self._last_window[name], window_number, document.digest
            report = Report(*report_fields, (document.length,), masked_counts, draws.sealed)
            self._last_window[name] = window_number
            self._unsent_reports[name, window_number] = report.encode()
        self.shares[window_number] = {name: draws.share for name, draws in window.homes.items()}

    def _send_reports(self) -> None:
        for (name, _), payload in list(self._unsent_reports.items()):
            self._link.publish(topic_of("report", self._document.fleet, name, self._document.stream), payload)
