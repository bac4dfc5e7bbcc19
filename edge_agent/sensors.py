"""Where readings come from: a recording, lines on standard input, or any Python function.

A sensor answers `read(tick)` at once and never raises: the moment at which a symbol leaves must not depend on the
reading. What goes wrong is counted, by type; messages of foreign code are never kept, for they may hold a reading.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TextIO

from edge_agent.config import ConfigError
from edge_agent.reading import Reading

__all__ = ["CallSensor", "LineSensor", "ReplaySensor", "Sensor", "open_sensor"]

ENTRY_POINT_GROUP = "fugu_edge.sensors"


class Sensor(Protocol):
    """A source of readings."""

    error: str
    """The newest problem in words that hold no reading; empty while there is none."""

    def read(self, tick: int) -> Reading | None:
        """The reading of a tick, or none if there is none; answers at once and never raises."""

    def finished(self, tick: int) -> bool:
        """Whether there will be no reading at this tick or any later one."""


class ReplaySensor:
    """Replays values: tick t reads row t, or row t modulo the length when looping."""

    def __init__(self, values: Sequence[float | str], *, loop: bool) -> None:
        self.error = ""
        self._values = values
        self._loop = loop

    def read(self, tick: int) -> Reading | None:
        """The value recorded for a tick."""
        if self._loop:
            tick %= len(self._values)
        return Reading(self._values[tick]) if 0 <= tick < len(self._values) else None

    def finished(self, tick: int) -> bool:
        """Whether the recording is over."""
        return not self._loop and tick >= len(self._values)


class LineSensor:
    """The newest line of a text stream; a line is read once, then the sensor is silent until the next."""

    def __init__(self, lines: TextIO) -> None:
        self.error = ""
        self._lines = lines
        self._newest: Reading | None = None
        self._ended = False
        threading.Thread(target=self._follow, name="lines", daemon=True).start()

    def _follow(self) -> None:
        try:
            for line in self._lines:
                if line.strip():
                    self._newest = Reading(line.strip())
        except (OSError, ValueError) as error:
            self.error = f"standard input: {type(error).__name__}"
        self._ended = True

    def read(self, tick: int) -> Reading | None:
        """The newest line, if one came since the last call."""
        reading, self._newest = self._newest, None
        return reading

    def finished(self, tick: int) -> bool:
        """Whether the input has ended."""
        return self._ended and self._newest is None


class CallSensor:
    """Calls a function once a tick, in a thread of its own; a tick gets what the call before it returned.

    A slow function therefore delays no symbol: its ticks count as missing readings.
    """

    def __init__(self, function: Callable[[], float | str | None]) -> None:
        self.error = ""
        self._function = function
        self._newest: Reading | None = None
        self._wanted = threading.Event()
        self._wanted.set()
        threading.Thread(target=self._follow, name="sensor", daemon=True).start()

    def _follow(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            try:
                value = self._function()
                self._newest = None if value is None else Reading(value)
                self.error = ""
            except Exception as error:
                self.error = f"sensor function raised {type(error).__name__}"

    def read(self, tick: int) -> Reading | None:
        """What the function returned since the last tick."""
        reading, self._newest = self._newest, None
        self._wanted.set()
        return reading

    def finished(self, tick: int) -> bool:
        """Never."""
        return False


def open_sensor(config: dict[str, Any], stdin: TextIO = sys.stdin) -> Sensor:
    """Make the sensor that a configuration names.

    Raises:
        ConfigError: if its file cannot be read or its function cannot be imported.
    """
    if config["kind"] == "stdin":
        return LineSensor(stdin)
    if config["kind"] == "call":
        return CallSensor(_import_function(config["target"]))
    from edge_agent.recording import read_recording

    return ReplaySensor(read_recording(Path(config["file"]), config["column"]), loop=config["loop"])


def _import_function(target: str) -> Callable[[], float | str | None]:
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
    function: Callable[[], float | str | None] = found
    return function
