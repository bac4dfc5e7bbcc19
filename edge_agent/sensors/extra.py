"""Libraries that only some sensors need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from edge_agent.config_file import ConfigError

__all__ = ["library"]


def library(module: str, extra: str) -> Any:
    """Import a library.

    Raises:
        ConfigError: it is not installed, or does not work here; says how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        missing = error.name if error.name is not None else module
        raise ConfigError(
            f"this sensor needs {module}, and {missing} is missing: pip install 'fugu-edge[{extra}]'"
        ) from None
