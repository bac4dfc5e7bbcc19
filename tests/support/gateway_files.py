"""The file of a gateway, `gateway.toml`, and values as TOML."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fugu.mqtt import Broker
from gateway.config import GatewayConfig
from gateway.store.location import Location, Server

__all__ = ["gateway_config", "gateway_file", "toml"]


def gateway_config(
    fleet: str, broker: Broker, store: Location, policies: Path | None, lag: int = 8, **more: Any
) -> GatewayConfig:
    """A gateway's file, read; `more` are its other keys."""
    return GatewayConfig(fleet=fleet, broker=broker, store=store, policies=policies, lag=lag, **more)


def gateway_file(path: Path, broker: Broker | int, **values: object) -> Path:
    """Write the file of a gateway of fleet `home`; of its keys those that are None are left out."""
    connection = asdict(Broker(port=broker) if isinstance(broker, int) else broker)
    values = {"fleet": "home", **values, "broker": connection}
    lines = (f"{key} = {toml(value)}\n" for key, value in values.items() if value is not None)
    path.write_text("".join(lines), errors="surrogateescape")
    return path


def toml(value: object) -> str:
    if isinstance(value, dict):
        items = (f"{json.dumps(key)} = {toml(item)}" for key, item in value.items() if item is not None)
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(
        value.url if isinstance(value, Server) else str(value) if isinstance(value, Path) else value, ensure_ascii=False
    )
