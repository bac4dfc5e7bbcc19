"""Readings, and the base classes of sensors; a sensor with a thread of its own passes its readings to the loop."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import IO, Any, BinaryIO, NamedTuple

from fugu.contract.errors import FuguError, Reason
from fugu.core.windows import Secret

__all__ = [
    "ConfigError",
    "FailedError",
    "LineSensor",
    "LiveSensor",
    "Reading",
    "Sensor",
    "SensorUpdate",
    "UnavailableError",
    "import_library",
]


MAX_LINE_BYTES = 1 << 16


class ConfigError(FuguError, reason=Reason.CONFIG):
    """The configuration cannot be read, or what it names cannot be opened, or contradicts its policies."""


class Reading(Secret):
    """A raw sensor value on its way to the discretiser; only `reveal` gives the value."""

    __slots__ = ("_value",)
    kind = "reading"

    def __init__(self, value: Any) -> None:
        self._value = value

    def reveal(self) -> Any:
        """Return the raw value; for the discretiser only."""
        return self._value


class UnavailableError(Exception):
    """Raised by a sensor's function to say that the source does not work, independently of what it measures."""


class FailedError(UnavailableError):
    """Raised by sensors of this package if the source does not work; the text is the reason, in fixed words."""


class SensorUpdate(NamedTuple):
    """News from a source since the last poll: its newest reading, if one came.

    `works` is whether it said, by anything but a reading, that it works; None if it said nothing.
    """

    reading: Reading | None
    works: bool | None


class Sensor:
    """A source of readings, which answers at once and never raises.

    `recorded`: the readings of past ticks are still known, so that overdue ticks may still be drawn.
    """

    recorded = False
    _trouble = ""

    @property
    def trouble(self) -> str:
        """The newest problem, in words that hold nothing of a reading; "" if there is none. It stays on the device."""
        return self._trouble

    def poll(self, tick: int) -> SensorUpdate:
        """Return the update for a tick."""
        raise NotImplementedError

    def read(self, tick: int) -> Reading | None:
        """Return the reading of a tick; `None` if there is none."""
        return self.poll(tick).reading

    def finished(self, tick: int) -> bool:
        """True if a recording has ended before a tick. A live sensor never ends: its silence may depend on readings."""
        return False

    def close(self) -> None:
        """Close the source; the sensor is not read any more."""


class LiveSensor(Sensor):
    """Base of sensors whose readings come from a thread of their own; it keeps updates until the loop polls.

    `_is_gone` is True while the source does not work; every poll then says so.
    """

    _is_gone = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._update = SensorUpdate(None, None)

    def _add_update(self, reading: Reading | None = None, works: bool | None = None) -> None:
        """Add a reading or a sign to the next update, in the source's thread; `works=False` drops earlier readings."""
        with self._lock:
            last_update = SensorUpdate(None, None) if works is False else self._update
            self._update = SensorUpdate(reading or last_update.reading, last_update.works if works is None else works)

    def _take_lines(self, source: IO[bytes], keep_alive: str | None) -> None:
        """Take each line of a byte stream as a reading, until its end. Raises OSError or ValueError.

        Lines are UTF-8; of a line of more than 64 KiB only the beginning counts. A `keep_alive` line is no reading, but
        says that the source works.
        """
        is_line_start = True
        while line := source.readline(MAX_LINE_BYTES):
            text = line.decode(errors="replace").strip() if is_line_start else ""
            if text == keep_alive:
                self._add_update(works=True)
            elif text:
                self._add_update(Reading(text))
            is_line_start = line.endswith(b"\n")

    def poll(self, tick: int) -> SensorUpdate:
        """Return the update since the last poll."""
        was_gone = self._is_gone
        with self._lock:
            update, self._update = self._update, SensorUpdate(None, None)
        return update._replace(works=False) if was_gone and self._is_gone else update  # `_is_gone` may have changed


class LineSensor(LiveSensor):
    """The newest line of a byte stream; a line is read once, then the sensor is silent until the next."""

    def __init__(self, lines: BinaryIO, keep_alive: str | None = None) -> None:
        super().__init__()
        self._lines = lines
        self._keep_alive = keep_alive
        threading.Thread(target=self._read_lines, name="lines", daemon=True).start()

    def _read_lines(self) -> None:
        try:
            self._take_lines(self._lines, self._keep_alive)
            self._trouble = "its input has ended"
        except (OSError, ValueError):
            self._trouble = "its input cannot be read"
        self._is_gone = True


def import_library(module: str, extra: str) -> Any:
    """Import a library. Raises ConfigError, which says how to install it, if it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        missing_module = error.name if error.name is not None else module
        raise ConfigError(
            f"this sensor needs {module}, and {missing_module} is missing: pip install 'fugu-edge[{extra}]'"
        ) from None
