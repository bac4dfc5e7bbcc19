"""Waking a thread that waits, also from a signal handler."""

from __future__ import annotations

import queue

__all__ = ["Wake"]


class Wake:
    """An event that a signal handler may set, and that is over once it has been waited for; one thread waits.

    `threading.Event` has a lock: a handler that runs in the main thread while this is about to wait, or to clear the
    event, would wait for that lock for ever. Putting into a SimpleQueue is safe at any moment.
    """

    def __init__(self) -> None:
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """Wake the thread that waits, or the next one that will."""
        self._tokens.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait until it is set; whether it was, before the time was over."""
        try:
            self._tokens.get(timeout=seconds)
        except queue.Empty:
            return False
        while not self._tokens.empty():
            self._tokens.get()
        return True
