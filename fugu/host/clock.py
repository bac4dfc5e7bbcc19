"""The kernel's word on its clock, and lengths of time in words."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["boot", "known_synchronised", "seconds_of", "synchronised"]

BOOT_VARIABLE = "FUGU_BOOT_ID"
"""Names the machine's start where the kernel's name for it is hidden, as in our service unit."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TIMESYNC = Path("/run/systemd/timesync/synchronized")
_UNSYNCHRONISED = 5  # TIME_ERROR, of adjtimex(2)
_LENGTH = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd]?)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_of(text: str) -> float:
    """Read a length of time, as `90s`, `10m`, `1h` or `2d`, or a number alone. ValueError if it is none above 0."""
    match = _LENGTH.fullmatch(text)
    seconds = 0.0 if match is None else float(match[1]) * _UNITS[match[2]]
    if not seconds > 0.0:
        raise ValueError(f"{text!r:.60} is no length of time above 0: 90s, 10m, 1h, 2d or a number")
    return seconds


def synchronised() -> bool:
    """True if the wall clock is steered by a time server, as far as the system says; but on Linux it is believed."""
    return not sys.platform.startswith("linux") or known_synchronised()


def known_synchronised() -> bool:
    """True if the system says that a time server steers the wall clock; False where it cannot know."""
    return sys.platform.startswith("linux") and (_TIMESYNC.exists() or _steered())


def boot() -> str:
    """A name for the time since the machine was switched on; empty if there is none."""
    with suppress(OSError):
        return _BOOT.read_text().strip()
    return os.environ.get(BOOT_VARIABLE, "")


def _steered() -> bool:
    with suppress(OSError, AttributeError):
        clock_state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))  # all zero: it only asks
        return 0 <= clock_state != _UNSYNCHRONISED
    return False
