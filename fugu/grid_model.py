"""Location traces become a chain over square cells: what `fugu model fit --grid` computes.

A cell is a square of a fixed lattice over the earth, so its corners tell nothing of the traces. The chain lives on the
largest set of cells that can all be reached from one another; a trace is cut where it leaves that set.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fugu.errors import CommandError
from fugu.terminal import say, show_table
from gateway.chain import stationary_law

__all__ = ["GridModel", "Traces", "fit_cells", "fit_grid", "grid_document", "read_traces", "resampled", "show_grid"]

WARNING = (
    "the cells and the chain are fitted to these very traces: publishing them, or releasing these traces under a "
    "guarantee that rests on them, leaks; fit on traces that will not be released"
)

_LATITUDE = ("lat", "latitude")
_LONGITUDE = ("lon", "lng", "long", "longitude")
_TIME = ("t", "time", "timestamp")
_TRACE = ("trace", "trace_id", "device", "device_id", "user", "subject", "seg")
_METRES_PER_DEGREE = 111_320.0
_MOST_CELLS = 1024
_LONGEST_GAP = 2.0
_MOST_TICKS = 20_000_000
_Entry = tuple[float, float, float]
_FINEST, _COARSEST, _FINER = 10.0, 100_000.0, 1.2


class Traces(NamedTuple):
    """Places in the order in which they were visited, trace by trace.

    Attributes:
        places: n x 2, latitude and longitude in degrees.
        trace: n numbers, equal for consecutive places of one unbroken trace.
        times: n times in seconds, or none.
        rows: rows of the file.
        missing: rows without a place.
        source: name of the file.
    """

    places: NDArray[np.float64]
    trace: NDArray[np.int64]
    times: NDArray[np.float64] | None
    rows: int
    missing: int
    source: str


class GridModel(NamedTuple):
    """A chain over the cells of a grid.

    Attributes:
        cells: N x 2, column (to the east) and row (to the north), from 0; row by row.
        counts: N x N transitions that were seen.
        visits: N places seen in each cell.
        metres: side of a cell.
        origin: latitude and longitude of the south-west corner of cell (0, 0).
        step: height and width of a cell in degrees.
        visited: cells that the traces ever touched.
        outside: places outside the cells of the chain.
        period_seconds: time between two places, or none.
    """

    cells: NDArray[np.int64]
    counts: NDArray[np.int64]
    visits: NDArray[np.int64]
    metres: float
    origin: tuple[float, float]
    step: tuple[float, float]
    visited: int
    outside: int
    period_seconds: float | None

    @property
    def transition(self) -> NDArray[np.float64]:
        """The relative frequencies, N x N."""
        share: NDArray[np.float64] = self.counts / self.counts.sum(axis=1, keepdims=True)
        return share


def read_traces(path: Path) -> Traces:
    """Read location traces from a CSV file, plain or gzip.

    Its header names a latitude and a longitude, and may name what tells traces apart (rows of one trace need not stand
    together) and a time in seconds. A row without a place ends its trace.

    Raises:
        CommandError: a column is missing, or a row holds no place on earth; rows are named, never a value.
        OSError: the file cannot be read.
    """
    try:
        return _read(path)
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CommandError(f"{path.name} is no CSV file: {type(error).__name__}") from None


def resampled(traces: Traces, period: float) -> Traces:
    """The place of every trace once a period: the newest one; a trace is cut where it falls silent for two periods.

    Args:
        traces: with times.
        period: in seconds.

    Raises:
        CommandError: there are no times, or they are too far apart to be counted.
    """
    if traces.times is None:
        raise CommandError(f"{traces.source} has no column of times ({', '.join(_TIME)}), which --period needs")
    times = traces.times
    if (times[-1] - times[0]) / period > _MOST_TICKS or len(times) * _LONGEST_GAP > _MOST_TICKS:
        raise CommandError(f"more than {_MOST_TICKS} places: take a longer period")
    breaks = (np.diff(traces.trace) != 0) | (np.diff(times) > _LONGEST_GAP * period)
    starts = np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(times)]])
    places, numbers, ticks = [], [], []
    for number, (first, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        wanted = times[first] + period * np.arange(int((times[end - 1] - times[first]) / period) + 1)
        newest = first + np.searchsorted(times[first:end], wanted, side="right") - 1
        places.append(traces.places[newest])
        numbers.append(np.full(len(wanted), number))
        ticks.append(wanted)
    return traces._replace(places=np.concatenate(places), trace=np.concatenate(numbers), times=np.concatenate(ticks))


def fit_grid(traces: Traces, metres: float, *, period_seconds: float | None = None) -> GridModel:
    """Fit a chain over cells of a given size.

    Args:
        traces: at least one place.
        metres: side of a cell, from 1 to 100 000.
        period_seconds: time between two places; by default the median, if there are times.

    Raises:
        CommandError: no two cells can be reached from one another, or there are too many.
    """
    if not 1.0 <= metres <= _COARSEST:
        raise CommandError(f"a cell is from 1 to {_COARSEST:g} metres wide, got {metres:g}")
    # whole degrees: the height of a cell shall not tell where exactly the traces are
    middle = math.radians(min(85.0, abs(round(float(np.median(traces.places[:, 0]))))))
    step = np.array([metres / _METRES_PER_DEGREE, metres / (_METRES_PER_DEGREE * math.cos(middle))])
    lattice, codes = np.unique(np.floor(traces.places / step).astype(np.int64), axis=0, return_inverse=True)
    codes = codes.ravel()
    follows = traces.trace[1:] == traces.trace[:-1]
    before, after = codes[:-1][follows], codes[1:][follows]
    steps = csr_array((np.ones(len(before), dtype=np.int64), (before, after)), shape=(len(lattice),) * 2)
    labels = connected_components(steps, directed=True, connection="strong")[1]
    visits = np.bincount(codes, minlength=len(lattice))
    # the most cells; of equals the most visited
    sizes, weights = np.bincount(labels), np.bincount(labels, weights=visits)
    best = max(range(len(sizes)), key=lambda label: (sizes[label], weights[label]))
    kept = np.flatnonzero(labels == best)
    if len(kept) < 2:
        raise CommandError(f"{traces.source}: no trace ever returns to a cell of {metres:g} m: take larger cells")
    if len(kept) > _MOST_CELLS:
        raise CommandError(
            f"{traces.source}: {len(kept)} cells of {metres:g} m; at most {_MOST_CELLS} are allowed: take larger cells"
        )
    low = lattice[kept].min(axis=0)
    corner = low * step
    return GridModel(
        cells=(lattice[kept] - low)[:, ::-1],
        counts=steps[kept][:, kept].toarray().astype(np.int64),
        visits=visits[kept],
        metres=metres,
        origin=(float(corner[0]), float(corner[1])),
        step=(float(step[0]), float(step[1])),
        visited=len(lattice),
        outside=int(visits.sum() - visits[kept].sum()),
        period_seconds=_median_step(traces) if period_seconds is None else period_seconds,
    )


def fit_cells(traces: Traces, most: int, *, period_seconds: float | None = None) -> GridModel:
    """Fit a chain over the smallest cells, of a ladder of sizes, that leave at most a number of them.

    Raises:
        CommandError: not even the largest cells do.
    """
    sizes = (_rounded(_COARSEST / _FINER**rung) for rung in count())
    best: GridModel | None = None
    for metres in sizes:
        if metres < _FINEST:
            break
        try:
            model = fit_grid(traces, metres, period_seconds=period_seconds)
        except CommandError:
            if best is None:
                continue  # the cells are still so large that everything lies in one
            break
        if len(model.cells) > most:
            break
        best = model
    if best is None:
        raise CommandError(f"{traces.source}: no size of cells leaves 2 to {most} of them: give --cell")
    return best


def grid_document(model: GridModel, traces: Traces) -> dict[str, Any]:
    """The chain as an object for JSON, which `fugu plan measure` reads."""
    first, second = np.nonzero(model.counts)
    seen = zip(first.tolist(), second.tolist(), model.counts[first, second].tolist(), strict=True)
    return {
        "coordinates": model.cells.tolist(),
        "transition": model.transition.tolist(),
        "initial": stationary_law(model.transition).tolist(),
        "names": [f"x{x}y{y}" for x, y in model.cells.tolist()],
        "resolution": model.metres,
        "grid": {"origin": list(model.origin), "step": list(model.step)},
        "period_seconds": model.period_seconds,
        "source": traces.source,
        "rows": traces.rows,
        "missing": traces.missing,
        "visited": model.visited,
        "outside": model.outside,
        "visits": model.visits.tolist(),
        "transitions": int(model.counts.sum()),
        "counts": [list(entry) for entry in seen],
        "warning": WARNING,
    }


def show_grid(model: GridModel, traces: Traces) -> None:
    """Print a chain over cells."""
    size = len(model.cells)
    columns, rows = (model.cells.max(axis=0) + 1).tolist()
    period = "" if model.period_seconds is None else f", one place every {model.period_seconds:g} s"
    say(f"{traces.source}: {traces.rows} rows, {len(traces.places)} places of {len(set(traces.trace.tolist()))} traces")
    if traces.missing:
        say(f"{traces.missing} rows without a place were left out; no transition is counted across them")
    moves = model.counts.sum() - np.trace(model.counts)
    show_table(
        f"Cells of {model.metres:g} m{period}",
        ("", ""),
        [
            ("cells of the chain", f"{size}, within {columns} columns and {rows} rows"),
            ("cells visited in all", f"{model.visited} ({model.outside} places lie outside the chain)"),
            ("transitions counted", f"{model.counts.sum()}, {moves / model.counts.sum():.1%} of them to another cell"),
            ("different transitions", f"{np.count_nonzero(model.counts)} of {size * size}"),
            ("south-west corner", f"{model.origin[0]:.6f}, {model.origin[1]:.6f}"),
            ("a cell in degrees", f"{model.step[0]:.6g} high, {model.step[1]:.6g} wide"),
        ],
    )
    say("The chain lives on the largest set of cells that can all be reached from one another.")
    say("Transitions that were not seen count as impossible; the adversary is taken to know that.")


def _read(path: Path) -> Traces:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        header = [cell.strip().lower() for cell in next(rows, [])]
        at = [_column(header, names, path.name) for names in (_LATITUDE, _LONGITUDE)]
        time = next((header.index(name) for name in _TIME if name in header), None)
        keys = [header.index(name) for name in _TRACE if name in header]
        traces: dict[tuple[str, ...], list[_Entry | None]] = {}
        lines = 0
        for line, row in _numbered(rows, len(header), path.name):
            lines += 1
            trace = traces.setdefault(tuple(row[key] for key in keys), [])
            if not (row[at[0]].strip() and row[at[1]].strip()):
                trace.append(None)
                continue
            latitude = _number(row[at[0]], path.name, line, header[at[0]], 90.0)
            longitude = _number(row[at[1]], path.name, line, header[at[1]], 180.0)
            moment = 0.0 if time is None else _number(row[time], path.name, line, header[time])
            if trace and (last := trace[-1]) is not None and moment < last[2]:
                raise CommandError(f"{path.name}: line {line}: time runs backwards within a trace")
            trace.append((latitude, longitude, moment))
    return _joined(traces.values(), lines, time is not None, path.name)


def _joined(traces: Iterable[list[_Entry | None]], lines: int, timed: bool, source: str) -> Traces:
    """All traces one after another; a missing place separates."""
    entries, numbers, number = [], [], 0
    for trace in traces:
        number += 1
        for entry in trace:
            if entry is None:
                number += 1
                continue
            entries.append(entry)
            numbers.append(number)
    if not entries:
        raise CommandError(f"{source}: no row has a place")
    table = np.array(entries, dtype=np.float64)
    times = table[:, 2] if timed else None
    return Traces(table[:, :2], np.array(numbers, dtype=np.int64), times, lines, lines - len(entries), source)


def _column(header: Sequence[str], names: Sequence[str], file: str) -> int:
    for name in names:
        if name in header:
            return header.index(name)
    raise CommandError(f"{file} has no column {names[0]!r}; it has {', '.join(header)[:200] or 'no header'}")


def _numbered(rows: Iterator[list[str]], width: int, file: str) -> Iterator[tuple[int, list[str]]]:
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != width:
            raise CommandError(f"{file}: line {line} has {len(row)} columns, not {width}")
        yield line, row


def _number(cell: str, file: str, line: int, column: str, most: float = math.inf) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise CommandError(f"{file}: line {line}, column {column} is no finite number")
    if abs(value) > most:
        raise CommandError(f"{file}: line {line}, column {column} is not within -{most:g}..{most:g}")
    return value


def _median_step(traces: Traces) -> float | None:
    if traces.times is None:
        return None
    steps = np.diff(traces.times)[np.diff(traces.trace) == 0]
    steps = steps[steps > 0]
    return float(np.median(steps)) if steps.size else None


def _rounded(metres: float) -> float:
    """Two digits are enough for the size of a cell."""
    return float(f"{metres:.2g}")
