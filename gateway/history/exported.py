"""A folder of exported Parquet files as a history."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fugu.chains.arrays import Ints
from fugu.contract.errors import PolicyError
from fugu.contract.policies import read_policy
from fugu.contract.policy import Policy
from gateway.history.pieces import DAY_US, HistoryError, Piece, Span, SymbolStream

__all__ = ["ExportedHistory"]

_EPOCH = date(1970, 1, 1)
_ROWS = 1 << 18
_NAMES = ("device", "stream")
_COLUMNS = (*_NAMES, "time", "tick", "policy_version", "symbol")
_REMEMBERED = 4


class _Group(NamedTuple):
    """A row group: its file, its number there, and the first and last device and stream in it."""

    path: Path
    number: int
    devices: tuple[str, str]
    streams: tuple[str, str]

    def may_hold(self, stream: SymbolStream) -> bool:
        """Whether a stream's name is between those that it holds."""
        devices, streams = self.devices, self.streams
        return devices[0] <= stream.device <= devices[1] and streams[0] <= stream.stream <= streams[1]


class _Rows(NamedTuple):
    """Rows of one stream, (n,) each."""

    time: Ints
    tick: Ints
    version: Ints
    symbol: Ints


class ExportedHistory:
    """The symbols of an exported folder.

    Args:
        folder: that `fugu gateway export` wrote.

    Raises:
        HistoryError: it is none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[_Group, dict[tuple[str, str], list[_Rows]]] = {}
        try:
            documents = pq.read_table(folder / "policies", columns=["document"]).column("document").to_pylist()
            policies = [read_policy(text) for text in documents]
            self._days = self._read_days()
        except (OSError, pa.ArrowException, PolicyError, ValueError, KeyError) as error:
            why = str(error).partition("\n")[0]
            raise HistoryError(f"{folder.name} is no folder that fugu gateway export wrote: {why}") from None
        self._policies: dict[tuple[str, str], dict[int, Policy]] = defaultdict(dict)
        for policy in policies:
            if isinstance(policy, Policy) and policy.table is not None:
                self._policies[policy.device, policy.stream][policy.version] = policy

    def streams(self) -> list[SymbolStream]:
        """Every stream of symbols, by device and name."""
        return [SymbolStream(*key, known) for key, known in sorted(self._policies.items())]

    def days(self, stream: SymbolStream, span: Span) -> list[int]:
        """The days, by their beginnings, that may hold symbols of a stream in a span of time."""
        return [
            day
            for day, groups in self._days.items()
            if day + DAY_US > span.since and day < span.until and any(group.may_hold(stream) for group in groups)
        ]

    def pieces(self, stream: SymbolStream, span: Span) -> Iterator[Piece]:
        """The symbols of a stream in a span of time; of each day in tick order but for where its clock was set."""
        for day in self.days(stream, span):
            for group in self._days[day]:
                for rows in self._rows(group).get((stream.device, stream.stream), ()) if group.may_hold(stream) else ():
                    inside = (rows.time >= span.since) & (rows.time < span.until)
                    if inside.any():
                        yield from _cut(stream, _Rows(*(column[inside] for column in rows)))

    def _rows(self, group: _Group) -> dict[tuple[str, str], list[_Rows]]:
        """The rows of a row group, by stream; those of the last few groups are cached."""
        if group not in self._read:
            if len(self._read) >= _REMEMBERED:
                del self._read[next(iter(self._read))]
            found: dict[tuple[str, str], list[_Rows]] = {}
            with pq.ParquetFile(group.path) as file:
                for batch in file.iter_batches(_ROWS, row_groups=[group.number], columns=list(_COLUMNS)):
                    names = [(batch.column(name).dictionary.to_pylist(), _codes(batch, name)) for name in _NAMES]
                    edges = np.flatnonzero(np.any([np.diff(codes) != 0 for _, codes in names], axis=0)) + 1
                    rows = _Rows(*(_numbers(batch, name) for name in _COLUMNS[2:]))
                    for low, high in pairwise([0, *edges.tolist(), batch.num_rows]):
                        device, stream = (words[codes[low]] for words, codes in names)
                        found.setdefault((device, stream), []).append(_Rows(*(column[low:high] for column in rows)))
            self._read[group] = found
        return self._read[group]

    def _read_days(self) -> dict[int, list[_Group]]:
        """The row groups of each day, by its beginning."""
        found: dict[int, list[_Group]] = {}
        for folder in sorted((self._folder / "symbols").glob("date=*")):
            day = (date.fromisoformat(folder.name.removeprefix("date=")) - _EPOCH).days * DAY_US
            for path in sorted(folder.glob("*.parquet"), key=_number):
                metadata = pq.read_metadata(path)
                columns = [metadata.schema.to_arrow_schema().get_field_index(name) for name in _NAMES]
                for number in range(metadata.num_row_groups):
                    group = metadata.row_group(number)
                    ranges = [_range(group.column(column).statistics) for column in columns]
                    found.setdefault(day, []).append(_Group(path, number, *ranges))
        return found


def _cut(stream: SymbolStream, rows: _Rows) -> Iterator[Piece]:
    """Rows as pieces of consecutive ticks of one policy and clock."""
    shift = np.empty_like(rows.tick)
    for version in {*rows.version[np.flatnonzero(np.diff(rows.version, prepend=-1))].tolist()}:
        clock, mine = stream.policy(version).clock, rows.version == version
        shift[mine] = rows.tick[mine] - (rows.time[mine] - clock.epoch_us) // clock.period_us
    changes = (np.diff(rows.tick) != 1) | (np.diff(rows.version) != 0) | (np.diff(shift) != 0)
    symbols = rows.symbol.astype(np.uint8)
    for low, high in pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), len(rows.tick)]):
        yield Piece(int(rows.version[low]), int(rows.tick[low]), int(shift[low]), symbols[low:high])


def _numbers(batch: Any, name: str) -> Ints:
    return np.asarray(batch.column(name).cast(pa.int64()), dtype=np.int64)


def _codes(batch: Any, name: str) -> Ints:
    return np.asarray(batch.column(name).indices, dtype=np.int64)


def _range(statistics: Any) -> tuple[str, str]:
    if statistics is None or not statistics.has_min_max:
        return "", "\U0010ffff"
    return statistics.min, statistics.max


def _number(path: Path) -> list[int]:
    """The numbers in a file's name."""
    return [int(digits) for digits in re.findall("[0-9]+", path.name)]
