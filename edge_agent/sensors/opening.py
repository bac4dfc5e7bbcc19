"""From a sensor's configuration to the sensor; what only one kind needs is loaded where there is one."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from edge_agent.config_file import ConfigError
from edge_agent.sensors.call import CallSensor, import_function
from edge_agent.sensors.source import LiveSensor, Reading, Sensor, SensorUpdate

__all__ = ["only_one", "open_sensor", "silence_warning"]


class _ChangeSensor(Sensor):
    """A sensor that only tells of changes: its reading holds until the next, or until its source fails.

    `keep_alive_ticks` is how many ticks a sign that the source works is good for; 0 if it says so at every tick.
    Readings are no such signs, so that which ticks are missing does not depend on them. None: readings hold for ever,
    or until the source says itself that it does not work.
    """

    def __init__(self, source: Sensor, keep_alive_ticks: int | None) -> None:
        self._source = source
        self.recorded = source.recorded
        self._keep_alive_ticks = keep_alive_ticks
        self._held: Reading | None = None
        self._alive: int | None = None

    @property
    def trouble(self) -> str:
        """As of the source."""
        return self._source.trouble

    def poll(self, tick: int) -> SensorUpdate:
        """The reading that holds at a tick."""
        update = self._source.poll(tick)
        if update.works is False:
            self._held, self._alive = None, None
        elif update.works:
            self._alive = tick
        if update.reading is not None:
            self._held = update.reading
        most = self._keep_alive_ticks
        holds = most is None or (self._alive is not None and tick - self._alive <= most)
        return SensorUpdate(self._held if holds else None, None)

    def finished(self, tick: int) -> bool:
        """As of the source."""
        return self._source.finished(tick)

    def close(self) -> None:
        """As of the source."""
        self._source.close()


class _ReplaySensor(Sensor):
    """Replays values: tick t reads row t, or row t modulo the length when looping; an empty cell is no reading."""

    recorded = True

    def __init__(self, values: Sequence[float | str], *, loop: bool) -> None:
        self._values = values
        self._loop = loop

    def poll(self, tick: int) -> SensorUpdate:
        """The value recorded for a tick."""
        if self._loop:
            tick %= len(self._values)
        value = self._values[tick] if 0 <= tick < len(self._values) else ""
        return SensorUpdate(None if isinstance(value, str) and not value.strip(" ,") else Reading(value), None)

    def finished(self, tick: int) -> bool:
        """True if the recording is over."""
        return not self._loop and tick >= len(self._values)


class _LineSensor(LiveSensor):
    """The newest line of a byte stream; a line is read once, then the sensor is silent until the next."""

    def __init__(self, lines: BinaryIO, keep_alive: str | None = None) -> None:
        super().__init__()
        self._lines = lines
        self._keep_alive = keep_alive
        self._ended = False
        threading.Thread(target=self._follow, name="lines", daemon=True).start()

    def _follow(self) -> None:
        try:
            self._take_lines(self._lines, self._keep_alive)
            self._trouble = "its input has ended"
        except (OSError, ValueError):
            self._trouble = "its input cannot be read"
        self._ended = True

    def poll(self, tick: int) -> SensorUpdate:
        """The newest line, if one came since the last call."""
        ended = self._ended
        update = super().poll(tick)
        return update._replace(works=False) if ended else update


def open_sensor(config: dict[str, Any]) -> Sensor:
    """Make the sensor that a configuration names.

    Raises ConfigError if its file, its function, or what it reads cannot be read, imported or opened.
    """
    source = _source(config)
    if config["silence"] == "samples":
        return source
    steady = config.get("availability") is not None  # such a source says at every tick that it works
    return _ChangeSensor(source, 0 if steady else config.get("keep_alive_ticks"))


def _source(config: dict[str, Any]) -> Sensor:
    match config["kind"]:
        case "stdin":
            return _LineSensor(os.fdopen(0, "rb", closefd=False), config["keep_alive"])
        case "replay":
            return _replay(config)
        case "call":
            return CallSensor(import_function(config["target"]))
        case "command":
            from edge_agent.sensors.command import CommandLineSensor, CommandSensor

            words = config["command"]
            if shutil.which(words[0]) is None:
                raise ConfigError(f"there is no command {words[0]!r} that can be run: give its whole path")
            if config["runs"] == "always":
                return CommandLineSensor(words, config["keep_alive"])
            return CommandSensor(words, config["timeout"])
        case "mqtt":
            from edge_agent.sensors.mqtt_topic import MqttSensor
            from fugu.mqtt import LinkError

            try:
                return MqttSensor(config)
            except LinkError as error:
                raise ConfigError(f"sensor of topic {config['topic']}: {error}") from None
        case "gpio":
            from edge_agent.sensors.gpio import GpioSensor

            return GpioSensor(**{key: config[key] for key in ("pin", "pull_up", "active_state", "since")})
        case _:
            from edge_agent.sensors.heart_rate import HeartRateSensor

            return HeartRateSensor(config["address"], needs_contact=config["no_contact"] == "missing")


def _replay(config: dict[str, Any]) -> Sensor:
    from edge_agent.recording import read_changes, read_recording

    file, column = Path(config["file"]), config["column"]
    if (every := config.get("every")) is None:
        values = read_recording(file, column)
    else:
        values = read_changes(file, column, config["time"], every)
    if (spans := config.get("rows")) is not None:
        if max(end for _, end in spans) > len(values):
            raise ConfigError(f"{file} has {len(values)} rows, fewer than its sensor's rows name")
        values = [value for first, end in spans for value in values[first:end]]
    return _ReplaySensor(values, loop=config["loop"])


def only_one(config: dict[str, Any]) -> tuple[str, ...]:
    """Identify an exclusive source: (description, key). Empty if it may be opened twice."""
    match config.get("kind"):
        case "stdin":
            return ("standard input",)
        case "gpio":
            return (f"GPIO pin {config['pin']}",)
        case "bluetooth-heart-rate":
            return (f"the monitor {config['address'].upper()}",)
        case "command" if config["runs"] == "always":  # which may have a receiver to itself
            return (f"the command {config['command'][0]}", *config["command"][1:])
    return ()


_UNTIL = {
    "stdin": "its input ends",
    "call": "its function raises",
    "command": "its command fails",
    "mqtt": "the connection to its broker is lost",
}


def silence_warning(config: dict[str, Any]) -> str:
    """Warn of a sensor whose readings hold for ever, as far as anybody can tell; empty for others."""
    until = _UNTIL.get(config["kind"])
    if config["silence"] == "samples" or until is None:
        return ""
    if config.get("keep_alive_ticks") is not None or config.get("availability") is not None:
        return ""
    sign = "an availability topic" if config["kind"] == "mqtt" else "a keep-alive"
    return (
        f"a reading holds until the next, or until {until}; if the source dies without that, its last state is drawn "
        f'from for ever, and sooner or later known to whoever reads the stream. Give {sign}, or silence = "samples"'
    )
