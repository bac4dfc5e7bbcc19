"""From a sensor's configuration to the sensor: what each kind is, and what its silence means.

`KINDS` has a row for each kind of `edge_agent.config_schema.SensorConfig`, which is not imported without. What only one
kind needs is loaded when it is opened.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

from edge_agent.sensors.call import CallSensor, import_function
from edge_agent.sensors.source import ConfigError, LineSensor, Reading, Sensor, SensorUpdate
from fugu.host.codes import Codes

__all__ = ["KINDS", "exclusive", "open_sensor", "silence_warning"]

_Config = dict[str, Any]


class _SensorAround(Sensor):
    """A sensor that has its readings from another one, and with them its troubles and its end."""

    def __init__(self, source: Sensor) -> None:
        self._source = source
        self.recorded = source.recorded

    @property
    def trouble(self) -> str:
        return self._source.trouble

    def finished(self, tick: int) -> bool:
        return self._source.finished(tick)

    def close(self) -> None:
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


class ChangeSensor(_SensorAround):
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
        max_ticks = self._keep_alive_ticks
        is_valid = max_ticks is None or (self._alive is not None and tick - self._alive <= max_ticks)
        return SensorUpdate(self._held if is_valid else None, None)


def _replay(config: _Config) -> Sensor:
    from edge_agent.sensors.replay import replay_of

    return replay_of(config)


def _command(config: _Config) -> Sensor:
    from edge_agent.sensors.command import CommandLineSensor, CommandSensor

    words = config["command"]
    if shutil.which(words[0]) is None:
        raise ConfigError(f"there is no command {words[0]!r} that can be run: give its whole path")
    if config["runs"] == "always":
        return CommandLineSensor(words, config["keep_alive"])
    return CommandSensor(words, config["timeout"])


def _one_command(config: _Config) -> tuple[str, ...]:
    if config["runs"] != "always":  # one that goes on may have a receiver to itself
        return ()
    return (f"the command {config['command'][0]}", *config["command"][1:])


def _mqtt(config: _Config) -> Sensor:
    from edge_agent.sensors.mqtt_topic import MqttSensor
    from fugu.mqtt import LinkError

    try:
        return MqttSensor(config)
    except LinkError as error:
        raise ConfigError(f"sensor of topic {config['topic']}: {error}") from None


def _gpio(config: _Config) -> Sensor:
    from edge_agent.sensors.gpio import GpioSensor

    return GpioSensor(**{key: config[key] for key in ("pin", "pull_up", "active_state", "since")})


def _heart_rate(config: _Config) -> Sensor:
    from edge_agent.sensors.heart_rate import HeartRateSensor

    return HeartRateSensor(config["address"], needs_contact=config["no_contact"] == "missing")


class Kind(NamedTuple):
    """A kind of sensors.

    Attributes:
        open: makes one, and raises ConfigError if it cannot.
        exclusive: (description, key) of a source that can be opened only once; empty if it may be opened twice.
        until: why its readings end to hold without a keep-alive; empty if they never hold.
    """

    open: Callable[[_Config], Sensor]
    exclusive: Callable[[_Config], tuple[str, ...]] = lambda _config: ()
    until: str = ""


KINDS = {
    "stdin": Kind(
        lambda config: LineSensor(os.fdopen(0, "rb", closefd=False), config["keep_alive"]),
        lambda _config: ("standard input",),
        "its input ends",
    ),
    "replay": Kind(_replay),
    "call": Kind(lambda config: CallSensor(import_function(config["target"])), until="its function raises"),
    "command": Kind(_command, _one_command, "its command fails"),
    "mqtt": Kind(_mqtt, until="the connection to its broker is lost"),
    "gpio": Kind(_gpio, lambda config: (f"GPIO pin {config['pin']}",)),
    "bluetooth-heart-rate": Kind(_heart_rate, lambda config: (f"the monitor {config['address'].upper()}",)),
}


def open_sensor(config: _Config) -> Sensor:
    """Make the sensor that a configuration names.

    Raises ConfigError if its file, its function, or what it reads cannot be read, imported or opened.
    """
    source = KINDS[config["kind"]].open(config)
    if codes := Codes(config.get("missing_values", ())):
        source = _CodedSensor(source, codes)
    if config["silence"] == "samples":
        return source
    has_availability = config.get("availability") is not None  # such a source says at every tick that it works
    return ChangeSensor(source, 0 if has_availability else config.get("keep_alive_ticks"))


def exclusive(config: _Config) -> tuple[str, ...]:
    """Identify an exclusive source: (description, key). Empty if it may be opened twice, or there is no sensor."""
    kind = KINDS.get(config.get("kind", ""))
    return () if kind is None else kind.exclusive(config)


def silence_warning(config: dict[str, Any]) -> str:
    """Warn of a sensor whose readings hold for ever, as far as anybody can tell; empty for others."""
    end_words = KINDS[config["kind"]].until
    if config["silence"] == "samples" or not end_words:
        return ""
    if config.get("keep_alive_ticks") is not None or config.get("availability") is not None:
        return ""
    remedy_words = "an availability topic" if config["kind"] == "mqtt" else "a keep-alive"
    return (
        f"a reading holds until the next, or until {end_words}. If the source dies without that, its last state is "
        f"drawn from for ever, and readers of the stream learn it sooner or later. "
        f'Give {remedy_words}, or silence = "samples"'
    )
