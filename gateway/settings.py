"""The settings of a gateway, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from fugu.contract.errors import FuguError
from fugu.contract.frames import MAX_FRAME_TICKS
from fugu.mqtt import Broker
from gateway.fleet.enrolled import FleetFiles
from gateway.location import Location
from gateway.metrics import Listen
from gateway.retention import Keep
from gateway.shards import MOST_SHARDS, Shard

__all__ = ["GatewaySettings", "SettingsError"]


OnConflict = Literal["alarm", "stop"]
ON_CONFLICT: tuple[OnConflict, ...] = get_args(OnConflict)


class SettingsError(FuguError):
    """The file of a gateway cannot be read, or a setting has a value that the gateway cannot work with."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Settings of a gateway.

    Attributes:
        store: path of an SQLite file, or a database of a PostgreSQL server.
        policies: directory of policy files, `*.json`; None if all policies are in a fleet's registry.
        lag: ticks of later symbols that each estimate sees.
        ledger: of the releases; beside the store if not given.
        enrolled: files of a fleet whose devices are sent their policies.
        on_conflict: whether an operator is told of a device that contradicts itself, or it is stopped as well.
        metrics: where Prometheus may ask; nowhere if not given.
        page_url: of the live page, to which Home Assistant links devices.
        shards: how many processes share the devices, if there are several.
        shard: this is one of them; None is the process of the whole fleet.
    """

    fleet: str
    broker: Broker
    store: Location
    policies: Path | None
    lag: int = 8
    releases: Path | None = None
    ledger: Location | None = None
    enrolled: FleetFiles | None = None
    keep: Keep = field(default_factory=Keep)
    on_conflict: OnConflict = "alarm"
    metrics: Listen | None = None
    home_assistant: bool = False
    page_url: str | None = None
    shards: int = 1
    shard: Shard | None = None

    def __post_init__(self) -> None:
        """Refuse a lag that estimates cannot state."""
        if self.policies is None and self.enrolled is None:
            raise SettingsError("no policies: give a directory of policy files, or a fleet's registry")
        if not 1 <= self.shards <= MOST_SHARDS:
            raise SettingsError(f"{self.shards} shards: there are 1 to {MOST_SHARDS}")
        if not 0 <= self.lag <= MAX_FRAME_TICKS:
            raise SettingsError(f"lag {self.lag} is not in 0..{MAX_FRAME_TICKS} ticks")
