"""The broker, the store and the gateway that words of a command name.

A broker is HOST:PORT, or a file with `[broker]`, as agents, gateways and `fugu deploy` have it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fugu.contract.errors import FuguError
from fugu.mqtt import Broker

if TYPE_CHECKING:
    from gateway.config import GatewayConfig, Place
    from gateway.store.location import Location

__all__ = ["BROKER_HELP", "broker_of", "gateway_of", "place_of", "store_of"]

BROKER_HELP = "The broker: HOST:PORT, or a file NAME.toml with [broker]."


def broker_of(text: str) -> Broker:
    """Read what `--broker` says.

    Raises:
        FuguError: it is no address, or the file cannot be read.
    """
    if not text.endswith(".toml"):
        return Broker.parse(text)
    from pydantic import BaseModel

    from fugu.host.toml_file import read_toml

    class File(BaseModel):
        broker: Broker

    return read_toml(Path(text), File, FuguError).broker.beside(Path(text).parent)


def place_of(text: str) -> Place:
    """Where a gateway keeps what it has, by an option: a file, a URL, or a gateway.toml. Raises FuguError."""
    from gateway.config import Place

    return Place.of(text)


def store_of(text: str) -> Location:
    """The store that such an option names. Raises FuguError."""
    return place_of(text).store


def gateway_of(path: Path) -> GatewayConfig:
    """Read the file of a gateway.

    Raises:
        FuguError: it cannot be read, or a key is wrong.
    """
    from gateway.config import GatewayConfig

    return GatewayConfig.read(path)
