"""A folder of exported Parquet files as a history."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from contract.errors import PolicyError
from contract.policies import read_policy
from contract.policy import Policy
from gateway.chain.arrays import Ints
from gateway.history.folder import DAY_US
from gateway.history.pieces import HistoryError, Piece, Span, SymbolStream

__all__ = ["ExportedHistory"]

_EPOCH = date(1970, 1, 1)
_ROWS = 1 << 18
_COLUMNS = ("time", "device", "stream", "tick", "policy_version", "symbol")


class _Group(NamedTuple):
    """A row group: its file, its number there, and the first and last device and stream in it."""

    path: Path
    number: int
    devices: tuple[str, str]
    streams: tuple[str, str]


class ExportedHistory:
    """The symbols of an exported folder.

    Args:
        folder: that `fugu export` wrote.

    Raises:
        HistoryError: it is none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            documents = pq.read_table(folder / "policies", columns=["document"]).column("document").to_pylist()
            policies = [read_policy(text) for text in documents]
            self._days = self._read_days()
        except (OSError, pa.ArrowException, PolicyError, ValueError, KeyError) as error:
            why = str(error).partition("\n")[0]
            raise HistoryError(f"{folder.name} is no folder that fugu export wrote: {why}") from None
        self._policies: dict[tuple[str, str], dict[int, Policy]] = defaultdict(dict)
        for policy in policies:
            if isinstance(policy, Policy) and policy.table is not None:
                self._policies[policy.device, policy.stream][policy.version] = policy

    def streams(self) -> list[SymbolStream]:
        """Every stream of symbols, by device and name."""
        return [SymbolStream(*key, known) for key, known in sorted(self._policies.items())]

    def pieces(self, stream: SymbolStream, span: Span) -> Iterator[Piece]:
        """The symbols of a stream in a span of time; of each day in tick order but for where its clock was set."""
        for day, groups in self._days.items():
            if day + DAY_US > span.since and day < span.until:
                for group in groups:
                    devices, streams = group.devices, group.streams
                    if devices[0] <= stream.device <= devices[1] and streams[0] <= stream.stream <= streams[1]:
                        yield from self._read(group, stream, span)

    def _read(self, group: _Group, stream: SymbolStream, span: Span) -> Iterator[Piece]:
        with pq.ParquetFile(group.path) as file:
            for batch in file.iter_batches(_ROWS, row_groups=[group.number], columns=list(_COLUMNS)):
                time = _numbers(batch, "time")
                mine = (time >= span.since) & (time < span.until)
                for name, wanted in (("device", stream.device), ("stream", stream.stream)):
                    mine &= _equals(batch.column(name), wanted)
                if mine.any():
                    tick, version = _numbers(batch, "tick")[mine], _numbers(batch, "policy_version")[mine]
                    symbols = np.asarray(batch.column("symbol")).astype(np.uint8)[mine]
                    yield from _cut(stream, tick, version, time[mine], symbols)

    def _read_days(self) -> dict[int, list[_Group]]:
        """The row groups of each day, by its beginning."""
        found: dict[int, list[_Group]] = {}
        for folder in sorted((self._folder / "symbols").glob("date=*")):
            day = (date.fromisoformat(folder.name.removeprefix("date=")) - _EPOCH).days * DAY_US
            for path in sorted(folder.glob("*.parquet"), key=_number):
                metadata = pq.read_metadata(path)
                columns = [metadata.schema.to_arrow_schema().get_field_index(name) for name in ("device", "stream")]
                for number in range(metadata.num_row_groups):
                    group = metadata.row_group(number)
                    ranges = [_range(group.column(column).statistics) for column in columns]
                    found.setdefault(day, []).append(_Group(path, number, *ranges))
        return found


def _cut(stream: SymbolStream, tick: Ints, version: Ints, time: Ints, symbols: Any) -> Iterator[Piece]:
    """Rows as pieces of consecutive ticks of one policy and clock."""
    shift = np.empty_like(tick)
    for one in np.unique(version).tolist():
        clock = stream.policy(one).clock
        rows = version == one
        shift[rows] = tick[rows] - (time[rows] - clock.epoch_us) // clock.period_us
    edges = np.flatnonzero((np.diff(tick) != 1) | (np.diff(version) != 0) | (np.diff(shift) != 0)) + 1
    for low, high in zip([0, *edges.tolist()], [*edges.tolist(), len(tick)], strict=True):
        yield Piece(int(version[low]), int(tick[low]), int(shift[low]), symbols[low:high])


def _numbers(batch: Any, name: str) -> Ints:
    column = batch.column(name)
    return np.asarray(column.cast(pa.int64()), dtype=np.int64)


def _equals(column: Any, wanted: str) -> Any:
    """Which rows of a column of texts are one."""
    names = column.dictionary.to_pylist()
    return np.asarray(column.indices) == (names.index(wanted) if wanted in names else -1)


def _range(statistics: Any) -> tuple[str, str]:
    if statistics is None or not statistics.has_min_max:
        return "", "\U0010ffff"
    return statistics.min, statistics.max


def _number(path: Path) -> list[int]:
    """The numbers in a file's name."""
    return [int(digits) for digits in re.findall("[0-9]+", path.name)]
