"""The place that the gateway reports, and its ellipse, on the earth."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from fugu.contract.descriptions import METRES_PER_DEGREE
from fugu.contract.discretisers import Cells
from fugu.contract.reports import PlaceEstimate, decode_estimate
from gateway.estimates.points import MeasureModel, measured_estimate
from tests.support.measured import grid, measure_policy

ORIGIN, STEP = (52.0, 4.0), (0.001, 0.002)
CELLS = tuple((int(x), int(y)) for x, y in grid(4)[0])


@pytest.mark.parametrize("seed", range(4))
def test_the_ellipse_holds_cells_of_95_percent(seed: int) -> None:
    """With corners of cells as latitudes and longitudes, in a policy whose steps are worth 7 and 11 of its units."""
    cells = Cells(origin=ORIGIN, step=STEP, cells=CELLS, states=tuple(f"c{x}" for x in range(16)))
    model = MeasureModel(measure_policy(4, tables=False, discretiser=cells, resolution=(7.0, 11.0)))
    likely = np.random.default_rng(seed).dirichlet(np.full(16, 0.3))
    estimate = measured_estimate(model, 5, 0, likely, 3)
    assert isinstance(estimate, PlaceEstimate)
    assert decode_estimate(estimate.encode()) == estimate
    narrow = METRES_PER_DEGREE * math.cos(math.radians(estimate.latitude))
    turn = math.radians(estimate.orientation)

    def inside(cell: tuple[int, int], scale: float) -> bool:
        for x, y in product((0, 1), repeat=2):
            east = (ORIGIN[1] + (cell[0] + x) * STEP[1] - estimate.longitude) * narrow
            north = (ORIGIN[0] + (cell[1] + y) * STEP[0] - estimate.latitude) * METRES_PER_DEGREE
            along, across = (
                east * math.sin(turn) + north * math.cos(turn),
                east * math.cos(turn) - north * math.sin(turn),
            )
            if math.hypot(along / estimate.semi_major, across / estimate.semi_minor) > scale:
                return False
        return True

    assert sum(weight for cell, weight in zip(CELLS, likely, strict=True) if inside(cell, 1.001)) >= 0.95
    assert sum(weight for cell, weight in zip(CELLS, likely, strict=True) if inside(cell, 0.99)) < 0.95
