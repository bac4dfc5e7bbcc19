"""Location traces become a chain over square cells.

A cell is a square of a fixed lattice over the earth, so its corners tell nothing of the traces. The chain lives on the
largest set of cells that can all be reached from one another; a trace is cut where it leaves that set. Where more than
1 % of the rows have no place, the most visited cell stands in for them, as it will on the device.
"""

from __future__ import annotations

import math
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fugu.chains import stationary_distribution
from fugu.planning.errors import PlanningError
from fugu.planning.traces import Traces

__all__ = ["METRES_PER_DEGREE", "WARNING", "GridModel", "fit_cells", "fit_grid", "grid_document"]

WARNING = (
    "the cells and the chain are fitted to these very traces: publishing them, or releasing these traces under a "
    "guarantee that rests on them, leaks; fit on traces that will not be released"
)

METRES_PER_DEGREE = 111_320.0
_MOST_CELLS = 1024
_FINEST, _COARSEST, _FINER = 10.0, 100_000.0, 1.2


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
        missing: the cell that stands in for missing places, or none.
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
    missing: int | None

    @property
    def transition(self) -> NDArray[np.float64]:
        """The relative frequencies, N x N."""
        share: NDArray[np.float64] = self.counts / self.counts.sum(axis=1, keepdims=True)
        return share


def fit_grid(traces: Traces, metres: float, *, period_seconds: float | None = None) -> GridModel:
    """Fit a chain over cells of a given size.

    Args:
        traces: at least one place.
        metres: side of a cell, from 1 to 100 000.
        period_seconds: time between two places; by default the median, if there are times.

    Raises:
        PlanningError: no two cells can be reached from one another, or there are too many.
    """
    if not 1.0 <= metres <= _COARSEST:
        raise PlanningError(f"a cell is from 1 to {_COARSEST:g} metres wide, got {metres:g}")
    # whole degrees: the height of a cell shall not tell where exactly the traces are
    middle = math.radians(min(85.0, abs(round(float(np.nanmedian(traces.places[:, 0]))))))
    step = np.array([metres / METRES_PER_DEGREE, metres / (METRES_PER_DEGREE * math.cos(middle))])
    present = ~np.isnan(traces.places[:, 0])
    lattice, places = np.unique(np.floor(traces.places[present] / step).astype(np.int64), axis=0, return_inverse=True)
    visits = np.bincount(places.ravel(), minlength=len(lattice))
    missing_state = int(visits.argmax())
    codes = np.full(len(present), missing_state, dtype=np.int64)
    codes[present] = places.ravel()
    follows = traces.trace[1:] == traces.trace[:-1]
    before, after = codes[:-1][follows], codes[1:][follows]
    steps = csr_array((np.ones(len(before), dtype=np.int64), (before, after)), shape=(len(lattice),) * 2)
    labels = connected_components(steps, directed=True, connection="strong")[1]
    # the most cells; of equals the most visited
    sizes, weights = np.bincount(labels), np.bincount(labels, weights=visits)
    selected = np.flatnonzero(labels == max(range(len(sizes)), key=lambda label: (sizes[label], weights[label])))
    if len(lattice) < 2:
        raise PlanningError(f"{traces.source}: all places lie in one cell of {metres:g} m: take smaller cells")
    if len(selected) < 2:
        raise PlanningError(
            f"{traces.source}: no trace goes from a cell of {metres:g} m to another one and back: there is no chain of "
            "two cells to fit"
        )
    if not present.all() and missing_state not in selected:
        raise PlanningError(
            f"{traces.source}: {traces.missing} rows have no place, and the most visited cell of {metres:g} m, which "
            "would stand in for them, is not among those that can all be reached from one another: take larger cells"
        )
    if len(selected) > _MOST_CELLS:
        raise PlanningError(
            f"{traces.source}: {len(selected)} cells of {metres:g} m; at most {_MOST_CELLS}: take larger cells"
        )
    low = lattice[selected].min(axis=0)
    corner = low * step
    return GridModel(
        cells=(lattice[selected] - low)[:, ::-1],
        counts=steps[selected][:, selected].toarray().astype(np.int64),
        visits=visits[selected],
        metres=metres,
        origin=(float(corner[0]), float(corner[1])),
        step=(float(step[0]), float(step[1])),
        visited=len(lattice),
        outside=int(visits.sum() - visits[selected].sum()),
        period_seconds=traces.median_step if period_seconds is None else period_seconds,
        missing=int(np.searchsorted(selected, missing_state)) if not present.all() else None,
    )


def fit_cells(traces: Traces, most: int, *, period_seconds: float | None = None) -> GridModel:
    """Fit a chain over the smallest cells, of a ladder of sizes, that leave at most a number of them.

    Raises:
        PlanningError: not even the largest cells do.
    """
    sizes = (float(f"{_COARSEST / _FINER**rung:.2g}") for rung in count())  # two digits are enough
    best: GridModel | None = None
    for metres in sizes:
        if metres < _FINEST:
            break
        try:
            model = fit_grid(traces, metres, period_seconds=period_seconds)
        except PlanningError:
            if best is None:
                continue  # the cells are still so large that everything lies in one
            break
        if len(model.cells) > most:
            break
        best = model
    if best is None:
        raise PlanningError(f"{traces.source}: no size of cells leaves 2 to {most} of them: give --cell")
    return best


def grid_document(model: GridModel, traces: Traces) -> dict[str, Any]:
    """The chain as an object for JSON, which `fugu plan measure` reads."""
    first, second = np.nonzero(model.counts)
    names = [f"x{x}y{y}" for x, y in model.cells.tolist()]
    missing = {} if model.missing is None else {"missing": names[model.missing]}
    seen = zip(first.tolist(), second.tolist(), model.counts[first, second].tolist(), strict=True)
    return {
        "coordinates": model.cells.tolist(),
        "transition": model.transition.tolist(),
        "initial": stationary_distribution(model.transition).tolist(),
        "names": names,
        "resolution": model.metres,
        "grid": {"origin": list(model.origin), "step": list(model.step), **missing},
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
