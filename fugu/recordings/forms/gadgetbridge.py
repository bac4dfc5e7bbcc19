"""The exported database of Gadgetbridge: heart rates and steps of watches and bands, a row a minute."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.table import Only, Table, table_of

__all__ = ["Gadgetbridge"]

_SAMPLES = re.compile(r"[A-Z0-9_]+_SAMPLE")
_TIME, _DEVICE = "TIMESTAMP", "DEVICE_ID"
_WANTED = ("HEART_RATE", "STEPS", "RAW_INTENSITY", "STRESS", "SPO2", "TEMPERATURE", "WEIGHT_KG")
_NO_HEART = ("-1", "0", "255")
"""Heart rates of a band that did not measure, or was not worn."""


class Gadgetbridge:
    """Tables of samples, one for each kind of device; each has a time and a device."""

    def knows(self, tables: list[str]) -> bool:
        """Return whether it has devices, and samples of them."""
        return "DEVICE" in tables and any(_SAMPLES.fullmatch(table) for table in tables)

    def read(self, database: sqlite3.Connection, file: File, only: Only) -> Table:
        """Read the samples of all devices; a heart rate that stands for none is left empty."""
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        kinds = {table: self._columns(database, table) for table in sorted(tables) if _SAMPLES.fullmatch(table)}
        kinds = {table: columns for table, columns in kinds.items() if columns}
        names = [name for name in _WANTED if any(name in columns for columns in kinds.values())]
        if not names:
            raise RecordingError(f"{file.name} is Gadgetbridge's database, without samples that are known")
        header = [_TIME.lower(), "kind", "device", *(name.lower() for name in names)]
        kind = only.get("kind")

        def cells() -> Iterator[tuple[int, list[str]]]:
            number = 0
            for table, columns in kinds.items():
                if kind not in (None, table.lower()):
                    continue
                chosen = ", ".join([_TIME, _DEVICE, *(name if name in columns else "NULL" for name in names)])
                for time, device, *values in database.execute(f"SELECT {chosen} FROM {table}"):
                    number += 1
                    row = ["" if value is None else str(value) for value in values]
                    if "HEART_RATE" in names and row[place := names.index("HEART_RATE")] in _NO_HEART:
                        row[place] = ""
                    yield number, [str(time), table.lower(), str(device), *row]

        meaning = {"time": _TIME.lower(), "keys": ("kind", "device"), "where": "row", "changes": False}
        note = "heart rates of 0, 255 and -1 are none: the band did not measure"
        return table_of("Gadgetbridge's database", file, header, cells(), notes=(note,), **meaning)

    @staticmethod
    def _columns(database: sqlite3.Connection, table: str) -> set[str]:
        """Columns that are wanted, of a table with times and devices."""
        columns = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
        return columns & {*_WANTED} if {_TIME, _DEVICE} <= columns else set()
