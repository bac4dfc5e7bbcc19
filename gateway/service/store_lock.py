"""One gateway for one store: a second one would take the first one's session at the broker, and lose it, for ever."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TextIO

from gateway.service.store import StoreError

__all__ = ["hold_store"]


def hold_store(store: Path) -> TextIO:
    """Take a store for this process; the operating system gives it back when the file is closed or the process ends.

    The lock is a file of its own beside the store: closing any handle of an SQLite file ends SQLite's own locks.

    Args:
        store: the store's file.

    Raises:
        StoreError: another process has it, or the file cannot be made.
    """
    real = store.resolve()
    try:
        held = real.with_name(f"{real.name}.lock").open("a")
    except OSError as error:
        raise StoreError(f"cannot open the store {store.name}: {error.strerror}") from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise StoreError(f"another gateway runs with the store {store.name}: stop it, or use another store") from None
    return held
