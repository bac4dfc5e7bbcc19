"""From a sensor's configuration to the sensor, or one for several streams; what only one kind needs is loaded then.

Streams of one sensor get one reading a tick, and one state where they have the same discretiser: what they tell
together is bounded only where they have one sequence of states (`fugu.contract.joint`).
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from edge_agent.config_file import ConfigError
from edge_agent.sensors.call import CallSensor, import_function
from edge_agent.sensors.source import LiveSensor, Reading, Sensor, SensorUpdate
from fugu.contract.classify import classifier_of
from fugu.core.states import Classifier
from fugu.host.codes import Codes

if TYPE_CHECKING:
    from edge_agent.plan import StreamPlan

__all__ = ["Sensors", "SharedSensor", "check_shared", "open_sensor", "open_sensors", "silence_warning"]

_Key = tuple[str, int, int]
_T = TypeVar("_T")


class _SensorAround(Sensor):
    """A sensor that has its readings from another one."""

    def __init__(self, source: Sensor) -> None:
        self._source = source
        self.recorded = source.recorded

    @property
    def trouble(self) -> str:
        """As of the source."""
        return self._source.trouble

    def finished(self, tick: int) -> bool:
        """As of the source."""
        return self._source.finished(tick)

    def close(self) -> None:
        """As of the source."""
        self._source.close()


class _CodedSensor(_SensorAround):
    """A sensor some of whose readings are codes for none: such a reading says that there is none, until the next."""

    def __init__(self, source: Sensor, codes: Codes) -> None:
        super().__init__(source)
        self._codes = codes

    def poll(self, tick: int) -> SensorUpdate:
        """The update of the source, with an empty reading in the place of a code."""
        update = self._source.poll(tick)
        if update.reading is not None and update.reading.reveal() in self._codes:
            return update._replace(reading=Reading(None))
        return update


class _ChangeSensor(_SensorAround):
    """A sensor that only tells of changes: its reading holds until the next, or until its source fails.

    `keep_alive_ticks` is how many ticks a sign that the source works is good for; 0 if it says so at every tick.
    Readings are no such signs, so that which ticks are missing does not depend on them. None: readings hold for ever,
    or until the source says itself that it does not work.
    """

    def __init__(self, source: Sensor, keep_alive_ticks: int | None) -> None:
        super().__init__(source)
        self._keep_alive_ticks = keep_alive_ticks
        self._held: Reading | None = None
        self._alive: int | None = None

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
    if codes := Codes(config.get("missing_values", ())):
        source = _CodedSensor(source, codes)
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
    only = config.get("only", ())
    if (every := config.get("every")) is None:
        values = read_recording(file, column, only)
    else:
        values = read_changes(file, column, config["time"], every, only)
    if (spans := config.get("rows")) is not None:
        if max(end for _, end in spans) > len(values):
            raise ConfigError(f"{file} has {len(values)} rows, fewer than its sensor's rows name")
        values = [value for first, end in spans for value in values[first:end]]
    return _ReplaySensor(values, loop=config["loop"])


def _only_one(config: dict[str, Any]) -> tuple[str, ...]:
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


_FAULT = "it raises an exception, and none should: please report it"


class SharedSensor:
    """A sensor as the streams of one clock see it; `newest` is the newest tick read, the only one with a reading.

    A sensor that raises, as none should, has no reading.
    """

    def __init__(self, sensor: Sensor) -> None:
        self.sensor = sensor
        self.recorded = sensor.recorded
        self.newest = -1
        self._fault = ""
        self._reading: Reading | None = None
        self._discretisers: dict[str, Classifier] = {}

    @property
    def trouble(self) -> str:
        """The sensor's newest problem."""
        return self._fault or self._safely(lambda: self.sensor.trouble, _FAULT)

    def read(self, tick: int) -> Reading | None:
        """The reading of a tick, the same for whoever asks for it until somebody asks for a later one."""
        if tick > self.newest:
            self.newest, self._reading = tick, self._safely(lambda: self.sensor.read(tick), None)
        return self._reading if tick == self.newest else None

    def finished(self, tick: int) -> bool:
        """True if there will be no tick any more."""
        return self._safely(lambda: self.sensor.finished(tick), False)

    def _safely(self, ask: Callable[[], _T], instead: _T) -> _T:
        try:
            return ask()
        except Exception:  # its text and its class may hold a reading
            self._fault = _FAULT
            return instead

    def discretiser(self, document: dict[str, object]) -> Classifier:
        """The discretiser of a document, the same for all streams and versions that have it: it may have a memory."""
        return self._discretisers.setdefault(json.dumps(document, sort_keys=True), classifier_of(document))


class Sensors:
    """The sensors of a device's streams; streams of equal sensors and clocks have the same."""

    def __init__(self) -> None:
        self._shared: dict[_Key, SharedSensor] = {}

    def adopt(self, plan: StreamPlan, sensor: Sensor) -> SharedSensor:
        """Take a sensor that is open; the same for several streams is shared by those of one clock."""
        found = self._shared.get(_key(plan))
        if found is None or found.sensor is not sensor:
            found = self._shared[_key(plan)] = SharedSensor(sensor)
        return found

    def of(self, plan: StreamPlan) -> SharedSensor:
        """The sensor of a stream, opened if it is not open. Raises ConfigError if it cannot be."""
        if (found := self._shared.get(_key(plan))) is not None:
            return found
        if what := _only_one(plan.sensor):  # there is one standard input, whatever the clock of those who read it
            for (table, *_), shared in self._shared.items():
                if _only_one(json.loads(table)) == what:
                    return self.adopt(plan, shared.sensor)
        return self.adopt(plan, open_sensor(plan.sensor))

    def close(self) -> None:
        """Close every sensor."""
        for shared in self._shared.values():
            shared.sensor.close()


def open_sensors(plans: Sequence[StreamPlan]) -> list[Sensor]:
    """Open for each stream its sensor, one for equal sensors and clocks. Raises ConfigError if that cannot be."""
    check_shared(plans)
    opened: dict[_Key, Sensor] = {}
    for plan in plans:
        if _key(plan) not in opened:
            opened[_key(plan)] = open_sensor(plan.sensor)
    return [opened[_key(plan)] for plan in plans]


def check_shared(plans: Sequence[StreamPlan]) -> None:
    """Raise a `ConfigError` for streams that would take readings from one another.

    Two tables of one pin would also be two sensors where limits of what streams tell together are concerned.
    """
    readers: dict[tuple[str, ...], _Key] = {}
    for plan in plans:
        if (what := _only_one(plan.sensor)) and readers.setdefault(what, _key(plan)) != _key(plan):
            raise ConfigError(f"{what[0]} feeds the streams of one clock and one sensor table only")


def _key(plan: StreamPlan) -> _Key:
    return json.dumps(plan.sensor, sort_keys=True), plan.epoch_us, plan.period_us


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
