"""Writing a folder of Parquet files: whole or not at all, partitioned by date, in bounded memory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.history.pieces import DAY_US, HistoryError
from gateway.history.tables import TABLES, UNDATED

__all__ = ["ParquetFolder", "parquet_folder"]

_GROUP_ROWS = 1 << 18
_PART_ROWS = 1 << 25
_OPEN = 3
"""Dates of a table that are written to at once: one, what is known of the end of the one before, and a clock's jump."""


@contextmanager
def parquet_folder(path: Path) -> Iterator[ParquetFolder]:
    """A new folder, which is there once it is complete, and only for its owner to read.

    Args:
        path: must not exist, or be empty.

    Raises:
        HistoryError: it holds something, or cannot be made.
    """
    path = path.absolute()
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise HistoryError(f"{path.name} is not empty: name a new folder, or remove it first")
        path.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise HistoryError(f"cannot make the folder {path.name}: {error.strerror}") from None
    try:
        folder = ParquetFolder(made)
        yield folder
        folder.close()
        made.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise HistoryError(f"cannot write the folder {path.name}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)


class ParquetFolder:
    """A folder that is being written: for each table a folder, in it one for each date, in it parts.

    Args:
        path: the folder.
        group: what distinguishes its files from those of others who write to the same folder.

    Attributes:
        path: of the folder.
        rows: written so far, by table.
    """

    def __init__(self, path: Path, group: str = "") -> None:
        self.path = path
        self._group = group
        self._parts: dict[tuple[str, str], _Part] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self.rows: dict[str, int] = {}

    def add(self, table: str, batch: Any) -> None:
        """Write rows of a table, each to the date of its time."""
        self.rows[table] = self.rows.get(table, 0) + batch.num_rows
        if not batch.num_rows:
            return
        if table in UNDATED:
            self._part(table, "").add(batch)
            return
        days = np.asarray(batch.column("time").cast(pa.int64())) // DAY_US
        edges = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
        for low, high in pairwise(edges):
            self._part(table, _date(int(days[low]))).add(batch.slice(low, high - low))

    def close(self) -> None:
        """Finish all files; a table without rows gets a file that says so."""
        for table in TABLES.keys() & self.rows.keys():
            if not self.rows[table]:
                self._part(table, "")
        for part in self._parts.values():
            part.close()
        self._parts.clear()
        for folder, _, _ in os.walk(self.path):
            _sync(Path(folder))

    def _part(self, table: str, date: str) -> _Part:
        key = table, date
        part = self._parts.pop(key, None)
        if part is None or part.rows >= _PART_ROWS:
            if part is not None:
                part.close()
            folder = self.path / table / (f"date={date}" if date else "")
            folder.mkdir(parents=True, exist_ok=True)
            number = self._numbers[key] = self._numbers.get(key, -1) + 1
            part = _Part(folder / f"part-{self._group}{number}.parquet", TABLES[table])
        self._parts[key] = part  # the last one used is the last
        others = [one for one in self._parts if one[0] == table]
        if len(others) > _OPEN:
            self._parts.pop(others[0]).close()
        return part


class _Part:
    """One file; rows are gathered to groups."""

    def __init__(self, path: Path, schema: Any) -> None:
        self._path = path
        self._schema = schema
        dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        deltas = [field.name for field in schema if field.type == pa.int64() or pa.types.is_timestamp(field.type)]
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression="zstd",
            use_dictionary=dictionaries,
            column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED"),
        )
        self._waiting: list[Any] = []
        self._waiting_rows = 0
        self.rows = 0

    def add(self, batch: Any) -> None:
        """Take some rows."""
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self.rows += batch.num_rows
        if self._waiting_rows >= _GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        """Finish the file; it is on the disk then."""
        self._flush()
        self._writer.close()
        _sync(self._path)

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, schema=self._schema).unify_dictionaries().combine_chunks()
            self._writer.write_table(table, row_group_size=_GROUP_ROWS)
            self._waiting, self._waiting_rows = [], 0


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()


def _sync(path: Path) -> None:
    """See to it that a file or folder is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
