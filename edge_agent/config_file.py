"""An agent's configuration file, read and checked by itself, without the policies that it names."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.errors import FuguError, Reason

if TYPE_CHECKING:
    from edge_agent.config_schema import AgentConfig

__all__ = ["ConfigError", "read_config", "sensor_values"]


class ConfigError(FuguError, reason=Reason.CONFIG):
    """The configuration cannot be read, or contradicts the policies that it names."""


def read_config(path: Path) -> AgentConfig:
    """Read a configuration file.

    Raises:
        ConfigError: it cannot be read, or a field is wrong.
    """
    from pydantic import ValidationError

    from contract._document import first_problem
    from edge_agent.config_schema import AgentConfig

    try:
        return AgentConfig.model_validate_json(json.dumps(tomllib.loads(path.read_text())))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_problem(error, 'configuration')}") from None


def sensor_values(sensor: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A sensor's configuration, with its file relative to the configuration's folder."""
    return {**sensor, "file": str(folder / sensor["file"])} if "file" in sensor else sensor
