"""Where the folders of a deployment lie once they are installed; the units and the container files say the same."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["AGENT", "BROKER", "GATEWAY", "Place"]


class Place(NamedTuple):
    """A service's folder of configuration, and the folder that it may write to."""

    config: str
    state: str


BROKER = Place("/etc/fugu-broker", "/var/lib/fugu-broker")
GATEWAY = Place("/etc/fugu-gateway", "/var/lib/fugu-gateway")
AGENT = Place("/etc/fugu-agent", "/var/lib/fugu-agent")
