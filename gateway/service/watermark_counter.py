"""The numbers of watermarks: each above every one before, across restarts, and across gateways that follow each other.

They are microseconds of Unix time as it was at the start, so that a gateway with a new store is above the one before
it. What has been used is reserved in the store beforehand: a clock that was set back, or was ahead for a while, changes
nothing for a gateway that keeps its store.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.service.store import Store

__all__ = ["WatermarkCounter"]

RESERVED_US = 10_000_000


class WatermarkCounter:
    """Counts from where the store or the clock says, whichever is further.

    Args:
        now_us: Unix time in microseconds, asked once.
        elapsed_us: a monotonic time in microseconds.
    """

    def __init__(
        self,
        store: Store,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        elapsed_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
    ) -> None:
        self._store = store
        self._elapsed_us = elapsed_us
        self._reserved = store.reserved_counter()
        self._last = max(now_us(), self._reserved)
        self._ahead = self._last - elapsed_us()

    def next(self) -> int:
        """A number above all before.

        Raises:
            DatabaseError: the store cannot be used.
        """
        number = max(self._last + 1, self._ahead + self._elapsed_us())
        if number > self._reserved:
            self._store.reserve_counter(number + RESERVED_US)
            self._reserved = number + RESERVED_US
        self._last = number
        return number
