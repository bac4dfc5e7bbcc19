"""Reads a store's whole file once while its gateway serves, so that a start takes no longer the more is stored.

A start reads what does not grow with the history. Where damage is found elsewhere, the gateway ends, and leaves a mark
beside the file: with it the next start reads everything first, and serves only if all of it is whole again.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

from fugu.host.database import STORE
from fugu.host.files import damage
from gateway.service.store import Location, Store

__all__ = ["HistoryCheck"]

_LOOK_SECONDS = 0.1


class HistoryCheck:
    """The check of one store; there is nothing to do for one on a server, which has checksums.

    Attributes:
        problem: what is wrong, in a line that says what to do; empty as long as nothing was found.
    """

    def __init__(self, location: Location) -> None:
        self._path = location if isinstance(location, Path) else None
        self._db: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._read, name="gateway-history-check", daemon=True)
        self._ending = False
        self.problem = ""

    def before(self, store: Store) -> None:
        """Check what a start needs, or everything where damage was found before.

        Raises:
            StoreError: it is damaged.
        """
        mark = self._mark
        store.refuse_damage(history=mark is not None and mark.exists())
        if mark is not None:
            mark.unlink(missing_ok=True)

    def start(self) -> None:
        """Begin to read, in a thread of its own."""
        if self._path is not None:
            self._db = sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
            self._thread.start()

    def stop(self) -> None:
        """Read no further."""
        self._ending = True
        while self._db is not None and self._thread.is_alive():
            with suppress(sqlite3.ProgrammingError):  # it has been closed
                self._db.interrupt()
            self._thread.join(_LOOK_SECONDS)

    def doubt(self) -> None:
        """Let the next start read everything, because damage was met."""
        if (mark := self._mark) is not None:
            with suppress(OSError):
                mark.touch()

    @property
    def _mark(self) -> Path | None:
        return None if self._path is None else self._path.with_name(f"{self._path.name}.damaged")

    def _read(self) -> None:
        assert self._path is not None
        assert self._db is not None
        with closing(self._db) as db:
            found = damage(db)
        if found and not self._ending:
            self.doubt()
            self.problem = f"the store {self._path.name} is damaged ({found}): {STORE.remedy}"
