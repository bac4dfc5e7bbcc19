"""Sensors and readings, the mailbox between a sensor's thread and the agent's loop, and sensors without a library."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import IO, Any, BinaryIO, NamedTuple, NoReturn, Protocol

from edge_agent.config_file import ConfigError

__all__ = [
    "ChangeSensor",
    "FailedError",
    "LineSensor",
    "LiveSensor",
    "Reading",
    "ReplaySensor",
    "Sensor",
    "SensorUpdate",
    "UnavailableError",
    "library",
    "lines_of",
]


class Reading:
    """A raw sensor value on its way to the discretiser; whoever needs the value calls `reveal`."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def reveal(self) -> Any:
        """The raw value; for the discretiser only."""
        return self._value

    def __repr__(self) -> str:
        return "<reading>"

    def __format__(self, spec: str) -> str:
        return "<reading>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a reading does not leave the process")


class UnavailableError(Exception):
    """Raised by a sensor's function to say, whatever is measured, that there is nothing to measure with."""


class FailedError(UnavailableError):
    """The same, said by a sensor of ours; `trouble` is the reason in fixed words, with nothing foreign in them."""

    def __init__(self, trouble: str) -> None:
        super().__init__(trouble)
        self.trouble = trouble


class SensorUpdate(NamedTuple):
    """What a source has said since it was last asked: its newest reading, if one came.

    `works` is what it said, by anything but a reading, of whether it works.
    """

    reading: Reading | None
    works: bool | None


class Sensor(Protocol):
    """A source of readings."""

    @property
    def recorded(self) -> bool:
        """True if the readings of past ticks are still known, so that overdue ticks may be drawn for."""

    @property
    def trouble(self) -> str:
        """The newest problem in words that hold nothing of a reading, if there is one; it stays on the device."""

    def poll(self, tick: int) -> SensorUpdate:
        """What there is at a tick; answers at once and never raises."""

    def read(self, tick: int) -> Reading | None:
        """The reading of a tick, or none if there is none; answers at once and never raises."""

    def finished(self, tick: int) -> bool:
        """True if there will be no tick any more; of a live sensor never, because its silence may tell of readings."""

    def close(self) -> None:
        """Close whatever it reads from; it is not read any more."""


class Mailbox:
    """What a source's thread leaves for the loop: nothing gets lost between the two."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._update = SensorUpdate(None, None)

    def leave(self, reading: Reading | None = None, works: bool | None = None) -> None:
        """Add what was said; readings before "does not work" are dropped."""
        with self._lock:
            before = SensorUpdate(None, None) if works is False else self._update
            self._update = SensorUpdate(reading or before.reading, before.works if works is None else works)

    def take(self) -> SensorUpdate:
        """What was said since the last call, once."""
        with self._lock:
            update, self._update = self._update, SensorUpdate(None, None)
        return update


class LiveSensor:
    """What sensors have in common whose readings come from a thread of their own, through a mailbox."""

    recorded = False

    def __init__(self) -> None:
        self.trouble = ""
        self._mailbox = Mailbox()

    def poll(self, tick: int) -> SensorUpdate:
        """What came since the last call."""
        return self._mailbox.take()

    def read(self, tick: int) -> Reading | None:
        """The newest reading that came since the last call, if one did."""
        return self.poll(tick).reading

    def finished(self, tick: int) -> bool:
        """Never: silence is not the end."""
        return False

    def close(self) -> None:
        """Nothing to close."""


class ChangeSensor:
    """A sensor that only tells of changes: its reading holds until the next, or until its source fails.

    `keep_alive_ticks` is how many ticks a sign that the source works is good for; 0 if it says so at every tick.
    Readings are no such signs, so that which ticks are missing does not depend on them. None: readings hold for ever,
    or until the source says itself that it does not work.
    """

    def __init__(self, source: Sensor, keep_alive_ticks: int | None) -> None:
        self._source = source
        self._keep_alive_ticks = keep_alive_ticks
        self._held: Reading | None = None
        self._alive: int | None = None

    @property
    def recorded(self) -> bool:
        """As of the source."""
        return self._source.recorded

    @property
    def trouble(self) -> str:
        """As of the source."""
        return self._source.trouble

    def poll(self, tick: int) -> SensorUpdate:
        """What holds at a tick."""
        return SensorUpdate(self.read(tick), None)

    def read(self, tick: int) -> Reading | None:
        """The reading that holds at a tick."""
        update = self._source.poll(tick)
        if update.works is False:
            self._held, self._alive = None, None
        elif update.works:
            self._alive = tick
        if update.reading is not None:
            self._held = update.reading
        if self._keep_alive_ticks is None:
            return self._held
        alive = self._alive is not None and tick - self._alive <= self._keep_alive_ticks
        return self._held if alive else None

    def finished(self, tick: int) -> bool:
        """As of the source."""
        return self._source.finished(tick)

    def close(self) -> None:
        """As of the source."""
        self._source.close()


def library(module: str, extra: str) -> Any:
    """Import a library. Raises ConfigError, which says how to install it, if it does not work here."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = error.name if error.name is not None else module
        raise ConfigError(
            f"this sensor needs {module}, and {missing} is missing: pip install 'fugu-edge[{extra}]'"
        ) from None


class ReplaySensor:
    """Replays values: tick t reads row t, or row t modulo the length when looping; an empty cell is no reading."""

    recorded = True

    def __init__(self, values: Sequence[float | str], *, loop: bool) -> None:
        self.trouble = ""
        self._values = values
        self._loop = loop

    def poll(self, tick: int) -> SensorUpdate:
        """The value recorded for a tick."""
        return SensorUpdate(self.read(tick), None)

    def read(self, tick: int) -> Reading | None:
        """The value recorded for a tick."""
        if self._loop:
            tick %= len(self._values)
        if not 0 <= tick < len(self._values):
            return None
        value = self._values[tick]
        return None if isinstance(value, str) and not value.strip(" ,") else Reading(value)

    def finished(self, tick: int) -> bool:
        """True if the recording is over."""
        return not self._loop and tick >= len(self._values)

    def close(self) -> None:
        """Nothing to close."""


MAX_LINE_BYTES = 1 << 16


def lines_of(source: IO[bytes]) -> Iterator[str]:
    """The stripped lines of a byte stream; of one of more than 64 KiB the beginning. Raises OSError or ValueError."""
    begins = True
    while line := source.readline(MAX_LINE_BYTES):
        if begins:
            yield line.decode(errors="replace").strip()
        begins = line.endswith(b"\n")


class LineSensor(LiveSensor):
    """The newest line of a byte stream; a line is read once, then the sensor is silent until the next.

    Lines are UTF-8; of one of more than 64 KiB the beginning counts. A `keep_alive` line is no reading, but says that
    the source works.
    """

    def __init__(self, lines: BinaryIO, keep_alive: str | None = None) -> None:
        super().__init__()
        self._lines = lines
        self._keep_alive = keep_alive
        self._ended = False
        threading.Thread(target=self._follow, name="lines", daemon=True).start()

    def _follow(self) -> None:
        try:
            for line in lines_of(self._lines):
                self._take(line)
            self.trouble = "its input has ended"
        except (OSError, ValueError):
            self.trouble = "its input cannot be read"
        self._ended = True

    def _take(self, line: str) -> None:
        if self._keep_alive is not None and line == self._keep_alive:
            self._mailbox.leave(works=True)
        elif line:
            self._mailbox.leave(Reading(line))

    def poll(self, tick: int) -> SensorUpdate:
        """The newest line, if one came since the last call."""
        ended = self._ended
        update = self._mailbox.take()
        return update._replace(works=False) if ended else update
