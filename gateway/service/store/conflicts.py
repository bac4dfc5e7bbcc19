"""Which devices have contradicted themselves, and which of them were told to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gateway.database import Database

__all__ = ["ConflictStore"]


class Conflict(NamedTuple):
    """The conflicts of one sequence of frames.

    Attributes:
        first: the first tick of the frame that came first; of windows, its first tick, too.
        since, last: when the first and the last such frame came, in Unix seconds.
        times: how many came.
    """

    device: str
    sequence: str
    first: int
    since: int
    last: int
    times: int


class ConflictStore:
    """A part of the store."""

    schema = """
CREATE TABLE conflicts (
    device TEXT NOT NULL, sequence TEXT NOT NULL, first INTEGER NOT NULL, since INTEGER NOT NULL,
    last INTEGER NOT NULL, times INTEGER NOT NULL, PRIMARY KEY (device, sequence)) WITHOUT ROWID;
CREATE TABLE stops (device TEXT PRIMARY KEY, version INTEGER NOT NULL, over INTEGER NOT NULL) WITHOUT ROWID;
"""

    def __init__(self, db: Database, owns: Callable[[str], bool]) -> None:
        self._db = db
        self._owns = owns

    def note(self, device: str, sequence: str, first: int, now: int) -> None:
        """One more frame contradicts another."""
        self._db.execute(
            "INSERT INTO conflicts VALUES (?, ?, ?, ?, ?, 1) "
            "ON CONFLICT (device, sequence) DO UPDATE SET last=excluded.last, times=conflicts.times+1",
            (device, sequence, first, now, now),
        )

    def every(self) -> list[Conflict]:
        """All of them."""
        return [Conflict(*row) for row in self._db.execute("SELECT * FROM conflicts") if self._owns(row[0])]

    def stop(self, device: str, version: int) -> None:
        """A device is to draw nothing under policy documents up to a version."""
        query = "INSERT INTO stops VALUES (?, ?, 0) ON CONFLICT (device) DO UPDATE SET version=excluded.version, over=0"
        self._db.execute(query, (device, version))

    def go_on(self, device: str) -> None:
        """A device has a newer document."""
        self._db.execute("UPDATE stops SET over=1 WHERE device=?", (device,))

    def stops(self) -> dict[str, tuple[int, bool]]:
        """By device: the version up to which it is or was stopped, and whether that is over."""
        rows = self._db.execute("SELECT device, version, over FROM stops")
        return {device: (version, bool(over)) for device, version, over in rows if self._owns(device)}
