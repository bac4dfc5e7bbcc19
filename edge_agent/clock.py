"""Time for the agent, so that tests can bring their own."""

from __future__ import annotations

import threading
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Time for the agent."""

    def now_us(self) -> int:
        """Microseconds of Unix time."""

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Wait until the event is set, or some seconds have passed."""


class SystemClock:
    """The operating system's clock."""

    def now_us(self) -> int:
        """Microseconds of Unix time."""
        return time.time_ns() // 1000

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Wait until the event is set, or some seconds have passed."""
        event.wait(seconds)
