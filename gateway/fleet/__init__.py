"""The fleet: a registry of devices and documents in one SQLite file, and the rules by which documents are rolled out.

Rules and the registry's own file only, no MQTT; `gateway.service` publishes what is due and passes on what devices say.
"""

from __future__ import annotations

from gateway.fleet.entries import (
    Device,
    Document,
    DocumentError,
    FleetError,
    PlanError,
    PolicyReport,
    RegistryError,
    RolloutError,
    Sighting,
    Target,
    UnknownNameError,
)
from gateway.fleet.plan import Plan, Stage, share
from gateway.fleet.registry import Registry
from gateway.fleet.rollouts import Rollout, Rollouts

__all__ = [
    "Device",
    "Document",
    "DocumentError",
    "FleetError",
    "Plan",
    "PlanError",
    "PolicyReport",
    "Registry",
    "RegistryError",
    "Rollout",
    "RolloutError",
    "Rollouts",
    "Sighting",
    "Stage",
    "Target",
    "UnknownNameError",
    "share",
]
