"""Time for the agent, so that tests can bring their own."""

from __future__ import annotations

import time
from typing import Protocol

from host.wake import Wake

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Time for the agent."""

    def now_us(self) -> int:
        """Microseconds of Unix time."""

    def wait(self, wake: Wake, seconds: float) -> None:
        """Wait until woken, or some seconds have passed."""


class SystemClock:
    """The operating system's clock."""

    def now_us(self) -> int:
        """Microseconds of Unix time."""
        return time.time_ns() // 1000

    def wait(self, wake: Wake, seconds: float) -> None:
        """Wait until woken, or some seconds have passed."""
        wake.wait(seconds)
