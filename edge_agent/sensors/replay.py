"""Replays of recordings: a column of a CSV file, or a log of changes."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from edge_agent.sensors.source import ConfigError, Reading, Sensor, SensorUpdate
from fugu.contract.errors import cause
from fugu.host.csv_file import csv_rows, moment

__all__ = ["ReplaySensor", "read_changes", "read_recording", "replay_of"]

_MOST_TICKS = 5_000_000


class ReplaySensor(Sensor):
    """Replays values: tick t reads row t, or with `loop` row t modulo the length; an empty cell is no reading."""

    recorded = True

    def __init__(self, values: Sequence[float | str], *, loop: bool) -> None:
        self._values = values
        self._loop = loop

    def poll(self, tick: int) -> SensorUpdate:
        """Return the recorded value of a tick."""
        if self._loop:
            tick %= len(self._values)
        value = self._values[tick] if 0 <= tick < len(self._values) else ""
        return SensorUpdate(None if isinstance(value, str) and not value.strip(" ,") else Reading(value), None)

    def finished(self, tick: int) -> bool:
        """True if the recording is over."""
        return not self._loop and tick >= len(self._values)


def replay_of(config: dict[str, Any]) -> ReplaySensor:
    """Make the replay of a configuration. Raises ConfigError if its file cannot be read, or has too few rows."""
    file, column = Path(config["file"]), config["column"]
    only = config.get("only", ())
    if (tick_seconds := config.get("every")) is None:
        values = read_recording(file, column, only)
    else:
        values = read_changes(file, column, config["time"], tick_seconds, only)
    if (row_ranges := config.get("rows")) is not None:
        if max(end for _, end in row_ranges) > len(values):
            raise ConfigError(f"{file} has {len(values)} rows, fewer than its sensor's rows name")
        values = [value for first, end in row_ranges for value in values[first:end]]
    return ReplaySensor(values, loop=config["loop"])


def read_recording(path: Path, column: str, only: Sequence[str] = ()) -> Sequence[float | str]:
    """Read one column of a CSV file (`.csv`, `.csv.gz`), as numbers if every value is one.

    A name with commas that is no column itself, like `lat,lon`, stands for several columns: a reading is then a string
    of their cells, joined by commas. Raises ConfigError with the file and the fault, never a value.

    Args:
        only: conditions `column=cell`; only rows with all these cells are read.
    """
    return _floats(path, [cells for _, cells in _read_rows(path, column, None, only)])


def read_changes(path: Path, column: str, time: str, seconds: float, only: Sequence[str] = ()) -> Sequence[float | str]:
    """Read a log of changes, as home automation exports it: each value holds until the next.

    Return a value for each tick, from the first row on. Arguments and errors are otherwise those of `read_recording`.

    Args:
        time: the column of times, in seconds or ISO 8601.
        seconds: seconds from tick to tick.
    """
    changes = [(moment(time_cell), cells.strip()) for time_cell, cells in _read_rows(path, column, time, only)]
    rows = sorted(changes, key=itemgetter(0))  # of rows with equal times the last counts
    times = [change[0] for change in rows]
    if any(math.isnan(time) for time in times):
        raise ConfigError(f"{path}: column {time!r} has cells that are no time: give seconds, or ISO 8601")
    last_tick = (times[-1] - times[0]) / seconds if times else -1.0
    if last_tick >= _MOST_TICKS:
        raise ConfigError(f"{path} has more than {_MOST_TICKS} ticks of {seconds:g} s")
    ticks = range(int(last_tick) + 1)
    return _floats(path, [rows[bisect_right(times, times[0] + seconds * tick) - 1][1] for tick in ticks])


def _read_rows(path: Path, column: str, time: str | None, only: Sequence[str]) -> list[tuple[str, str]]:
    """Read the time ("" without a column of times) and the reading of the rows that `only` selects, as texts."""
    filters = [(name, cell) for name, _, cell in (condition.partition("=") for condition in only)]
    try:
        with csv_rows(path, ConfigError) as (header, rows):
            column_names = [column] if column in header else [name.strip() for name in column.split(",")]
            for name in (*column_names, *(name for name, _ in filters), *([] if time is None else [time])):
                if name not in header:
                    raise ConfigError(f"{path} has no column {name!r}")
            indices = [header.index(name) for name in column_names]
            filter_cells = [(header.index(name), cell) for name, cell in filters]
            time_index = None if time is None else header.index(time)
            return [
                ("" if time_index is None else row[time_index], ",".join(row[column_index] for column_index in indices))
                for row in rows
                if all(row[column_index].strip() == cell for column_index, cell in filter_cells)
            ]
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {cause(error)}") from None


def _floats(path: Path, texts: list[str]) -> Sequence[float | str]:
    if not texts:
        raise ConfigError(f"{path} has no rows")
    try:
        return array("d", map(float, texts))
    except ValueError:
        return texts
