"""The queue of publications at QoS 1 that the broker has not acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["SendQueue"]

_DUPLICATE = 0b1000


class SendQueue:
    """Publications of a link, in order: some are with the broker, others wait. Any thread may call the methods.

    At most `max_unanswered` publications may be unanswered, and `max_in_flight` of these with the broker. `send` is
    called with first byte, packet, message id and QoS of each publication, in order, and must not block.
    """

    def __init__(
        self,
        max_unanswered: int,
        max_in_flight: int,
        send: Callable[[int, bytearray, int, int], object],
        next_mid: Callable[[], int],
    ) -> None:
        self._max_unanswered = max_unanswered
        self._max_in_flight = max_in_flight
        self._send = send
        self._next_mid = next_mid
        self._in_flight: dict[int, bytearray] = {}
        self._waiting: dict[int, bytearray] = {}
        self._is_connected = False
        self._lock = threading.Lock()

    def add(self, make_packet: Callable[[int], bytearray]) -> int | None:
        """Queue the packet that `make_packet` makes of a new message id, and return the id.

        `None` if too many publications are unanswered.
        """
        with self._lock:
            if len(self._in_flight) + len(self._waiting) >= self._max_unanswered:
                return None
            mid = self._next_mid()
            while mid in self._in_flight or mid in self._waiting:
                mid = self._next_mid()
            self._waiting[mid] = make_packet(mid)
            self._send_waiting()
            return mid

    def note_answer(self, mid: int) -> bool:
        """Note that the broker has answered a publication, and send the next. False if it was not with the broker."""
        with self._lock:
            was_in_flight = self._in_flight.pop(mid, None) is not None
            self._send_waiting()
            return was_in_flight

    def note_connection(self) -> None:
        """Send again, as duplicates and in order, the publications that an earlier connection left unanswered."""
        with self._lock:
            for mid, packet in self._in_flight.items():
                packet[0] |= _DUPLICATE
                self._send(packet[0], packet, mid, 1)
            self._is_connected = True
            self._send_waiting()

    def note_disconnection(self) -> None:
        """Keep all publications until there is a connection again."""
        with self._lock:
            self._is_connected = False

    def _send_waiting(self) -> None:
        while self._is_connected and self._waiting and len(self._in_flight) < self._max_in_flight:
            mid = next(iter(self._waiting))
            packet = self._in_flight[mid] = self._waiting.pop(mid)
            self._send(packet[0], packet, mid, 1)
