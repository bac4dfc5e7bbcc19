"""Fit a chain over square cells to location traces.

Cells belong to a fixed lattice over the earth, so their corners tell nothing of the traces. The chain lives on the
largest set of cells that can all be reached from one another; a trace is cut where it leaves that set. If more than 1 %
of the rows have no place, the most visited cell stands in for them, as it will on the device.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fugu.chains.arrays import Floats, Ints
from fugu.chains.model import stationary_distribution
from fugu.contract.descriptions import METRES_PER_DEGREE
from fugu.planning.errors import PlanningError
from fugu.recordings.places import Traces

__all__ = ["WARNING", "GridModel", "fit_grid", "grid_document", "order_two_document"]


WARNING = (
    "the cells and the chain are fitted to these very traces. Publishing them, or releasing these traces under a "
    "guarantee that rests on them, leaks: fit on traces that will not be released"
)

_MOST_CELLS = 1024
_COARSEST = 100_000.0


class GridModel(NamedTuple):
    """A chain over the N cells of a grid.

    `cells` (N, 2) holds column (to the east) and row (to the north) of each cell, from 0, row by row. `counts` (N, N)
    holds transitions, `visits` (N,) places. `metres` is the side of a cell, `step` its height and width in degrees,
    `origin` the south-west corner of cell (0, 0). `visited` is the number of cells ever touched, `outside` that of
    places in no cell of the chain. `missing` is the cell that stands in for missing places.
    """

    cells: Ints
    counts: Ints
    visits: Ints
    metres: float
    origin: tuple[float, float]
    step: tuple[float, float]
    visited: int
    outside: int
    period_seconds: float | None
    missing: int | None

    @property
    def transition(self) -> Floats:
        """The relative frequencies of transitions, (N, N)."""
        frequencies: Floats = self.counts / self.counts.sum(axis=1, keepdims=True)
        return frequencies

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each cell."""
        return tuple(f"x{x}y{y}" for x, y in self.cells.tolist())

    @property
    def grid(self) -> dict[str, Any]:
        """Origin and step of the grid, and the name of the cell for missing places if there is one."""
        missing_field = {} if self.missing is None else {"missing": self.names[self.missing]}
        return {"origin": list(self.origin), "step": list(self.step), **missing_field}

    def restrict(self, cells: Ints) -> GridModel:
        """Restrict the model to cells with increasing indices, among them the cell for missing places."""
        return self._replace(
            cells=self.cells[cells],
            counts=self.counts[cells][:, cells],
            visits=self.visits[cells],
            missing=None if self.missing is None else int(np.searchsorted(cells, self.missing)),
        )


def fit_grid(traces: Traces, metres: float, *, period_seconds: float | None = None) -> GridModel:
    """Fit a chain over cells with a side of 1 to 100 000 metres to traces with at least one place.

    `period_seconds` is by default the median time between places.

    Raises:
        PlanningError: no two cells can be reached from one another, or there are too many cells.
    """
    if not 1.0 <= metres <= _COARSEST:
        raise PlanningError(f"a cell is from 1 to {_COARSEST:g} metres wide, got {metres:g}")
    # whole degrees: the height of a cell shall not tell where exactly the traces are
    latitude = math.radians(min(85.0, abs(round(float(np.nanmedian(traces.places[:, 0]))))))
    step = np.array([metres / METRES_PER_DEGREE, metres / (METRES_PER_DEGREE * math.cos(latitude))])
    has_place = ~np.isnan(traces.places[:, 0])
    touched_cells = np.floor(traces.places[has_place] / step).astype(np.int64)
    visited_cells, cell_of_place, visits = np.unique(touched_cells, axis=0, return_inverse=True, return_counts=True)
    missing_state = int(visits.argmax())
    cell_of_row = np.full(len(has_place), missing_state, dtype=np.int64)
    cell_of_row[has_place] = cell_of_place.ravel()
    is_step = traces.trace[1:] == traces.trace[:-1]
    before, after = cell_of_row[:-1][is_step], cell_of_row[1:][is_step]
    step_counts, labels = _connected_steps(before, after, len(visited_cells))
    # the component with the most cells; of equal ones the most visited
    sizes, weights = np.bincount(labels), np.bincount(labels, weights=visits)
    chain_cells = np.flatnonzero(labels == max(range(len(sizes)), key=lambda label: (sizes[label], weights[label])))
    if len(visited_cells) < 2:
        raise PlanningError(f"{traces.source}: all places lie in one cell of {metres:g} m: take smaller cells")
    if len(chain_cells) < 2:
        raise PlanningError(
            f"{traces.source}: no trace goes from a cell of {metres:g} m to another one and back: there is no chain of "
            "two cells to fit"
        )
    if not has_place.all() and missing_state not in chain_cells:
        raise PlanningError(
            f"{traces.source}: {traces.missing} rows have no place. The most visited cell of {metres:g} m should stand "
            "in for them, but is not among cells that can all be reached from one another. Take larger cells"
        )
    if len(chain_cells) > _MOST_CELLS:
        raise PlanningError(
            f"{traces.source}: {len(chain_cells)} cells of {metres:g} m; at most {_MOST_CELLS}: take larger cells"
        )
    corner_cell = visited_cells[chain_cells].min(axis=0)
    corner = corner_cell * step
    return GridModel(
        cells=(visited_cells[chain_cells] - corner_cell)[:, ::-1],
        counts=step_counts[chain_cells][:, chain_cells].toarray().astype(np.int64),
        visits=visits[chain_cells],
        metres=metres,
        origin=(float(corner[0]), float(corner[1])),
        step=(float(step[0]), float(step[1])),
        visited=len(visited_cells),
        outside=int(visits.sum() - visits[chain_cells].sum()),
        period_seconds=traces.median_step if period_seconds is None else period_seconds,
        missing=int(np.searchsorted(chain_cells, missing_state)) if not has_place.all() else None,
    )


def _connected_steps(before: Ints, after: Ints, state_count: int) -> tuple[csr_array, Ints]:
    """Count the steps (k, k) between states, and number (k,) the components of states that reach one another."""
    steps = csr_array((np.ones(len(before), dtype=np.int64), (before, after)), shape=(state_count, state_count))
    return steps, connected_components(steps, directed=True, connection="strong")[1]


def grid_document(model: GridModel, traces: Traces) -> dict[str, Any]:
    """Return the chain as an object for JSON, which `fugu plan measure` reads."""
    before, after = np.nonzero(model.counts)
    return {
        "coordinates": model.cells.tolist(),
        "transition": model.transition.tolist(),
        "initial": stationary_distribution(model.transition).tolist(),
        "names": list(model.names),
        "resolution": model.metres,
        "grid": model.grid,
        "period_seconds": model.period_seconds,
        "source": traces.source,
        "rows": traces.rows,
        "missing": traces.missing,
        "visited": model.visited,
        "outside": model.outside,
        "visits": model.visits.tolist(),
        "transitions": int(model.counts.sum()),
        "counts": np.stack([before, after, model.counts[before, after]], axis=1).tolist(),
        "warning": WARNING,
    }


_MOST_PAIRS = 1024


def order_two_document(model: GridModel, traces: Traces) -> dict[str, Any]:
    """Fit a chain over pairs of cells (before, now). Return an object for JSON, which `fugu plan measure` reads.

    The chain lives on the largest set of pairs that can all be reached from one another, and on their cells.

    Raises:
        PlanningError: there is no such set, it has too many pairs, or lacks the cell for missing places.
    """
    cell_count = len(model.cells)
    has_place = ~np.isnan(traces.places[:, 0])
    corner_cell = np.rint(np.array(model.origin) / np.array(model.step)).astype(np.int64)
    lattice_cells = np.floor(traces.places[has_place] / np.array(model.step)).astype(np.int64) - corner_cell
    cell_of = {(x, y): cell for cell, (x, y) in enumerate(model.cells.tolist())}
    cell_of_row = np.full(len(has_place), -1 if model.missing is None else model.missing, dtype=np.int64)
    cell_of_row[has_place] = [cell_of.get((x, y), -1) for y, x in lattice_cells.tolist()]
    is_pair = (traces.trace[1:] == traces.trace[:-1]) & (cell_of_row[1:] >= 0) & (cell_of_row[:-1] >= 0)
    row_pairs = np.where(is_pair, cell_of_row[:-1] * cell_count + cell_of_row[1:], -1)  # of each row but the first
    is_step = (row_pairs[1:] >= 0) & (row_pairs[:-1] >= 0)
    pair_codes = np.unique(row_pairs[row_pairs >= 0])
    before, after = (np.searchsorted(pair_codes, codes[is_step]) for codes in (row_pairs[:-1], row_pairs[1:]))
    steps, components = _connected_steps(before, after, len(pair_codes))
    chain_pairs = np.flatnonzero(components == np.bincount(components).argmax()) if len(pair_codes) else pair_codes
    if len(chain_pairs) < 2:
        raise PlanningError(f"{traces.source}: no trace ever returns to the same two cells in a row: take larger cells")
    if len(chain_pairs) > _MOST_PAIRS:
        raise PlanningError(
            f"{traces.source}: {len(chain_pairs)} pairs of cells; at most {_MOST_PAIRS}: take larger cells"
        )
    step_counts = steps[chain_pairs][:, chain_pairs].toarray()
    transition = step_counts / step_counts.sum(axis=1, keepdims=True)
    pair_cells, shows = np.unique(pair_codes[chain_pairs] % cell_count, return_inverse=True)
    if len(pair_cells) < 2:
        raise PlanningError(f"{traces.source}: the pairs that come back are all of one cell: take smaller cells")
    if model.missing is not None and model.missing not in pair_cells:
        raise PlanningError(f"{traces.source}: the cell that stands in for missing places is in no pair that returns")
    pair_model = model.restrict(pair_cells)
    pair_model = pair_model._replace(outside=model.outside + int(model.visits.sum() - pair_model.visits.sum()))
    cells_before = np.searchsorted(pair_cells, pair_codes[chain_pairs] // cell_count)
    return {
        **grid_document(pair_model, traces),
        "transition": transition.tolist(),
        "initial": stationary_distribution(transition).tolist(),
        "shows": shows.tolist(),
        "before": cells_before.tolist(),
    }
