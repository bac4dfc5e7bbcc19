"""A chain of order 2 over cells: its states are pairs of the cell before and the cell now, and show the cell now."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fugu.chains import stationary_distribution
from fugu.planning.errors import PlanningError
from fugu.planning.grid_model import GridModel, grid_document
from fugu.planning.traces import Traces

__all__ = ["order_two_document"]

_MOST_PAIRS = 1024


def order_two_document(model: GridModel, traces: Traces) -> dict[str, Any]:
    """The chain of pairs as an object for JSON, which `fugu plan measure` reads.

    It lives on the largest set of pairs that can all be reached from one another, and on the cells that these show.

    Args:
        model: the cells, and the chain of order 1 over them.
        traces: what it was fitted to.

    Raises:
        PlanningError: no two pairs can be reached from one another, there are too many, or the cell that stands in for
            missing places is in none of them.
    """
    count = len(model.cells)
    present = ~np.isnan(traces.places[:, 0])
    low = np.rint(np.array(model.origin) / np.array(model.step)).astype(np.int64)
    lattice = np.floor(traces.places[present] / np.array(model.step)).astype(np.int64) - low
    index = {(x, y): cell for cell, (x, y) in enumerate(model.cells.tolist())}
    cells = np.full(len(present), -1 if model.missing is None else model.missing, dtype=np.int64)
    cells[present] = [index.get((x, y), -1) for y, x in lattice.tolist()]
    joined = (traces.trace[1:] == traces.trace[:-1]) & (cells[1:] >= 0) & (cells[:-1] >= 0)
    pairs = np.where(joined, cells[:-1] * count + cells[1:], -1)  # of each row but the first
    follows = (pairs[1:] >= 0) & (pairs[:-1] >= 0)
    known, codes = np.unique(pairs[pairs >= 0], return_inverse=True)
    place = np.full(len(pairs), -1, dtype=np.int64)
    place[pairs >= 0] = codes
    seen = np.ones(int(follows.sum()), dtype=np.int64)
    steps = csr_array((seen, (place[:-1][follows], place[1:][follows])), shape=(len(known),) * 2)
    labels = connected_components(steps, directed=True, connection="strong")[1]
    selected = np.flatnonzero(labels == np.bincount(labels).argmax()) if len(known) else known
    if len(selected) < 2:
        raise PlanningError(f"{traces.source}: no trace ever returns to the same two cells in a row: take larger cells")
    if len(selected) > _MOST_PAIRS:
        raise PlanningError(
            f"{traces.source}: {len(selected)} pairs of cells; at most {_MOST_PAIRS}: take larger cells"
        )
    counts = steps[selected][:, selected].toarray()
    transition = counts / counts.sum(axis=1, keepdims=True)
    shown, shows = np.unique(known[selected] % count, return_inverse=True)
    if len(shown) < 2:
        raise PlanningError(f"{traces.source}: the pairs that come back are all of one cell: take smaller cells")
    missing = None
    if model.missing is not None:
        if model.missing not in shown:
            raise PlanningError(
                f"{traces.source}: the cell that stands in for missing places is in no pair that returns"
            )
        missing = int(np.searchsorted(shown, model.missing))
    fewer = model._replace(
        cells=model.cells[shown],
        counts=model.counts[shown][:, shown],
        visits=model.visits[shown],
        outside=model.outside + int(model.visits.sum() - model.visits[shown].sum()),
        missing=missing,
    )
    before = np.searchsorted(shown, known[selected] // count)
    return {
        **grid_document(fewer, traces),
        "transition": transition.tolist(),
        "initial": stationary_distribution(transition).tolist(),
        "shows": shows.tolist(),
        "before": before.tolist(),
    }
