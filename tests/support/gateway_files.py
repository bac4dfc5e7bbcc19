"""The file of a gateway, `gateway.toml`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fugu.mqtt import Broker
from gateway.config import GatewayConfig
from gateway.store.location import Location, Server

__all__ = ["gateway_config", "gateway_file"]


def gateway_config(
    fleet: str, broker: Broker, store: Location, policies: Path | None, lag: int = 8, **more: Any
) -> GatewayConfig:
    """A gateway's file, read; `more` are its other keys."""
    return GatewayConfig(fleet=fleet, broker=broker, store=store, policies=policies, lag=lag, **more)


def gateway_file(path: Path, broker: Broker | int, **values: object) -> Path:
    """Write the file of a gateway of fleet `home`; of its keys those that are None are left out."""
    connection = asdict(Broker(port=broker) if isinstance(broker, int) else broker)
    values = {"fleet": "home", **values, "broker": connection}
    lines = (f"{key} = {_toml(value)}\n" for key, value in values.items() if value is not None)
    path.write_text("".join(lines), errors="surrogateescape")
    return path


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items() if item is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(
        value.url if isinstance(value, Server) else str(value) if isinstance(value, Path) else value, ensure_ascii=False
    )
