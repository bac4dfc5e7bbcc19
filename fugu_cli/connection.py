"""The broker that a command line names: HOST:PORT, or a file with `[broker]`, as agents and gateways have it."""

from __future__ import annotations

from pathlib import Path

from fugu.contract.errors import FuguError
from fugu.mqtt import Broker

__all__ = ["BROKER_HELP", "broker_of"]

BROKER_HELP = "The broker: HOST:PORT, or a file NAME.toml with [broker]."


def broker_of(broker_text: str) -> Broker:
    """Read the value of `--broker`. FuguError: it is no address, or its file cannot be read."""
    if not broker_text.endswith(".toml"):
        return Broker.parse(broker_text)
    from pydantic import BaseModel

    from fugu.host.toml_file import read_toml

    class _BrokerFile(BaseModel):
        broker: Broker

    return read_toml(Path(broker_text), _BrokerFile, FuguError).broker.beside(Path(broker_text).parent)
