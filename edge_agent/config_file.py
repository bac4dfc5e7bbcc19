"""An agent's configuration file, read and checked by itself, without the policies that it names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_agent.sensors.source import ConfigError

if TYPE_CHECKING:
    from edge_agent.config_schema import AgentConfig, SensorConfig, StreamConfig
    from fugu.contract.discretisers import Discretiser
    from fugu.mqtt.broker import Broker

__all__ = ["check_declared", "read_config", "sensor_values"]


def read_config(path: Path) -> AgentConfig:
    """Read a configuration file. Raises ConfigError if it cannot be read, or a field is wrong."""
    from edge_agent.config_schema import AgentConfig
    from fugu.host.toml_file import read_toml

    return read_toml(path, AgentConfig, ConfigError)


def sensor_values(stream: StreamConfig, folder: Path, broker: Broker) -> dict[str, Any]:
    """A sensor's configuration as plain values; its files are relative to `folder`, and `broker` may not be read."""
    values: dict[str, Any] = stream.sensor.model_dump(mode="json")
    files = {key: str(folder / values[key]) for key in ("file", "password_file") if values.get(key) is not None}
    fleet = {"fleet_broker": [broker.host, broker.port]} if values["kind"] == "mqtt" else {}
    return values | files | fleet


def check_declared(discretiser: Discretiser, sensor: SensorConfig) -> None:
    """Raise a ConfigError if a missing reading tells of what is measured, and is no state: it would have no noise."""
    if sensor.kind == "bluetooth-heart-rate" and sensor.no_contact == "missing" and discretiser.missing is None:
        raise ConfigError(
            'no_contact = "missing" needs a policy whose discretiser names a state for missing readings, since '
            "contact is lost because of what is measured"
        )
