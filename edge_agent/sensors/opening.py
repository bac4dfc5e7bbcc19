"""Open the sensor of a configuration, of any kind, and give its silence its meaning.

`KINDS` has a row for each kind of `edge_agent.config_schema.SensorConfig`; else that module raises an error. A module
that only one kind needs is loaded when a sensor of this kind is opened.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

from edge_agent.sensors.call import CallSensor, import_function
from edge_agent.sensors.source import ConfigError, LineSensor, Reading, Sensor, SensorUpdate
from fugu.contract.errors import cause
from fugu.host.codes import Codes

__all__ = ["KINDS", "exclusive", "open_sensor", "silence_warning"]

_Config = dict[str, Any]


class InterpretedSensor(Sensor):
    """A sensor whose codes and silence mean what its configuration says.

    A reading that is one of the `codes` becomes an empty reading. If readings hold, a reading is valid until the next,
    or until its source fails. `keep_alive_ticks` is how many ticks a sign that the source works is good for, 0 if it
    comes at every tick. Readings are no such signs: which ticks are missing must not depend on readings. With None,
    readings hold until the source says that it does not work, or else for ever.
    """

    def __init__(
        self, source: Sensor, keep_alive_ticks: int | None, *, holds: bool = True, codes: Codes | tuple[()] = ()
    ) -> None:
        self._source = source
        self.recorded = source.recorded
        self._keep_alive_ticks = keep_alive_ticks
        self._holds = holds
        self._codes = codes
        self._held_reading: Reading | None = None
        self._last_sign: int | None = None

    @property
    def trouble(self) -> str:
        return self._source.trouble

    def finished(self, tick: int) -> bool:
        return self._source.finished(tick)

    def close(self) -> None:
        self._source.close()

    def poll(self, tick: int) -> SensorUpdate:
        """Return the update of the source, with the reading that is valid at a tick; None if there is none."""
        update = self._source.poll(tick)
        if update.reading is not None and update.reading.reveal() in self._codes:
            update = update._replace(reading=Reading(None))
        if not self._holds:
            return update
        if update.works is False:
            self._held_reading, self._last_sign = None, None
        elif update.works:
            self._last_sign = tick
        if update.reading is not None:
            self._held_reading = update.reading
        max_ticks = self._keep_alive_ticks
        is_valid = max_ticks is None or (self._last_sign is not None and tick - self._last_sign <= max_ticks)
        return SensorUpdate(self._held_reading if is_valid else None, None)


def _open_replay(config: _Config) -> Sensor:
    from edge_agent.sensors.replay import replay_of

    return replay_of(config)


def _open_command(config: _Config) -> Sensor:
    from edge_agent.sensors.command import CommandLineSensor, CommandSensor

    words = config["command"]
    if shutil.which(words[0]) is None:
        raise ConfigError(f"there is no command {words[0]!r} that can be run: give its whole path")
    if config["runs"] == "always":
        return CommandLineSensor(words, config["keep_alive"])
    return CommandSensor(words, config["timeout"])


def _exclusive_command(config: _Config) -> tuple[str, ...]:
    if config["runs"] != "always":  # a command that runs always may have a receiver to itself
        return ()
    return (f"the command {config['command'][0]}", *config["command"][1:])


def _open_mqtt(config: _Config) -> Sensor:
    from edge_agent.sensors.mqtt_topic import MqttSensor

    return MqttSensor(config)


def _open_gpio(config: _Config) -> Sensor:
    from edge_agent.sensors.gpio import GpioSensor

    return GpioSensor(**{key: config[key] for key in ("pin", "pull_up", "active_state", "since")})


def _open_heart_rate(config: _Config) -> Sensor:
    from edge_agent.sensors.heart_rate import HeartRateSensor

    return HeartRateSensor(config["address"], needs_contact=config["no_contact"] == "missing")


class Kind(NamedTuple):
    """A kind of sensors.

    Attributes:
        open: opens a sensor of this kind, and raises ConfigError if it cannot.
        exclusive: returns (description, key) of a source that can be opened only once, () if it may be opened twice.
        until: the event that ends a reading that holds, without a keep-alive; "" if readings of this kind never hold.
    """

    open: Callable[[_Config], Sensor]
    exclusive: Callable[[_Config], tuple[str, ...]] = lambda _config: ()
    end_words: str = ""


KINDS = {
    "stdin": Kind(
        lambda config: LineSensor(os.fdopen(0, "rb", closefd=False), config["keep_alive"]),
        lambda _config: ("standard input",),
        "its input ends",
    ),
    "replay": Kind(_open_replay),
    "call": Kind(lambda config: CallSensor(import_function(config["target"])), end_words="its function raises"),
    "command": Kind(_open_command, _exclusive_command, "its command fails"),
    "mqtt": Kind(_open_mqtt, end_words="the connection to its broker is lost"),
    "gpio": Kind(_open_gpio, lambda config: (f"GPIO pin {config['pin']}",)),
    "bluetooth-heart-rate": Kind(_open_heart_rate, lambda config: (f"the monitor {config['address'].upper()}",)),
}


def open_sensor(config: _Config) -> Sensor:
    """Open the sensor of a configuration. Raises ConfigError if its source cannot be read, imported or opened."""
    try:
        source = KINDS[config["kind"]].open(config)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"cannot open a sensor of kind {config['kind']}: {cause(error)}") from None
    codes, holds = Codes(config.get("missing_values", ())), config["silence"] == "changes"
    has_availability = config.get("availability") is not None  # such a source says at every tick that it works
    keep_alive_ticks = 0 if has_availability else config.get("keep_alive_ticks")
    return InterpretedSensor(source, keep_alive_ticks, holds=holds, codes=codes) if codes or holds else source


def exclusive(config: _Config) -> tuple[str, ...]:
    """Return (description, key) of a source that can be opened only once; () for any other source."""
    kind = KINDS.get(config.get("kind", ""))
    return () if kind is None else kind.exclusive(config)


def silence_warning(config: dict[str, Any]) -> str:
    """Return a warning on a sensor whose last reading would hold for ever if its source died; "" for other sensors."""
    end_words = KINDS[config["kind"]].end_words
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
