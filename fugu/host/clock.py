"""The machine's clocks: whether something that knows the time has set the one on the wall, and which start this is."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["BOOT_VARIABLE", "boot", "synchronised"]

BOOT_VARIABLE = "FUGU_BOOT_ID"
"""Names the machine's start where the kernel's name for it is hidden, as in our service unit."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TIMESYNC = Path("/run/systemd/timesync/synchronized")
_UNSYNCHRONISED = 5  # TIME_ERROR, of adjtimex(2)


def synchronised() -> bool:
    """Whether the wall clock is steered by a time server, as far as the system says; but on Linux it is believed."""
    return not sys.platform.startswith("linux") or _TIMESYNC.exists() or _steered()


def boot() -> str:
    """A name for the time since the machine was switched on; empty if there is none."""
    with suppress(OSError):
        return _BOOT.read_text().strip()
    return os.environ.get(BOOT_VARIABLE, "")


def _steered() -> bool:
    with suppress(OSError, AttributeError):
        answer: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))  # all zero: it only asks
        return 0 <= answer != _UNSYNCHRONISED
    return False
