"""Folders of Parquet files: tables by date, written whole or not at all in bounded memory, and read as a history."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import dataset

from fugu.chains.arrays import Ints
from fugu.contract.errors import FuguError, PolicyError
from fugu.contract.policies import read_policy
from fugu.contract.policy import Policy
from gateway.history.stored import DAY_US, Piece, Span, SymbolStream

__all__ = ["TABLES", "ExportedHistory", "ParquetFolder", "parquet_folder"]

_TIME = pa.timestamp("us", tz="UTC")
_NAME = pa.dictionary(pa.int32(), pa.string())
_NAME_LIST = pa.list_(pa.string())
_INTEGER, _REAL, _UNSIGNED, _TEXT = pa.int64(), pa.float64(), pa.uint32(), pa.string()
_REALS = pa.list_(_REAL)
_PLACE = [("time", _TIME), ("device", _NAME), ("stream", _NAME), ("tick", _INTEGER), ("policy_version", _UNSIGNED)]
_STATES = [("state", _NAME), ("probability", pa.float32()), ("probabilities", pa.list_(pa.float32()))]

TABLES: dict[str, Any] = {
    "policies": pa.schema(
        [
            *[("device", _NAME), ("stream", _NAME), ("policy_version", _UNSIGNED), ("kind", _NAME)],
            *[("states", _NAME_LIST), ("epoch", _TIME), ("period_us", _INTEGER)],
            *[("epsilon", _REAL), ("adversary", _NAME), ("document", _TEXT)],
        ]
    ),
    "symbols": pa.schema([*_PLACE, ("symbol", pa.uint8())]),
    "estimates": pa.schema([*_PLACE, *_STATES]),
    "smoothed": pa.schema([*_PLACE, *_STATES]),
    "points": pa.schema([*_PLACE, ("table", _UNSIGNED), ("values", _REALS), ("unit", _NAME)]),
    "measurements": pa.schema(
        [
            *[*_PLACE, ("lag", pa.int32()), ("means", _REALS), ("covariance", _REALS)],
            *[("unit", _NAME), ("latitude", _REAL), ("longitude", _REAL), ("protection", pa.int32())],
        ]
    ),
    "windows": pa.schema(
        [
            *[("time", _TIME), ("since", _TIME), ("device", _NAME), ("stream", _NAME), ("window", _NAME)],
            *[("index", _INTEGER), ("policy_version", _UNSIGNED), ("first", _INTEGER), ("length", _INTEGER)],
            *[("observed", _INTEGER), ("states", _NAME_LIST), ("block", _TEXT), ("count", _INTEGER)],
            *[("low", _REAL), ("high", _REAL), ("confidence", _REAL), ("epsilon", _REAL), ("adversary", _NAME)],
        ]
    ),
    "releases": pa.schema(
        [
            *[("time", _TIME), ("since", _TIME), ("name", _NAME), ("stream", _NAME), ("audience", _NAME)],
            *[("query", _NAME), ("states", _NAME_LIST), ("devices", _INTEGER)],
            *[("first", _INTEGER), ("length", _INTEGER), ("observed", _INTEGER)],
            *[("value", _REAL), ("low", _REAL), ("high", _REAL), ("standard_error", _REAL), ("unit", _NAME)],
            *[("confidence", _REAL), ("epsilon", _REAL), ("adversary", _NAME), ("stretch_ticks", _INTEGER)],
            *[("mechanism", _NAME), ("noise", _NAME), ("scale", _TEXT), ("charge", _REAL), ("entry", _INTEGER)],
            *[("useful", pa.bool_()), ("helper", _TEXT), ("honest", _INTEGER)],
        ]
    ),
}
"""Schemas by name of table; all but `policies` are partitioned by the date in UTC of their column `time`."""
_EPOCH = date(1970, 1, 1)
_GROUP_ROWS = 1 << 18
_PART_ROWS = 1 << 20
"""Rows of a table that wait in memory before they are written, to a file for each of their dates."""
_MOST_BATCHES = 4096


@contextmanager
def parquet_folder(path: Path) -> Iterator[ParquetFolder]:
    """Make a new folder, which appears when it is complete, and which only its owner can read.

    Raises FuguError if the folder is not empty, or cannot be made.
    """
    path = path.absolute()
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise FuguError(f"{path.name} is not empty: name a new folder, or remove it first")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary_folder = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise FuguError(f"cannot make the folder {path.name}: {error.strerror}") from None
    try:
        folder = ParquetFolder(temporary_folder)
        yield folder
        folder.close()
        temporary_folder.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise FuguError(f"cannot write the folder {path.name}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(temporary_folder, ignore_errors=True)


class ParquetFolder:
    """A folder that is being written: for each table a folder, in it one for each date, in it parts.

    `group` is a part of its files' names, so that several writers can share a folder. `row_counts` are by table.
    """

    def __init__(self, path: Path, group: str = "") -> None:
        self.path = path
        self._group = group
        self._batches = defaultdict[str, list[Any]](list)
        self._parts, self._rows_written = Counter[str](), Counter[str]()
        self.row_counts = Counter[str]()

    def add(self, table: str, batch: Any) -> None:
        """Add a batch of rows to a table."""
        self.row_counts[table] += batch.num_rows
        batches = self._batches[table]
        batches.append(batch)
        if len(batches) >= _MOST_BATCHES:
            batches[:] = _join_batches(table, batches).to_batches()
        if self.row_counts[table] - self._rows_written[table] >= _PART_ROWS:
            self._write(table)

    def close(self) -> None:
        """Write all waiting rows, durably; a table without rows gets an empty file."""
        for table in TABLES.keys() & self._batches.keys():
            self._write(table)
        for folder, _, files in os.walk(self.path):
            for file_name in (*files, "."):
                _sync(Path(folder, file_name))

    def _write(self, table: str) -> None:
        schema, file_stem = TABLES[table], f"part-{self._group}{self._parts[table]}"
        table_rows = _join_batches(table, self._batches.pop(table))
        self._parts[table] += 1
        self._rows_written[table] += table_rows.num_rows
        if "time" not in schema.names or not self.row_counts[table]:
            (self.path / table).mkdir(parents=True, exist_ok=True)
            pq.write_table(table_rows, self.path / table / f"{file_stem}.parquet", compression="zstd")
            return
        file_format = dataset.ParquetFileFormat()
        deltas = [field.name for field in schema if field.type == pa.int64() or pa.types.is_timestamp(field.type)]
        dataset.write_dataset(
            table_rows.append_column("date", table_rows.column("time").cast(pa.timestamp("us")).cast(pa.date32())),
            self.path / table,
            format=file_format,
            file_options=file_format.make_write_options(
                compression="zstd",
                use_dictionary=[field.name for field in schema if pa.types.is_dictionary(field.type)],
                column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED"),
            ),
            partitioning=dataset.partitioning(pa.schema([("date", pa.date32())]), flavor="hive"),
            basename_template=f"{file_stem}-{{i}}.parquet",
            existing_data_behavior="overwrite_or_ignore",
            max_rows_per_group=_GROUP_ROWS,
            max_partitions=_PART_ROWS,
            use_threads=False,  # so that rows stay in order
        )


def _join_batches(table: str, batches: Sequence[Any]) -> Any:
    return pa.Table.from_batches(batches, schema=TABLES[table]).unify_dictionaries().combine_chunks()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_ROWS = 1 << 18
_STREAM_COLUMNS = ("device", "stream")
_COLUMNS = (*_STREAM_COLUMNS, "time", "tick", "policy_version", "symbol")
_MAX_CACHED = 4


class _Group(NamedTuple):
    """A row group: its file, its number there, and the first and last device and stream in it."""

    path: Path
    number: int
    devices: tuple[str, str]
    streams: tuple[str, str]

    def may_hold(self, stream: SymbolStream) -> bool:
        devices, streams = self.devices, self.streams
        return devices[0] <= stream.device <= devices[1] and streams[0] <= stream.stream <= streams[1]


_Rows = Ints
"""Time, tick, policy version and symbol (4, n) of consecutive rows."""


class ExportedHistory:
    """The symbols of a folder that `fugu gateway export` wrote. FuguError for another folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows = lru_cache(_MAX_CACHED)(partial(_read_rows, folder.name))
        try:
            documents = pq.read_table(folder / "policies", columns=["document"]).column("document").to_pylist()
            policies = [read_policy(text) for text in documents]
            self._days = self._read_days()
        except (OSError, pa.ArrowException, PolicyError, ValueError, KeyError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise FuguError(f"{folder.name} is no folder that fugu gateway export wrote: {reason}") from None
        self._policies: dict[tuple[str, str], dict[int, Policy]] = defaultdict(dict)
        for policy in policies:
            if isinstance(policy, Policy) and policy.table is not None:
                self._policies[policy.device, policy.stream][policy.version] = policy

    def streams(self) -> list[SymbolStream]:
        """Return every stream of symbols, by device and name."""
        return [SymbolStream(*stream_key, policies) for stream_key, policies in sorted(self._policies.items())]

    def days(self, stream: SymbolStream, span: Span) -> list[int]:
        """Return the beginnings of the days that may hold symbols of a stream in a span of time."""
        return [
            day
            for day, groups in self._days.items()
            if day + DAY_US > span.since and day < span.until and any(group.may_hold(stream) for group in groups)
        ]

    def pieces(self, stream: SymbolStream, span: Span) -> Iterator[Piece]:
        """Yield the symbols of a stream in a span of time; each day's in tick order, except where the clock was set."""
        for day in self.days(stream, span):
            for group in self._days[day]:
                for rows in self._rows(group).get((stream.device, stream.stream), ()) if group.may_hold(stream) else ():
                    in_span = (rows[0] >= span.since) & (rows[0] < span.until)
                    if in_span.any():
                        yield from _split_pieces(stream, *rows[:, in_span])

    def _read_days(self) -> dict[int, list[_Group]]:
        groups = defaultdict[int, list[_Group]](list)
        for folder in sorted((self._folder / "symbols").glob("date=*")):
            day = (date.fromisoformat(folder.name.removeprefix("date=")) - _EPOCH).days * DAY_US
            for path in sorted(folder.glob("*.parquet"), key=_file_numbers):
                metadata = pq.read_metadata(path)
                if (schema := metadata.schema.to_arrow_schema()) != TABLES["symbols"]:
                    raise ValueError(f"{path.name} has other columns")
                columns = [schema.get_field_index(name) for name in _STREAM_COLUMNS]
                for group_number in range(metadata.num_row_groups):
                    row_group = metadata.row_group(group_number)
                    name_ranges = [_name_range(row_group.column(column).statistics) for column in columns]
                    groups[day].append(_Group(path, group_number, *name_ranges))
        return groups


def _read_rows(folder_name: str, group: _Group) -> dict[tuple[str, str], list[_Rows]]:
    """Return the rows of a row group by stream. FuguError if they cannot be read."""
    stream_rows = defaultdict[tuple[str, str], list[_Rows]](list)
    try:
        with pq.ParquetFile(group.path) as file:
            for batch in file.iter_batches(_ROWS, row_groups=[group.number], columns=list(_COLUMNS)):
                if any(column.null_count for column in batch.columns):
                    raise pa.ArrowInvalid("a row has no value in one of its columns")
                columns = map(batch.column, _STREAM_COLUMNS)
                names = [(column.dictionary.to_pylist(), np.asarray(column.indices, np.int64)) for column in columns]
                edges = np.flatnonzero(np.any([np.diff(stream_codes) != 0 for _, stream_codes in names], axis=0)) + 1
                rows = np.stack([np.asarray(batch.column(name).cast(pa.int64()), np.int64) for name in _COLUMNS[2:]])
                for low, high in pairwise([0, *edges.tolist(), batch.num_rows]):
                    device, stream = (texts[stream_codes[low]] for texts, stream_codes in names)
                    stream_rows[device, stream].append(rows[:, low:high])
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise FuguError(f"{group.path.name} in {folder_name} cannot be read: {reason}") from None
    return stream_rows


def _split_pieces(stream: SymbolStream, time: Ints, tick: Ints, versions: Ints, symbol: Ints) -> Iterator[Piece]:
    """Split rows of a stream into pieces of consecutive ticks under one version and shift. FuguError for bad rows."""
    shift = np.empty_like(tick)
    for version in {*versions[np.flatnonzero(np.diff(versions, prepend=-1))].tolist()}:
        policy, is_version = stream.policy(version), versions == version
        if policy.table is None or symbol[is_version].max() >= policy.table.symbols:
            raise FuguError(f"{stream.device}/{stream.stream} has a symbol that policy version {version} does not have")
        clock = policy.clock
        shift[is_version] = tick[is_version] - (time[is_version] - clock.epoch_us) // clock.period_us
    change_indices = (np.diff(tick) != 1) | (np.diff(versions) != 0) | (np.diff(shift) != 0)
    symbols = symbol.astype(np.uint8)
    for low, high in pairwise([0, *(np.flatnonzero(change_indices) + 1).tolist(), len(tick)]):
        yield Piece(int(versions[low]), int(tick[low]), int(shift[low]), symbols[low:high])


def _name_range(statistics: Any) -> tuple[str, str]:
    if statistics is None or not statistics.has_min_max:
        return "", "\U0010ffff"
    return statistics.min, statistics.max


def _file_numbers(path: Path) -> list[int]:
    return [int(digits) for digits in re.findall("[0-9]+", path.name)]
