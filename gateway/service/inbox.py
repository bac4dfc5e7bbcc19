"""The queue between the network thread and the worker: bounded, and emptied many at a time."""

from __future__ import annotations

from collections import deque
from threading import Condition
from typing import NamedTuple

__all__ = ["Acknowledged", "Connected", "Event", "Inbox", "Message"]


class Message(NamedTuple):
    """What the broker has delivered."""

    topic: str
    payload: bytes


class Acknowledged(NamedTuple):
    """The broker has answered for a message of ours; unless it was accepted, nobody will get it."""

    message_id: int
    accepted: bool = True


class Connected(NamedTuple):
    """There is a new connection."""


Event = Message | Acknowledged | Connected


class Inbox:
    """A queue that makes the network thread wait when it is full, so that the rest stays with the broker.

    Args:
        patience: seconds to wait for room; then the message is refused (its device will send it again).
    """

    def __init__(self, capacity: int, patience: float) -> None:
        self._capacity = capacity
        self._patience = patience
        self._events: deque[Event] = deque()
        self._changed = Condition()
        self._closed = False

    def deliver(self, message: Message) -> bool:
        """Append a message; false if the queue is closed or remains full."""
        with self._changed:
            room = self._changed.wait_for(
                lambda: self._closed or len(self._events) < self._capacity, timeout=self._patience
            )
            if self._closed or not room:
                return False
            self._append(message)
            return True

    def notify(self, event: Acknowledged | Connected) -> None:
        """Append what takes no room to speak of, and is wanted after closing, too."""
        with self._changed:
            self._append(event)

    def take(self, most: int, timeout: float) -> list[Event]:
        """Remove the oldest events; empty after the timeout, or at once if the queue is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._closed, timeout=timeout)
            taken = [self._events.popleft() for _ in range(min(most, len(self._events)))]
            if len(self._events) < self._capacity:
                self._changed.notify_all()
            return taken

    def take_after_close(self, timeout: float) -> list[Event]:
        """Like `take`, and waits although the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._events), timeout=timeout)
            taken = list(self._events)
            self._events.clear()
            return taken

    def close(self) -> None:
        """Refuse messages from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def drained(self) -> bool:
        """Whether the queue is closed and empty."""
        with self._changed:
            return self._closed and not self._events

    def _append(self, event: Event) -> None:
        self._events.append(event)
        if len(self._events) == 1:
            self._changed.notify_all()
