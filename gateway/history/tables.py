"""The tables of a folder of Parquet files: their columns, and how they are made of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fugu.chains.arrays import Floats, Ints

__all__ = ["TABLES", "UNDATED", "batch", "constant", "lists", "marginals", "rows"]

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
            *[("observed", pa.int64()), ("states", _NAMES), ("count", pa.int64())],
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
            *[("epsilon", pa.float64()), ("adversary", _NAME), ("mechanism", _NAME), ("noise", _NAME)],
            *[("scale", pa.string()), ("charge", pa.float64()), ("entry", pa.int64()), ("useful", pa.bool_())],
        ]
    ),
}
"""By name; all but those of `UNDATED` have a column `time`, by whose date in UTC they are partitioned."""
UNDATED = frozenset({"policies"})


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

    Args:
        times: (n,) microseconds of Unix time.
        columns: by name, those of the table but `time`: arrow arrays, numpy arrays, or one text for all rows.
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


def rows(table: str, some: Sequence[dict[str, Any]]) -> Any:
    """Rows of a table from one mapping each; times in microseconds of Unix time."""
    return pa.RecordBatch.from_pylist(list(some), schema=TABLES[table])
