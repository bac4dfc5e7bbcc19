"""A gateway's store and ledger as Parquet files, day by day, whatever their size; and the rows of their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.contract.descriptions import place_grid
from fugu.contract.errors import FuguError
from fugu.contract.frames import WindowFrame
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.reports import ReleaseFrame
from fugu.contract.sentences import instant, unix_us
from gateway.estimates.kinds import window_count
from gateway.estimates.past import TickProbabilities
from gateway.estimates.points import PointEstimates
from gateway.history.parquet import TABLES, ParquetFolder, parquet_folder
from gateway.history.stored import (
    DAY_US,
    Piece,
    Span,
    StoredHistory,
    SymbolStream,
    WindowSequence,
    stored_history,
    tick_times,
)
from gateway.releases.ledger import Ledger
from gateway.releases.tables import KIND
from gateway.store.location import Location, ledger_beside
from gateway.store.opening import is_there

__all__ = ["export_history", "marginal_rows", "policy_rows"]


_MOST_ENTRIES = 1_000
_MOST_PIECES = 64
Progress = Callable[..., None]


def export_history(
    store: Location,
    ledger: Location | None,
    span: Span,
    folder: Path,
    *,
    lag: int = 8,
    progress: Progress = lambda *_: None,
) -> dict[str, int]:
    """Write a gateway's store and releases to a new folder of Parquet files. Return the number of rows by table.

    Args:
        store: the store of a gateway, which may be running: one state of it is read.
        ledger: the ledger of its releases; `None` for the one beside the store, if there is one.
        span: the span of wall-clock time to write.
        folder: must not exist, or must be empty; it appears when it is complete.
        lag: ticks of later symbols or points that estimates see.
        progress: called before the export of each date, with the date and the share of the span before it.

    Raises FuguError if there is no such store or ledger, nothing is of that time, or the folder cannot be written.
    """
    with stored_history(store) as history, parquet_folder(folder) as folders:
        day: int | None = span.since
        begin = max(span.since, history.next_time(0) or 0)
        while day is not None and day < span.until:
            day -= day % DAY_US
            progress(instant(day).date().isoformat(), min(max(day - begin, 0) / max(span.until - begin, 1), 1.0))
            day = day + DAY_US if _export_day(history, folders, span.day(day), lag) else history.next_time(day + DAY_US)
        ledger_path = ledger_beside(store)
        if ledger is not None or is_there(ledger_path, KIND):
            progress("releases", 1.0)
            _export_releases(folders, ledger or ledger_path, span)
        if not any(folders.row_counts.values()):
            raise FuguError(f"{store.name} holds nothing of that time")
        folders.add("policies", policy_rows(history.policies()))
        return dict(folders.row_counts)


def _export_day(history: StoredHistory, folder: ParquetFolder, span: Span, lag: int) -> bool:
    """Write the history of `span`, a part of one day. Return whether any row was written."""
    rows_before = sum(folder.row_counts.values())
    for stream in history.streams():
        pieces = history.pieces(stream, span)
        while batch := list(islice(pieces, _MOST_PIECES)):
            folder.add("symbols", symbol_rows(stream, batch))
        for probabilities in history.estimates(stream, span, lag):
            folder.add("estimates", marginal_rows("estimates", stream, probabilities))
    for point_stream in history.measured_streams():
        for frame in history.points(point_stream, span):
            policy = point_stream.policies[frame.policy_version]
            folder.add("points", point_rows(policy, frame))
            for estimates in history.measurements(point_stream, frame, lag):
                folder.add("measurements", measurement_rows(policy, estimates))
    for sequence in history.windows():
        folder.add("windows", window_rows(sequence, history.counts(sequence, span)))
    return sum(folder.row_counts.values()) > rows_before


def _export_releases(folder: ParquetFolder, ledger: Location, span: Span) -> None:
    with closing(Ledger(ledger, create=False)) as ledger_db:
        last_entry = 0
        folder.add("releases", release_rows(()))
        while entries := ledger_db.entries(last_entry, _MOST_ENTRIES):
            last_entry = entries[-1].number
            frames = (ReleaseFrame.decode(entry.payload) for entry in entries if entry.state == "published")
            frames_in_span = (frame for frame in frames if span.since <= unix_us(frame.time) - 1 < span.until)
            folder.add("releases", release_rows(frames_in_span))


def constant_column(text: object, length: int) -> Any:
    """Return a column of `length` rows with one text, or with nulls for `None`."""
    indices = pa.array(np.zeros(length, dtype=np.int32))
    if text is None:
        return pa.nulls(length, pa.dictionary(pa.int32(), pa.string()))
    return pa.DictionaryArray.from_arrays(indices, pa.array([text], pa.string()))


def list_column(rows: NDArray[Any]) -> Any:
    """Return a column of lists of equal lengths, from rows (n, d)."""
    row_count, width = rows.shape
    offsets = np.arange(row_count + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.ascontiguousarray(rows).ravel()))


def marginal_columns(beliefs: Floats, labels: Sequence[str]) -> dict[str, Any]:
    """Return the columns about states, from (n, k) probabilities and the states' names."""
    probabilities = beliefs.astype(np.float32)
    states = probabilities.argmax(axis=1)
    return {
        "state": pa.DictionaryArray.from_arrays(pa.array(states.astype(np.int32)), pa.array(labels, pa.string())),
        "probability": pa.array(np.take_along_axis(probabilities, states[:, None], axis=1)[:, 0]),
        "probabilities": list_column(probabilities),
    }


def record_batch(table: str, times: Ints, columns: dict[str, Any]) -> Any:
    """Return rows of a table from arrays.

    `times` are (n,) microseconds of Unix time. `columns` has the other columns by name: arrow or numpy
    arrays, or one text or integer for all rows.
    """
    schema, row_count = TABLES[table], len(times)
    arrays = []
    for field in schema:
        column = times if field.name == "time" else columns[field.name]
        if column is None or isinstance(column, str):
            arrays.append(constant_column(column, row_count))
        elif isinstance(column, int):
            arrays.append(pa.array(np.full(row_count, column, dtype=field.type.to_pandas_dtype())))
        elif isinstance(column, np.ndarray):
            arrays.append(pa.array(column).cast(field.type))
        else:
            arrays.append(column.cast(field.type) if column.type != field.type else column)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def tick_rows(table: str, policy: AnyPolicy, first: int, shift: int, count: int, columns: dict[str, Any]) -> Any:
    """Return `count` rows of a table, for consecutive ticks from `first` on under a policy, with further columns."""
    tick_columns: dict[str, Any] = {"device": policy.device, "stream": policy.stream, "policy_version": policy.version}
    tick_columns["tick"] = np.arange(first, first + count, dtype=np.int64)
    return record_batch(table, tick_times(policy.clock, first, shift, count), tick_columns | columns)


def table_rows(table: str, rows: Sequence[dict[str, Any]]) -> Any:
    """Return rows of a table from one mapping each; times are in microseconds of Unix time."""
    return pa.RecordBatch.from_pylist(list(rows), schema=TABLES[table])


def policy_rows(policies: Iterable[AnyPolicy]) -> Any:
    """Return a row for each policy, with its states and its promise."""
    return table_rows("policies", [_policy_row(policy) for policy in policies])


def marginal_rows(table: str, stream: SymbolStream, estimates: TickProbabilities) -> Any:
    """Return rows of a table with the marginals of some ticks of a stream, one tick a row."""
    policy = stream.policy(estimates.version)
    columns = marginal_columns(estimates.probabilities, policy.discretiser.states)
    return tick_rows(table, policy, estimates.first, estimates.shift, len(estimates.probabilities), columns)


def symbol_rows(stream: SymbolStream, pieces: Sequence[Piece]) -> Any:
    """Return the symbols of a stream, one a row."""
    lengths = [len(piece.symbols) for piece in pieces]
    first_ticks = np.array([piece.first for piece in pieces])
    offsets = np.arange(sum(lengths)) - np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
    clocks = [stream.policy(piece.version).clock for piece in pieces]
    begins = [clock.epoch_us + (p.first - p.shift) * clock.period_us for clock, p in zip(clocks, pieces, strict=True)]
    times = np.repeat(begins, lengths) + offsets * np.repeat([clock.period_us for clock in clocks], lengths)
    columns = {
        "device": stream.device,
        "stream": stream.stream,
        "tick": np.repeat(first_ticks, lengths) + offsets,
        "policy_version": np.repeat([piece.version for piece in pieces], lengths).astype(np.uint32),
        "symbol": np.concatenate([piece.symbols for piece in pieces]),
    }
    return record_batch("symbols", times, columns)


def point_rows(policy: MeasurePolicy, frame: MeasureFrame) -> Any:
    """Return the points of a frame, one a row."""
    points = np.array([point.point for point in frame.released], dtype=np.float64)
    columns = {
        "table": np.array([point.table for point in frame.released], dtype=np.uint32),
        "values": list_column(points * np.array(policy.resolution)),
        "unit": policy.unit or None,
    }
    return tick_rows("points", policy, frame.first, frame.shift, len(points), columns)


def measurement_rows(policy: MeasurePolicy, estimates: PointEstimates) -> Any:
    """Return the estimates of a measurement, one a row; estimates of places also have latitude and longitude."""
    means, grid = np.array(estimates.means), place_grid(policy)
    places = np.full((2, len(means)), np.nan)
    if grid is not None:
        places = np.array([grid.measured_position(float(x), float(y)) for x, y in estimates.means]).reshape(-1, 2).T
    columns = {
        "lag": estimates.lag,
        "means": list_column(means.reshape(len(means), -1)),
        "covariance": list_column(np.array(estimates.covariances).reshape(len(means), -1)),
        "unit": policy.unit or None,
        "latitude": pa.array(places[0], from_pandas=True),
        "longitude": pa.array(places[1], from_pandas=True),
        "protection": np.array(estimates.protection, dtype=np.int32),
    }
    return tick_rows("measurements", policy, estimates.first, estimates.shift, len(means), columns)


def window_rows(sequence: WindowSequence, frames: Iterable[WindowFrame]) -> Any:
    """Return the counts of windows, one a row: a histogram has a count for each state, a profile for each block."""
    return table_rows("windows", [row for frame in frames for row in _count_rows(sequence, frame)])


def _count_rows(sequence: WindowSequence, frame: WindowFrame) -> list[dict[str, Any]]:
    policy = sequence.policies[frame.policy_version]
    report = window_count(policy, frame)
    is_by_state = not report.blocks and len(frame.counts) == len(report.states)
    states = [[state] for state in report.states] if is_by_state else [list(report.states)] * len(frame.counts)
    promise = policy.windows_alone or policy.guarantee
    shared_fields = {
        **{"time": unix_us(report.time), "since": unix_us(report.since), "device": sequence.device},
        **{"stream": sequence.stream, "window": frame.window, "index": frame.index},
        **{"policy_version": frame.policy_version, "first": frame.first, "length": frame.length},
        **{"observed": frame.observed, "confidence": report.confidence},
        **{"epsilon": promise.epsilon, "adversary": promise.adversary},
    }
    rows = zip(states, report.blocks or [None] * len(states), frame.counts, report.low, report.high, strict=True)
    column_names = ("states", "block", "count", "low", "high")
    return [shared_fields | dict(zip(column_names, row, strict=True)) for row in rows]


def _policy_row(policy: AnyPolicy) -> dict[str, Any]:
    promise = policy.guarantee if isinstance(policy, Policy) else policy.stream_loss
    return {
        **{"device": policy.device, "stream": policy.stream, "policy_version": policy.version, "kind": policy.kind},
        **{"states": list(policy.discretiser.states), "epoch": policy.clock.epoch_us},
        **{"period_us": policy.clock.period_us, "epsilon": promise.epsilon, "adversary": promise.adversary},
        "document": policy.to_json(),
    }


def release_rows(frames: Iterable[ReleaseFrame]) -> Any:
    """Return the values of releases, one a row; a histogram has a value for each state."""
    return table_rows("releases", [row for frame in frames for row in _release_rows(frame)])


def _release_rows(frame: ReleaseFrame) -> Iterator[dict[str, Any]]:
    states = [list(group) for group in frame.definition.groups(frame.states)]
    frame_fields = {name: getattr(frame, name, None) for name in TABLES["releases"].names}
    shared_fields = {**frame_fields, "time": unix_us(frame.time), "since": unix_us(frame.since)}
    rows = zip(states, frame.values, frame.low, frame.high, frame.standard_errors, strict=True)
    for label, value, low, high, error in rows:
        yield shared_fields | {"states": label, "value": value, "low": low, "high": high, "standard_error": error}
