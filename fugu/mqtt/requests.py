"""Asking a broker for topics: many in few packets, and what it has not answered yet."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import paho.mqtt.client as mqtt

__all__ = ["Requests", "is_filter"]

_MOST_TOPICS = 200
_MOST_BYTES = 1 << 12
"""Of the topics in one packet; brokers limit packets, and what answers this one has to be small, too."""
_LONGEST = (1 << 16) - 1


def is_filter(topic: str) -> bool:
    """Whether a broker may be asked for it: wildcards stand alone between slashes, `#` at the end."""
    levels = topic.split("/")
    alone = all(len(level) == 1 or not {"+", "#"} & set(level) for level in levels)
    return 0 < len(topic.encode(errors="replace")) <= _LONGEST and alone and "#" not in levels[:-1]


class Requests:
    """Subscriptions that are asked for, and those that are to end; every method may be called from any thread.

    Attributes:
        ended: topics whose end the broker has not confirmed; a session that it keeps would still have them.
    """

    def __init__(self) -> None:
        self.ended: dict[str, None] = {}
        self._asked: dict[int, list[str]] = {}
        self._ending: dict[int, list[str]] = {}
        self._open = False
        self._lock = threading.Lock()

    @property
    def answered(self) -> bool:
        """Whether there is a connection, on which the broker has answered for every topic."""
        with self._lock:
            return self._open and not self._asked

    def connected(self, client: mqtt.Client, topics: Sequence[str]) -> None:
        """Ask for everything on a new connection."""
        with self._lock:
            self._asked.clear()
            self._ending.clear()
            self._end(client, list(self.ended))
            self._ask(client, topics)
            self._open = True

    def disconnected(self) -> None:
        """Nothing will be answered any more."""
        with self._lock:
            self._open = False

    def ask(self, client: mqtt.Client | None, topics: Sequence[str]) -> None:
        """Ask for more, on the connection if there is one."""
        with self._lock:
            for topic in topics:
                self.ended.pop(topic, None)
            if client is not None and self._open:
                self._ask(client, topics)

    def end(self, client: mqtt.Client | None, topics: Sequence[str]) -> None:
        """Ask for an end, on the connection if there is one, and otherwise on the next."""
        with self._lock:
            self.ended.update(dict.fromkeys(topics))
            if client is not None and self._open:
                self._end(client, topics)

    def subscribed(self, mid: int, reasons: Iterable[Any]) -> list[tuple[str, Any]]:
        """The broker has answered; returns the topics that it refuses, each with its reason."""
        with self._lock:
            topics = self._asked.pop(mid, [])
        return [(topic, reason) for topic, reason in zip(topics, reasons, strict=False) if reason.is_failure]

    def unsubscribed(self, mid: int) -> None:
        """The broker has ended what it was asked to."""
        with self._lock:
            for topic in self._ending.pop(mid, []):
                self.ended.pop(topic, None)

    def _ask(self, client: mqtt.Client, topics: Sequence[str]) -> None:
        for part in _parts(topics):
            _, mid = client.subscribe([(topic, 1) for topic in part])
            if mid is not None:
                self._asked[mid] = part

    def _end(self, client: mqtt.Client, topics: Sequence[str]) -> None:
        for part in _parts(topics):
            _, mid = client.unsubscribe(part)
            if mid is not None:
                self._ending[mid] = part


def _parts(topics: Sequence[str]) -> Iterator[list[str]]:
    """Topics by the packet."""
    part: list[str] = []
    free = _MOST_BYTES
    for topic in topics:
        size = len(topic.encode())
        if part and (len(part) == _MOST_TOPICS or size > free):
            yield part
            part, free = [], _MOST_BYTES
        part.append(topic)
        free -= size
    if part:
        yield part
