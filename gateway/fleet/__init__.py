"""The fleet: its keys and roots, signed documents, a registry of devices in one SQLite file, and rollouts."""

from __future__ import annotations

from gateway.fleet.entries import (
    Device,
    Document,
    FleetError,
    KeyStoreError,
    PolicyReport,
    RegistryError,
    RolloutPlan,
    Sighting,
    Stage,
    Target,
    UnknownNameError,
    share,
)
from gateway.fleet.registry import Registry
from gateway.fleet.rollouts import Rollout, Rollouts

__all__ = [
    "Device",
    "Document",
    "FleetError",
    "KeyStoreError",
    "PolicyReport",
    "Registry",
    "RegistryError",
    "Rollout",
    "RolloutPlan",
    "Rollouts",
    "Sighting",
    "Stage",
    "Target",
    "UnknownNameError",
    "share",
]
