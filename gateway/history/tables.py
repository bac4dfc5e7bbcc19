"""The tables of a folder of Parquet files: their columns, and their rows, made of what a store and a ledger hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.contract.descriptions import place_grid
from fugu.contract.frames import WindowFrame
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.reports import ReleaseFrame
from fugu.contract.sentences import unix_us
from gateway.estimates.counts_and_points import window_count
from gateway.estimates.models import PointEstimates
from gateway.estimates.past import TickProbabilities
from gateway.history.stored import Piece, SymbolStream, WindowSequence, tick_times

__all__ = [
    "TABLES",
    "marginal_rows",
    "measurement_rows",
    "point_rows",
    "policy_rows",
    "release_rows",
    "symbol_rows",
    "window_rows",
]

_TIME = pa.timestamp("us", tz="UTC")
_NAME = pa.dictionary(pa.int32(), pa.string())
_NAMES = pa.list_(pa.string())
_PLACE = [("time", _TIME), ("device", _NAME), ("stream", _NAME), ("tick", pa.int64()), ("policy_version", pa.uint32())]
_STATES = [("state", _NAME), ("probability", pa.float32()), ("probabilities", pa.list_(pa.float32()))]

TABLES: dict[str, Any] = {
    "policies": pa.schema(
        [
            *[("device", _NAME), ("stream", _NAME), ("policy_version", pa.uint32()), ("kind", _NAME)],
            *[("states", _NAMES), ("epoch", _TIME), ("period_us", pa.int64())],
            *[("epsilon", pa.float64()), ("adversary", _NAME), ("document", pa.string())],
        ]
    ),
    "symbols": pa.schema([*_PLACE, ("symbol", pa.uint8())]),
    "estimates": pa.schema([*_PLACE, *_STATES]),
    "smoothed": pa.schema([*_PLACE, *_STATES]),
    "points": pa.schema(
        [*_PLACE, ("table", pa.uint32()), ("values", pa.list_(pa.float64())), ("unit", _NAME)],
    ),
    "measurements": pa.schema(
        [
            *[*_PLACE, ("lag", pa.int32()), ("means", pa.list_(pa.float64())), ("covariance", pa.list_(pa.float64()))],
            *[("unit", _NAME), ("latitude", pa.float64()), ("longitude", pa.float64()), ("protection", pa.int32())],
        ]
    ),
    "windows": pa.schema(
        [
            *[("time", _TIME), ("since", _TIME), ("device", _NAME), ("stream", _NAME), ("window", _NAME)],
            *[("index", pa.int64()), ("policy_version", pa.uint32()), ("first", pa.int64()), ("length", pa.int64())],
            *[("observed", pa.int64()), ("states", _NAMES), ("block", pa.string()), ("count", pa.int64())],
            *[("low", pa.float64()), ("high", pa.float64()), ("confidence", pa.float64())],
            *[("epsilon", pa.float64()), ("adversary", _NAME)],
        ]
    ),
    "releases": pa.schema(
        [
            *[("time", _TIME), ("since", _TIME), ("name", _NAME), ("stream", _NAME), ("audience", _NAME)],
            *[("query", _NAME), ("states", _NAMES), ("devices", pa.int64()), ("first", pa.int64())],
            *[("length", pa.int64()), ("observed", pa.int64()), ("value", pa.float64()), ("low", pa.float64())],
            *[("high", pa.float64()), ("standard_error", pa.float64()), ("unit", _NAME), ("confidence", pa.float64())],
            *[("epsilon", pa.float64()), ("adversary", _NAME), ("stretch_ticks", pa.int64()), ("mechanism", _NAME)],
            *[("noise", _NAME), ("scale", pa.string()), ("charge", pa.float64()), ("entry", pa.int64())],
            ("useful", pa.bool_()),
        ]
    ),
}
"""By name; all but `policies` have a column `time`, by whose date in UTC they are partitioned."""


def constant(value: object, length: int) -> Any:
    """A column of one text, or of none."""
    indices = pa.array(np.zeros(length, dtype=np.int32))
    if value is None:
        return pa.nulls(length, _NAME)
    return pa.DictionaryArray.from_arrays(indices, pa.array([value], pa.string()))


def lists(values: NDArray[Any]) -> Any:
    """A column of lists of equal lengths, (n, d)."""
    count, width = values.shape
    offsets = np.arange(count + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.ascontiguousarray(values).ravel()))


def marginals(beliefs: Floats, labels: Sequence[str]) -> dict[str, Any]:
    """The columns that say what is known of states: from (n, s) probabilities, and the states' names."""
    rounded = beliefs.astype(np.float32)
    best = rounded.argmax(axis=1)
    return {
        "state": pa.DictionaryArray.from_arrays(pa.array(best.astype(np.int32)), pa.array(labels, pa.string())),
        "probability": pa.array(np.take_along_axis(rounded, best[:, None], axis=1)[:, 0]),
        "probabilities": lists(rounded),
    }


def batch(table: str, times: Ints, columns: dict[str, Any]) -> Any:
    """Rows of a table from arrays; texts are columns of their own length.

    `times` are (n,) microseconds of Unix time; other columns by name: arrow or numpy arrays, or one text for all rows.
    """
    schema, count = TABLES[table], len(times)
    made = []
    for field in schema:
        value = times if field.name == "time" else columns[field.name]
        if value is None or isinstance(value, str):
            made.append(constant(value, count))
        elif isinstance(value, int):
            made.append(pa.array(np.full(count, value, dtype=field.type.to_pandas_dtype())))
        elif isinstance(value, np.ndarray):
            made.append(pa.array(value).cast(field.type))
        else:
            made.append(value.cast(field.type) if value.type != field.type else value)
    return pa.RecordBatch.from_arrays(made, schema=schema)


def ticks(table: str, policy: AnyPolicy, first: int, shift: int, count: int, columns: dict[str, Any]) -> Any:
    """Rows of a table, one for each of some consecutive ticks under a policy."""
    place: dict[str, Any] = {"device": policy.device, "stream": policy.stream, "policy_version": policy.version}
    place["tick"] = np.arange(first, first + count, dtype=np.int64)
    return batch(table, tick_times(policy.clock, first, shift, count), place | columns)


def rows(table: str, some: Sequence[dict[str, Any]]) -> Any:
    """Rows of a table from one mapping each; times in microseconds of Unix time."""
    return pa.RecordBatch.from_pylist(list(some), schema=TABLES[table])


def policy_rows(policies: Iterable[AnyPolicy]) -> Any:
    """Rows with the names of the states of streams, and their promises."""
    return rows("policies", [_policy_row(policy) for policy in policies])


def marginal_rows(table: str, stream: SymbolStream, some: TickProbabilities) -> Any:
    """Rows with the marginals of some ticks of a stream."""
    policy = stream.policy(some.version)
    columns = marginals(some.probabilities, policy.discretiser.states)
    return ticks(table, policy, some.first, some.shift, len(some.probabilities), columns)


def symbol_rows(stream: SymbolStream, pieces: Sequence[Piece]) -> Any:
    """The symbols of a stream, one a row."""
    lengths = [len(piece.symbols) for piece in pieces]
    first = np.array([piece.first for piece in pieces])
    inside = np.arange(sum(lengths)) - np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
    clocks = [stream.policy(piece.version).clock for piece in pieces]
    begins = [clock.epoch_us + (p.first - p.shift) * clock.period_us for clock, p in zip(clocks, pieces, strict=True)]
    times = np.repeat(begins, lengths) + inside * np.repeat([clock.period_us for clock in clocks], lengths)
    columns = {
        "device": stream.device,
        "stream": stream.stream,
        "tick": np.repeat(first, lengths) + inside,
        "policy_version": np.repeat([piece.version for piece in pieces], lengths).astype(np.uint32),
        "symbol": np.concatenate([piece.symbols for piece in pieces]),
    }
    return batch("symbols", times, columns)


def point_rows(policy: MeasurePolicy, frame: MeasureFrame) -> Any:
    """The points of a frame, one a row."""
    points = np.array([one.point for one in frame.released], dtype=np.float64)
    columns = {
        "table": np.array([one.table for one in frame.released], dtype=np.uint32),
        "values": lists(points * np.array(policy.resolution)),
        "unit": policy.unit or None,
    }
    return ticks("points", policy, frame.first, frame.shift, len(points), columns)


def measurement_rows(policy: MeasurePolicy, some: PointEstimates) -> Any:
    """Estimates of a measurement, one a row; of places in degrees, too."""
    means, grid = np.array(some.means), place_grid(policy)
    places = np.full((2, len(means)), np.nan)
    if grid is not None:
        places = np.array([grid.located(float(x), float(y)) for x, y in some.means]).reshape(-1, 2).T
    columns = {
        "lag": some.lag,
        "means": lists(means.reshape(len(means), -1)),
        "covariance": lists(np.array(some.covariances).reshape(len(means), -1)),
        "unit": policy.unit or None,
        "latitude": pa.array(places[0], from_pandas=True),
        "longitude": pa.array(places[1], from_pandas=True),
        "protection": np.array(some.protection, dtype=np.int32),
    }
    return ticks("measurements", policy, some.first, some.shift, len(means), columns)


def window_rows(sequence: WindowSequence, frames: Iterable[WindowFrame]) -> Any:
    """The counts of windows, one a row; a histogram has one for each state, a profile for each block of the day."""
    return rows("windows", [row for frame in frames for row in _counts(sequence, frame)])


def _counts(sequence: WindowSequence, frame: WindowFrame) -> list[dict[str, Any]]:
    policy = sequence.policies[frame.policy_version]
    told = window_count(policy, frame)
    each = not told.blocks and len(frame.counts) == len(told.states)
    states = [[state] for state in told.states] if each else [list(told.states)] * len(frame.counts)
    promise = policy.windows_alone or policy.guarantee
    whole = {
        **{"time": unix_us(told.time), "since": unix_us(told.since), "device": sequence.device},
        **{"stream": sequence.stream, "window": frame.window, "index": frame.index},
        **{"policy_version": frame.policy_version, "first": frame.first, "length": frame.length},
        **{"observed": frame.observed, "confidence": told.confidence},
        **{"epsilon": promise.epsilon, "adversary": promise.adversary},
    }
    columns = zip(states, told.blocks or [None] * len(states), frame.counts, told.low, told.high, strict=True)
    names = ("states", "block", "count", "low", "high")
    return [whole | dict(zip(names, row, strict=True)) for row in columns]


def _policy_row(policy: AnyPolicy) -> dict[str, Any]:
    promise = policy.guarantee if isinstance(policy, Policy) else policy.stream_loss
    return {
        **{"device": policy.device, "stream": policy.stream, "policy_version": policy.version, "kind": policy.kind},
        **{"states": list(policy.discretiser.states), "epoch": policy.clock.epoch_us},
        **{"period_us": policy.clock.period_us, "epsilon": promise.epsilon, "adversary": promise.adversary},
        "document": policy.to_json(),
    }


def release_rows(frames: Iterable[ReleaseFrame]) -> Any:
    """The values of releases, one a row; a histogram has one for each state."""
    return rows("releases", [row for frame in frames for row in _values(frame)])


def _values(frame: ReleaseFrame) -> Iterator[dict[str, Any]]:
    states = [list(group) for group in frame.asked.groups(frame.states)]
    names = (
        *("name", "stream", "audience", "query", "devices", "first", "length", "observed", "confidence", "epsilon"),
        *("adversary", "stretch_ticks", "mechanism", "noise", "scale", "charge", "entry", "useful"),
    )
    whole = {name: getattr(frame, name) for name in names} | {
        "time": unix_us(frame.time),
        "since": unix_us(frame.since),
        "unit": frame.unit,
    }
    numbers = zip(states, frame.values, frame.low, frame.high, frame.standard_errors, strict=True)
    for one, value, low, high, error in numbers:
        yield whole | {"states": one, "value": value, "low": low, "high": high, "standard_error": error}
