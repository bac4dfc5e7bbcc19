"""The device's clock: `fugu.core.clocks` with the operating system's clocks, the owner's settings, and log messages.

A jump of the wall clock counts once the gateway's signed time confirms it, or once the wall clock has stayed there for
a while. Until then the device reports the jump. No time is known before the wall clock is synchronised, or its owner
says that it is right. The anchor is stored for as long as the machine runs, so that it outlasts a restart of the agent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from edge_agent.plan import ClockSettings
from fugu.core.clocks import SMALL_US, Anchored
from fugu.host import clock as machine
from fugu.host.process import Wake

__all__ = ["Anchor", "DeviceClock", "SystemClock"]


_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The operating system's clocks; `elapsed_us` has one origin as long as `boot` is the same."""

    synchronised = staticmethod(machine.synchronised)
    known_synchronised = staticmethod(machine.known_synchronised)
    boot = staticmethod(machine.boot)

    def now_us(self) -> int:
        """Return the wall clock's Unix time in microseconds."""
        return time.time_ns() // 1000

    def elapsed_us(self) -> int:
        """Return microseconds of a clock that is never set, and that goes on while the machine sleeps."""
        return time.clock_gettime_ns(_BOOTTIME) // 1000

    def wait(self, wake: Wake, seconds: float) -> None:
        """Wait until `wake` is set, or some seconds have passed."""
        wake.wait(seconds)


class Anchor(NamedTuple):
    """Unix time is elapsed time plus this offset, in microseconds, until the machine starts again (another `boot`)."""

    boot: str
    offset_us: int


_log = logging.getLogger(__name__)


class DeviceClock(Anchored):
    """Wall time by the monotonic clock; used from the agent's loop.

    `continues` is True if the first anchor was stored by an earlier agent since the machine's start. A jump that no
    signed time confirms counts after `patience_us`.
    """

    def __init__(
        self, clock: SystemClock, settings: ClockSettings, anchor: Anchor | None, store_anchor: Callable[[Anchor], None]
    ) -> None:
        self._machine, self._store_anchor = clock, store_anchor
        self._boot = clock.boot()
        self.continues = anchor is not None and anchor.boot != "" and anchor.boot == self._boot
        super().__init__(
            clock,
            lambda _wall: settings.trusted or clock.synchronised(),
            int(settings.confirm_seconds * 1e6),
            anchor.offset_us if anchor is not None and self.continues else None,
        )
        self._stored_offset_us = self.offset_us
        self._warning_us: int | None = None

    @property
    def is_uncertain(self) -> bool:
        """True if the time is not known yet, or the wall clock has made a jump that is not confirmed."""
        return not self.anchors or self.jump is not None

    def sleep(self, microseconds: int) -> None:
        """Let some time pass; no event ends the wait."""
        if microseconds > 0:
            self._machine.wait(Wake(), microseconds / 1e6)

    def follow(self, signed_time: int | None = None) -> None:
        """Follow the wall clock. Call this often, and with each newer signed time, in seconds of Unix time."""
        anchors_before, offset_before_us, jump_before = self.anchors, self.offset_us, self.jump
        super().follow(signed_time)
        if self.jump is not None and self.jump is not jump_before:
            self._warn_of_jump(self.jump[0] - offset_before_us)
        if self.anchors > anchors_before:
            if anchors_before:
                _log.warning(
                    "clock: the jump of the wall clock by %+.1f s counts now", (self.offset_us - offset_before_us) / 1e6
                )
            elif self._warning_us is not None:
                _log.warning("clock: it is synchronised now; ticks begin")
            self._warning_us = None
            self._keep_anchor()
        elif not anchors_before and self._warning_us is None:
            self._warning_us = self.elapsed_us()
            _log.warning(
                "clock: it is not synchronised, and no tick is drawn until it is. Let NTP set it "
                "(timedatectl set-ntp true), or, if it is right, say so: [clock] trusted = true"
            )
        elif anchors_before and abs(self.offset_us - self._stored_offset_us) > SMALL_US // 2:
            self._keep_anchor()

    def _warn_of_jump(self, jump_us: int) -> None:
        now_us = self.elapsed_us()
        if self._warning_us is None or now_us - self._warning_us >= self.patience_us:
            self._warning_us = now_us
            _log.warning(
                "clock: the wall clock jumped by %+.1f s; ticks go on without it, until the gateway's signed time "
                "confirms that, or it has stayed there for %g s",
                jump_us / 1e6,
                self.patience_us / 1e6,
            )

    def _keep_anchor(self) -> None:
        self._stored_offset_us = self.offset_us
        self._store_anchor(Anchor(self._boot, self.offset_us))
