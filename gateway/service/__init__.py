"""The gateway process, the only part of `gateway` that does I/O.

`run` serves a fleet until it is told to stop; `Gateway` is the same for use inside a program.
"""

from __future__ import annotations

from gateway.metrics import Listen
from gateway.releases.setup import release_now
from gateway.service.enrolled import FleetFiles
from gateway.service.ownership import Role
from gateway.service.process import run
from gateway.service.retention import Keep
from gateway.service.service import Gateway
from gateway.service.settings import ON_CONFLICT, GatewaySettings, SettingsError
from gateway.service.store import StoreError

__all__ = [
    "ON_CONFLICT",
    "FleetFiles",
    "Gateway",
    "GatewaySettings",
    "Keep",
    "Listen",
    "Role",
    "SettingsError",
    "StoreError",
    "release_now",
    "run",
]
