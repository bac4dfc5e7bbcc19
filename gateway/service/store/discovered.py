"""What Home Assistant was told of, so that it can be taken back."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gateway.database import Database

__all__ = ["DiscoveryStore"]


class DiscoveryStore:
    """A part of the store: of each document that was published its components, by name, and the platform of each."""

    schema = "CREATE TABLE discovered (device TEXT PRIMARY KEY, components TEXT NOT NULL) WITHOUT ROWID;\n"

    def __init__(self, db: Database) -> None:
        self._db = db

    def every(self) -> dict[str, dict[str, str]]:
        """By device, the components that were ever published."""
        return {device: json.loads(text) for device, text in self._db.execute("SELECT * FROM discovered")}

    def keep(self, device: str, components: Mapping[str, str]) -> None:
        """Store a document that is about to be published."""
        query = "INSERT INTO discovered VALUES (?, ?) ON CONFLICT (device) DO UPDATE SET components=excluded.components"
        self._db.execute(query, (device, json.dumps(components)))

    def forget(self, device: str) -> None:
        """The broker has a document no longer."""
        self._db.execute("DELETE FROM discovered WHERE device=?", (device,))
