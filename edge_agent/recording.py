"""Recordings to replay: a column of a CSV file, or a log of changes."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from edge_agent.config_file import ConfigError
from fugu.contract.errors import cause
from fugu.host.csv_file import ENTITY_COLUMN, csv_rows, moment

__all__ = ["read_changes", "read_recording"]

_MOST_TICKS = 5_000_000


def read_recording(path: Path, column: str) -> Sequence[float | str]:
    """One column of a CSV file (`.csv`, `.csv.gz`); numbers where every value is one.

    A name with commas that is no column itself, like `lat,lon`, stands for several columns: a reading is
    then a string of their cells, joined by commas. Raises ConfigError with the file and what is wrong, never a value.
    """
    try:
        with csv_rows(path, ConfigError, uneven=True) as (header, rows):
            names = [column] if column in header else [name.strip() for name in column.split(",")]
            for name in names:
                if name not in header:
                    raise ConfigError(f"{path} has no column {name!r}")
            at = [header.index(name) for name in names]
            texts = [",".join(row[place] for place in at) for _, row in rows]
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {cause(error)}") from None
    return _numbers(path, texts)


def read_changes(path: Path, column: str, time: str, every: float) -> Sequence[float | str]:
    """A log of changes, such as home automation exports: each value holds until the next, and is looked at once a tick.

    Args:
        column: as for `read_recording`; or, of a file with a column `entity_id`, the entity whose `state` to take.
        time: the column of times, in seconds or ISO 8601.
        every: seconds from tick to tick.

    Returns:
        As `read_recording`: a value for each tick, from the first row on. So do errors.
    """
    rows = sorted(_changes(path, column, time), key=itemgetter(0))  # of rows with one time the last one counts
    times = [row[0] for row in rows]
    if any(math.isnan(one) for one in times):
        raise ConfigError(f"{path}: column {time!r} has cells that are no time: give seconds, or ISO 8601")
    ticks = int((times[-1] - times[0]) / every) + 1 if times else 0
    if ticks > _MOST_TICKS:
        raise ConfigError(f"{path} has more than {_MOST_TICKS} ticks of {every:g} s")
    return _numbers(path, [rows[bisect_right(times, times[0] + every * tick) - 1][1] for tick in range(ticks)])


def _changes(path: Path, column: str, time: str) -> list[tuple[float, str]]:
    try:
        with csv_rows(path, ConfigError) as (header, rows):
            entity = header.index(ENTITY_COLUMN) if ENTITY_COLUMN in header and column not in header else None
            for name in (time, value := column if entity is None else "state"):
                if name not in header:
                    raise ConfigError(f"{path} has no column {name!r}")
            at, place = header.index(time), header.index(value)
            return [(moment(row[at]), row[place].strip()) for _, row in rows if entity is None or row[entity] == column]
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {cause(error)}") from None


def _numbers(path: Path, texts: list[str]) -> Sequence[float | str]:
    if not texts:
        raise ConfigError(f"{path} has no rows")
    try:
        return array("d", map(float, texts))
    except ValueError:
        return texts
