"""The broker that words of a command name: HOST:PORT, or a file with `[broker]`, as agents and gateways have it."""

from __future__ import annotations

from pathlib import Path

from fugu.contract.errors import FuguError
from fugu.mqtt import Broker

__all__ = ["BROKER_HELP", "broker_of"]

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
