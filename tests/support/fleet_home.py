"""A small fleet for tests of commands: a root, a registry of three devices, and documents signed in memory."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO

from fugu.contract.fleet_documents import Address
from fugu.contract.policies import AnyPolicy
from fugu.host.files import hold
from gateway.fleet.entries import PolicyReport, Sighting
from gateway.fleet.registry import Registry, lock_path
from tests.support.processes import policy
from tests.support.signing import Keys, policy_document

__all__ = ["HEART", "KEYS", "Home"]

KEYS = Keys()
HEART = policy(epoch_us=0, period_us=1_000_000)
DEVICES = {"watch": ["wrists"], "band": ["wrists", "new"], "ring": ["fingers"]}


class Home:
    """A fleet: its root, its registry, and documents in memory until they are written."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self.root = folder, folder / "fleet.db", folder / "root.envelope"
        self.root.write_bytes(KEYS.root_envelope())
        self.registry = Registry(self.path, fleet="home")
        for name, groups in DEVICES.items():
            self.registry.enrol(name, groups, actor="anna", time_us=1)
        self.running: TextIO | None = None
        self.options = ("--registry", self.path, "--root", self.root)

    def write(self, version: int, *policies: AnyPolicy, keys: Any = None, **fields: Any) -> Path:
        """A signed document."""
        document = policy_document(*policies, version=version, **{"to": Address(everyone=True), **fields})
        path = self.folder / f"{version}.envelope"
        path.write_bytes(KEYS.signed(document, keys))
        return path

    def says(self, device: str, version: int, outcome: Any = "accepted", reason: str = "", **fields: Any) -> None:
        report = PolicyReport(device, version, outcome, reason, 1_700_000_000_000_000, **fields)
        self.registry.note_reports([report])
        self.registry.note_sightings([Sighting(device, True, 3, "", "0.1", 1_700_000_000_000_000)])

    def serve(self) -> None:
        """Hold what a gateway of it holds, as long as this lives."""
        self.running = hold(lock_path(self.path))

    def dump(self) -> list[str]:
        with closing(sqlite3.connect(self.path)) as db:
            return list(db.iterdump())
