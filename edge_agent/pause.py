"""A pause: the person who is measured has asked that nothing be drawn, and no sensor read, until it is over.

It is a file beside the outbox, so that it outlasts restarts and needs no running agent: while it is there, and the Unix
time in it (in seconds; none for ever) has not come, the device is paused.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

from fugu.contract.errors import FuguError

__all__ = ["Pause", "PauseError", "seconds_of"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class PauseError(FuguError):
    """A pause cannot begin or end, or its length is not one."""


class Pause:
    """The pause of the agent that has an outbox.

    Attributes:
        path: of the file.
    """

    def __init__(self, outbox: str | Path) -> None:
        self.path = Path(f"{outbox}.pause")
        self._seen: tuple[int, ...] = ()
        self._until = -math.inf

    def holds(self, now: float) -> bool:
        """Whether the device is paused at a Unix time in seconds; it is, too, if the file cannot be understood."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        seen = status.st_ino, status.st_mtime_ns, status.st_size
        if seen != self._seen:
            self._seen, self._until = seen, self._read()
        return not now >= self._until

    def begin(self, until: float | None) -> None:
        """Pause until a Unix time in seconds, or for ever.

        Raises:
            PauseError: the file cannot be written.
        """
        beside = self.path.with_name(self.path.name + ".new")
        try:
            beside.write_text("" if until is None else f"{until:.0f}\n", encoding="utf-8")
            beside.chmod(0o644)  # who pauses may be another account than who runs the agent
            beside.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise PauseError(f"cannot write {self.path}: {error.strerror}") from None

    def end(self) -> None:
        """Pause no more.

        Raises:
            PauseError: the file cannot be removed.
        """
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise PauseError(f"cannot remove {self.path}: {error.strerror}") from None

    def _read(self) -> float:
        try:
            text = self.path.read_text(encoding="utf-8").strip()
            return float(text) if text else math.inf
        except (OSError, ValueError):
            return math.inf


def seconds_of(text: str) -> float:
    """A length of time such as `90s`, `30m`, `2h` or `1d`.

    Raises:
        PauseError: it is none.
    """
    match = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    if match is None:
        raise PauseError(f"{text!r} is no length of time: 90s, 30m, 2h or 1d")
    return int(match[1]) * float(_UNITS[match[2]])
