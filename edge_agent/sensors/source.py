"""Readings, and sensors without a library; those with a thread of their own leave readings for the loop."""

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
    "library",
]


MAX_LINE_BYTES = 1 << 16


class ConfigError(FuguError, reason=Reason.CONFIG):
    """The configuration cannot be read, or what it names cannot be opened, or contradicts its policies."""


class Reading(Secret):
    """A raw sensor value on its way to the discretiser; whoever needs the value calls `reveal`."""

    __slots__ = ("_value",)
    kind = "reading"

    def __init__(self, value: Any) -> None:
        self._value = value

    def reveal(self) -> Any:
        """The raw value; for the discretiser only."""
        return self._value


class UnavailableError(Exception):
    """Raised by a sensor's function to say, whatever is measured, that there is nothing to measure with."""


class FailedError(UnavailableError):
    """The same, said by a sensor of ours; `trouble` is the reason in fixed words, with nothing foreign in them."""

    def __init__(self, trouble: str) -> None:
        super().__init__(trouble)
        self.trouble = trouble


class SensorUpdate(NamedTuple):
    """News from a source since it was last asked: its newest reading, if one came.

    `works` is what it said, by anything but a reading, of whether it works.
    """

    reading: Reading | None
    works: bool | None


class Sensor:
    """A source of readings, which answers at once and never raises.

    `recorded`: the readings of past ticks are still known, so that overdue ticks may be drawn for.
    """

    recorded = False
    _trouble = ""

    @property
    def trouble(self) -> str:
        """The newest problem in words that hold nothing of a reading, if there is one; it stays on the device."""
        return self._trouble

    def poll(self, tick: int) -> SensorUpdate:
        """Return the update for a tick."""
        raise NotImplementedError

    def read(self, tick: int) -> Reading | None:
        """The reading of a tick, or none if there is none."""
        return self.poll(tick).reading

    def finished(self, tick: int) -> bool:
        """True if there will be no tick any more; of a live sensor never, because its silence may tell of readings."""
        return False

    def close(self) -> None:
        """Close whatever it reads from; it is not read any more."""


class LiveSensor(Sensor):
    """The base of sensors whose readings come from a thread of their own: nothing gets lost between the two.

    `_gone` is set while the source does not work at all, and says so at every tick.
    """

    _gone = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._update = SensorUpdate(None, None)

    def _leave(self, reading: Reading | None = None, works: bool | None = None) -> None:
        """Add what was said, in the source's thread; readings before "does not work" are dropped."""
        with self._lock:
            last_update = SensorUpdate(None, None) if works is False else self._update
            self._update = SensorUpdate(reading or last_update.reading, last_update.works if works is None else works)

    def _take_lines(self, source: IO[bytes], keep_alive: str | None) -> None:
        """Leave each line of a byte stream, until its end. Raises OSError or ValueError.

        Lines are UTF-8; of one of more than 64 KiB the beginning counts. A `keep_alive` line is no reading, but says
        that the source works.
        """
        is_line_start = True
        while line := source.readline(MAX_LINE_BYTES):
            text = line.decode(errors="replace").strip() if is_line_start else ""
            if text == keep_alive:
                self._leave(works=True)
            elif text:
                self._leave(Reading(text))
            is_line_start = line.endswith(b"\n")

    def poll(self, tick: int) -> SensorUpdate:
        """Return what was said since the last call, once."""
        was_gone = self._gone
        with self._lock:
            update, self._update = self._update, SensorUpdate(None, None)
        return update._replace(works=False) if was_gone and self._gone else update  # it may begin meanwhile, or end


class LineSensor(LiveSensor):
    """The newest line of a byte stream; a line is read once, then the sensor is silent until the next."""

    def __init__(self, lines: BinaryIO, keep_alive: str | None = None) -> None:
        super().__init__()
        self._lines = lines
        self._keep_alive = keep_alive
        threading.Thread(target=self._follow, name="lines", daemon=True).start()

    def _follow(self) -> None:
        try:
            self._take_lines(self._lines, self._keep_alive)
            self._trouble = "its input has ended"
        except (OSError, ValueError):
            self._trouble = "its input cannot be read"
        self._gone = True


def library(module: str, extra: str) -> Any:
    """Import a library. Raises ConfigError, which says how to install it, if it does not work here."""
    try:
        return import_module(module)
    except ImportError as error:
        missing_module = error.name if error.name is not None else module
        raise ConfigError(
            f"this sensor needs {module}, and {missing_module} is missing: pip install 'fugu-edge[{extra}]'"
        ) from None
