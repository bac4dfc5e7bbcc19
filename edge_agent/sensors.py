"""Where readings come from: a recording, lines on standard input, or any Python function.

A sensor answers `read(tick)` at once and never raises: the moment at which a symbol leaves must not depend on the
reading. What goes wrong is told in fixed words, on the device only: messages of foreign code, and even the types of its
exceptions, may depend on a reading.

What silence means is said in the sensor's configuration, never guessed from values or from the time since the last
reading. "samples": a tick without a reading is missing. "changes": a reading holds until the next, or until the source
itself, whatever it measures, shows that it does not work.
"""

from __future__ import annotations

import math
import operator
import os
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from edge_agent.config_file import ConfigError
from edge_agent.reading import Reading

__all__ = [
    "CallSensor",
    "ChangeSensor",
    "LineSensor",
    "ReplaySensor",
    "Sensor",
    "UnavailableError",
    "open_sensor",
    "silence_warning",
]

ENTRY_POINT_GROUP = "fugu_edge.sensors"
MAX_LINE_BYTES = 1 << 16


class UnavailableError(Exception):
    """Raised by a sensor's function to say, whatever is measured, that there is nothing to measure with."""


class News(NamedTuple):
    """What a source has said since it was last asked.

    Attributes:
        reading: the newest reading, if one came.
        works: that it works, or that it does not, as far as it said so by anything but a reading.
    """

    reading: Reading | None
    works: bool | None


class Sensor(Protocol):
    """A source of readings."""

    @property
    def recorded(self) -> bool:
        """Whether the readings of past ticks are still known, so that overdue ticks may be drawn for."""

    @property
    def trouble(self) -> str:
        """The newest problem in words that hold nothing of a reading, if there was one; it stays on the device."""

    def news(self, tick: int) -> News:
        """What there is at a tick; answers at once and never raises."""

    def read(self, tick: int) -> Reading | None:
        """The reading of a tick, or none if there is none; answers at once and never raises."""

    def finished(self, tick: int) -> bool:
        """Whether there will be no tick any more; of a live sensor never, because its silence may tell of readings."""


class _Mailbox:
    """What a source's thread leaves for the loop: nothing gets lost between the two."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._news = News(None, None)

    def leave(self, reading: Reading | None = None, works: bool | None = None) -> None:
        """Add news; readings before "does not work" are forgotten."""
        with self._lock:
            before = News(None, None) if works is False else self._news
            self._news = News(reading or before.reading, before.works if works is None else works)

    def take(self) -> News:
        """The news, once."""
        with self._lock:
            news, self._news = self._news, News(None, None)
        return news


class ReplaySensor:
    """Replays values: tick t reads row t, or row t modulo the length when looping; an empty cell is no reading."""

    recorded = True

    def __init__(self, values: Sequence[float | str], *, loop: bool) -> None:
        self.trouble = ""
        self._values = values
        self._loop = loop

    def news(self, tick: int) -> News:
        """The value recorded for a tick."""
        return News(self.read(tick), None)

    def read(self, tick: int) -> Reading | None:
        """The value recorded for a tick."""
        if self._loop:
            tick %= len(self._values)
        if not 0 <= tick < len(self._values):
            return None
        value = self._values[tick]
        return None if isinstance(value, str) and not value.strip(" ,") else Reading(value)

    def finished(self, tick: int) -> bool:
        """Whether the recording is over."""
        return not self._loop and tick >= len(self._values)


class LineSensor:
    """The newest line of a byte stream; a line is read once, then the sensor is silent until the next.

    Args:
        lines: UTF-8; of a line of more than 64 KiB the beginning counts.
        keep_alive: a line that is no reading, but says that the source works.
    """

    recorded = False

    def __init__(self, lines: BinaryIO, keep_alive: str | None = None) -> None:
        self.trouble = ""
        self._lines = lines
        self._keep_alive = keep_alive
        self._mailbox = _Mailbox()
        self._ended = False
        threading.Thread(target=self._follow, name="lines", daemon=True).start()

    def _follow(self) -> None:
        try:
            begins = True
            while line := self._lines.readline(MAX_LINE_BYTES):
                if begins:
                    self._take(line.decode(errors="replace").strip())
                begins = line.endswith(b"\n")
            self.trouble = "its input has ended"
        except (OSError, ValueError):
            self.trouble = "its input cannot be read"
        self._ended = True

    def _take(self, line: str) -> None:
        if self._keep_alive is not None and line == self._keep_alive:
            self._mailbox.leave(works=True)
        elif line:
            self._mailbox.leave(Reading(line))

    def news(self, tick: int) -> News:
        """The newest line, if one came since the last call."""
        ended = self._ended
        news = self._mailbox.take()
        return news._replace(works=False) if ended else news

    def read(self, tick: int) -> Reading | None:
        """The newest line, if one came since the last call."""
        return self.news(tick).reading

    def finished(self, tick: int) -> bool:
        """Never: the end of the input is silence."""
        return False


class CallSensor:
    """Calls a function once a tick, in a thread of its own; a tick gets what the call before it returned.

    A slow function therefore delays no symbol: its ticks have no reading. Neither have those at which it raises.
    """

    recorded = False

    def __init__(self, function: Callable[[], Any]) -> None:
        self.trouble = ""
        self._function = function
        self._mailbox = _Mailbox()
        self._wanted = threading.Event()
        self._wanted.set()
        threading.Thread(target=self._follow, name="sensor", daemon=True).start()

    def _follow(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            try:
                value = _plain(self._function())
            except BaseException as error:  # also of SystemExit: nothing that foreign code does ends the thread
                if not isinstance(error, UnavailableError):
                    self.trouble = "its function raises an exception; run it by hand to see which"
                self._mailbox.leave(works=False)
            else:
                self._mailbox.leave(None if value is None else Reading(value), works=True)

    def news(self, tick: int) -> News:
        """What the function returned since the last tick."""
        news = self._mailbox.take()
        self._wanted.set()
        return news

    def read(self, tick: int) -> Reading | None:
        """What the function returned since the last tick."""
        return self.news(tick).reading

    def finished(self, tick: int) -> bool:
        """Never."""
        return False


def _plain(value: Any) -> Any:
    """What a function has returned as a number or a text, so that no code of another type runs in the agent's loop."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    for convert in (operator.index, float, str):
        try:
            return convert(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
        except (TypeError, ValueError):
            continue
    raise TypeError("a reading is neither a number nor a text")


class ChangeSensor:
    """A sensor that only tells of changes: its reading holds until the next, or until its source fails.

    Args:
        keep_alive_ticks: how many ticks a sign that the source works is good for. Only such signs count, and no
            reading, so that which ticks are missing does not depend on readings; none: readings hold for ever, or until
            the source says itself that it does not work.
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

    def news(self, tick: int) -> News:
        """What holds at a tick."""
        return News(self.read(tick), None)

    def read(self, tick: int) -> Reading | None:
        """The reading that holds at a tick."""
        news = self._source.news(tick)
        if news.works is False:
            self._held, self._alive = None, None
        elif news.works:
            self._alive = tick
        if news.reading is not None:
            self._held = news.reading
        if self._keep_alive_ticks is None:
            return self._held
        alive = self._alive is not None and tick - self._alive <= self._keep_alive_ticks
        return self._held if alive else None

    def finished(self, tick: int) -> bool:
        """As of the source."""
        return self._source.finished(tick)


def open_sensor(config: dict[str, Any], stdin: BinaryIO | None = None) -> Sensor:
    """Make the sensor that a configuration names.

    Args:
        config: its values, as `edge_agent.config_schema` has them.
        stdin: what to read lines from; by default the standard input.

    Raises:
        ConfigError: if its file cannot be read or its function cannot be imported.
    """
    source: Sensor
    if config["kind"] == "stdin":
        source = LineSensor(stdin or os.fdopen(0, "rb", closefd=False), config["keep_alive"])
    elif config["kind"] == "call":
        source = CallSensor(_import_function(config["target"]))
    else:
        from edge_agent.recording import read_changes, read_recording

        file, column = Path(config["file"]), config["column"]
        if (every := config.get("every")) is None:
            values = read_recording(file, column)
        else:
            values = read_changes(file, column, config["time"], every)
        source = ReplaySensor(values, loop=config["loop"])
    return source if config["silence"] == "samples" else ChangeSensor(source, config.get("keep_alive_ticks"))


def silence_warning(config: dict[str, Any]) -> str:
    """What should be known of a sensor whose readings hold for ever, as far as anybody can tell; empty for others."""
    if config["silence"] == "samples" or config["kind"] == "replay" or config["keep_alive_ticks"] is not None:
        return ""
    until = "its input ends" if config["kind"] == "stdin" else "its function raises"
    return (
        f"a reading holds until the next, or until {until}; if the source dies without that, its last state is drawn "
        "from for ever, and sooner or later known to whoever reads the stream. "
        'Give a keep-alive, or silence = "samples"'
    )


def _import_function(target: str) -> Callable[[], Any]:
    """A function by `package.module:name`, or by the name of an entry point."""
    try:
        if ":" in target:
            module, _, name = target.partition(":")
            found = getattr(import_module(module), name)
        else:
            from importlib.metadata import entry_points

            (entry,) = entry_points(group=ENTRY_POINT_GROUP, name=target)
            found = entry.load()
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"cannot import sensor {target!r}: {type(error).__name__}") from None
    if not callable(found):
        raise ConfigError(f"sensor {target!r} is not a function")
    function: Callable[[], Any] = found
    return function
