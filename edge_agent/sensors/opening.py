"""From a sensor's configuration to the sensor; what only one kind needs is loaded where there is one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from edge_agent.config_file import ConfigError
from edge_agent.sensors.call import CallSensor, import_function
from edge_agent.sensors.source import ChangeSensor, LineSensor, ReplaySensor, Sensor

__all__ = ["only_one", "open_sensor", "silence_warning"]


def open_sensor(config: dict[str, Any]) -> Sensor:
    """Make the sensor that a configuration names.

    Raises ConfigError if its file, its function, or what it reads cannot be read, imported or opened.
    """
    source = _source(config)
    if config["silence"] == "samples":
        return source
    steady = config.get("availability") is not None  # such a source says at every tick that it works
    return ChangeSensor(source, 0 if steady else config.get("keep_alive_ticks"))


def _source(config: dict[str, Any]) -> Sensor:
    match config["kind"]:
        case "stdin":
            return LineSensor(os.fdopen(0, "rb", closefd=False), config["keep_alive"])
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
    return ReplaySensor(values, loop=config["loop"])


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
