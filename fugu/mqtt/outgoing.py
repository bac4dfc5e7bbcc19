"""Publications at QoS 1, from when they are given until the broker has answered for them."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Outgoing"]

_DUPLICATE = 0b1000


class Outgoing:
    """Some are with the broker, the rest waits in order; every method may be called from any thread.

    Args:
        most: publications that may be unanswered.
        send: called with the message id and the packet of each, in order; must not block.
        number: message ids, one after the other.

    Attributes:
        most_in_flight: how many may be with the broker.
    """

    def __init__(self, most: int, send: Callable[[int, bytearray], None], number: Callable[[], int]) -> None:
        self.most_in_flight = most
        self._most = most
        self._send = send
        self._number = number
        self._in_flight: dict[int, bytearray] = {}
        self._waiting: dict[int, bytearray] = {}
        self._online = False
        self._lock = threading.Lock()

    def add(self, write: Callable[[int], bytearray]) -> int | None:
        """Take one, unless too many are unanswered.

        Args:
            write: makes the packet, given its message id.

        Returns:
            The message id.
        """
        with self._lock:
            if len(self._in_flight) + len(self._waiting) >= self._most:
                return None
            mid = self._number()
            while mid in self._in_flight or mid in self._waiting:
                mid = self._number()
            self._waiting[mid] = write(mid)
            self._fill()
            return mid

    def answered(self, mid: int) -> bool:
        """The broker has answered for one, so that another may go; false if it was not with the broker."""
        with self._lock:
            known = self._in_flight.pop(mid, None) is not None
            self._fill()
            return known

    def connected(self) -> None:
        """Send again, as duplicates and in order, what was with the broker when an earlier connection ended."""
        with self._lock:
            for mid, packet in self._in_flight.items():
                packet[0] |= _DUPLICATE
                self._send(mid, packet)
            self._online = True
            self._fill()

    def disconnected(self) -> None:
        """Keep everything until there is a connection again."""
        with self._lock:
            self._online = False

    def _fill(self) -> None:
        while self._online and self._waiting and len(self._in_flight) < self.most_in_flight:
            mid = next(iter(self._waiting))
            packet = self._in_flight[mid] = self._waiting.pop(mid)
            self._send(mid, packet)
