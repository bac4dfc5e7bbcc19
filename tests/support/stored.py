"""The symbols and points that a gateway's store holds, as it is read beside the gateway."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fugu.contract.frames import SymbolFrame
from fugu.contract.measure_frames import MeasureFrame
from gateway.store.store import Store, StoreError

__all__ = ["stored_points", "stored_symbols"]


def stored_symbols(path: Path) -> dict[tuple[str, str], list[SymbolFrame]]:
    """Of each device and stream that has any its frames in tick order; of what is sealed, several may be one.

    Without a store, or before it is made, there are none.
    """
    if not path.exists():
        return {}
    try:
        with closing(Store(path)) as store:
            sequences = store.aged.sequences(0, 1_000_000)
            frames = {
                (sequence.device, sequence.name): list(store.symbols.following(sequence.number, 0))
                for sequence in sequences
            }
    except (StoreError, sqlite3.OperationalError):  # not made yet
        return {}
    return {name: some for name, some in frames.items() if some}


def stored_points(path: Path) -> list[MeasureFrame]:
    """Frames of points in tick order; none without a store, or before it is made."""
    if not path.exists():
        return []
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        try:
            return [MeasureFrame.decode(row[0]) for row in db.execute("SELECT payload FROM measured ORDER BY first")]
        except sqlite3.OperationalError:
            return []
