"""The machine's clock: whether it is synchronised, the id of its start, and lengths of time as texts."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["boot", "known_synchronised", "seconds_of", "synchronised"]

BOOT_VARIABLE = "FUGU_BOOT_ID"
"""Environment variable with the boot id, for services that may not read the kernel's file."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TIMESYNC = Path("/run/systemd/timesync/synchronized")
_UNSYNCHRONISED = 5  # TIME_ERROR, of adjtimex(2)
_LENGTH = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd]?)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_of(text: str) -> float:
    """Read a length of time, `90s`, `10m`, `1h`, `2d` or a number of seconds.

    ValueError: it is none, not above 0, or of more than 9 digits or 6 decimals.
    """
    length_match = _LENGTH.fullmatch(text)
    seconds = 0.0 if length_match is None else float(length_match[1]) * _UNITS[length_match[2]]
    if not seconds > 0.0:
        raise ValueError(
            f"{text!r:.60} is no length of time above 0, of at most 9 digits and 6 decimals: 90s, 10m, 1h, 2d or 60"
        )
    return seconds


def synchronised() -> bool:
    """True if a time server steers the wall clock; always True on systems other than Linux, which cannot tell."""
    return not sys.platform.startswith("linux") or known_synchronised()


def known_synchronised() -> bool:
    """True if the system says that a time server steers the wall clock; False on systems that cannot tell."""
    return sys.platform.startswith("linux") and (_TIMESYNC.exists() or _steered())


def boot() -> str:
    """Return the kernel's id of the machine's current start; "" if it is not known."""
    with suppress(OSError):
        return _BOOT.read_text().strip()
    return os.environ.get(BOOT_VARIABLE, "")


def _steered() -> bool:
    with suppress(OSError, AttributeError):
        clock_state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))  # all zero: the call only reads
        return 0 <= clock_state != _UNSYNCHRONISED
    return False
