"""Publications at QoS 1 on their way: how many are with the broker, and which are sent again after a connection."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Outgoing"]

_DUPLICATE = 0b1000


class Outgoing:
    """Publications of one link: some are with the broker, the rest waits in order; any thread may call the methods.

    `max_unanswered` of them may be unanswered, `max_in_flight` with the broker. `send` is called with first byte,
    packet, message id and QoS of each, in order, and must not block.
    """

    def __init__(
        self,
        max_unanswered: int,
        max_in_flight: int,
        send: Callable[[int, bytearray, int, int], object],
        next_mid: Callable[[], int],
    ) -> None:
        self._most = max_unanswered
        self._most_in_flight = max_in_flight
        self._send = send
        self._number = next_mid
        self._in_flight: dict[int, bytearray] = {}
        self._waiting: dict[int, bytearray] = {}
        self._online = False
        self._lock = threading.Lock()

    def add(self, make_packet: Callable[[int], bytearray]) -> int | None:
        """Take a packet that `make_packet` makes of its message id, unless too many are unanswered; return the id."""
        with self._lock:
            if len(self._in_flight) + len(self._waiting) >= self._most:
                return None
            mid = self._number()
            while mid in self._in_flight or mid in self._waiting:
                mid = self._number()
            self._waiting[mid] = make_packet(mid)
            self._fill()
            return mid

    def answered(self, mid: int) -> bool:
        """The broker has answered for one, so that another may go; false if it was not with the broker."""
        with self._lock:
            was_in_flight = self._in_flight.pop(mid, None) is not None
            self._fill()
            return was_in_flight

    def connected(self) -> None:
        """Send again, as duplicates and in order, what was with the broker when an earlier connection ended."""
        with self._lock:
            for mid, packet in self._in_flight.items():
                packet[0] |= _DUPLICATE
                self._send(packet[0], packet, mid, 1)
            self._online = True
            self._fill()

    def disconnected(self) -> None:
        """Keep everything until there is a connection again."""
        with self._lock:
            self._online = False

    def _fill(self) -> None:
        while self._online and self._waiting and len(self._in_flight) < self._most_in_flight:
            mid = next(iter(self._waiting))
            packet = self._in_flight[mid] = self._waiting.pop(mid)
            self._send(packet[0], packet, mid, 1)
