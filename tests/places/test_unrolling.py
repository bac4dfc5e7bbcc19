"""Lattice coordinates within flat hulls: bases against enumeration, and the way back."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fugu.places.graphs import GraphError, lattice
from fugu.places.hull import Hull, complete_hull, difference_hull
from fugu.places.tables import bezout, lattice_basis, unroll

FLAT = [
    difference_hull(points)
    for points in (
        [[4, -2]],
        [[0, 3, -6]],
        [[1, 0, 1], [0, 1, 1]],
        [[2, 4, 0], [0, 6, 3]],
        [[3, 5, 7], [2, -4, 9]],
        [[5, 1, 0], [1, 5, 0]],
        [[0, 5, 2], [0, 1, 3]],
    )
]


@pytest.mark.parametrize(("a", "b"), [(12, 18), (-12, 18), (0, -5), (7, 0), (0, 0), (-3, -9)])
def test_bezout(a: int, b: int) -> None:
    g, s, t = bezout(a, b)
    assert g == np.gcd(a, b) == s * a + t * b


@pytest.mark.parametrize("hull", FLAT)
def test_a_basis_reaches_every_integer_point_of_the_span(hull: Hull) -> None:
    basis = lattice_basis(hull)
    assert not np.any(basis @ hull.equations.T)
    inside = {point for point in product(range(-3, 4), repeat=hull.dimensions) if not np.any(hull.equations @ point)}
    weights = np.array(list(product(range(-9, 10), repeat=hull.rank)))
    reached = {tuple(point) for point in (weights @ basis).tolist()}
    assert inside <= reached
    assert len(reached) == 19**hull.rank


@pytest.mark.parametrize("hull", FLAT)
def test_gauges_stay_and_coordinates_lead_back(hull: Hull) -> None:
    weights = np.array(list(product(range(-2, 3), repeat=hull.rank)))
    values = 5 + weights @ lattice_basis(hull)
    inner, places, basis = unroll(hull, values)
    assert inner.rank == inner.dimensions == hull.rank
    assert np.array_equal(values[0] + places @ basis, values)
    for value, place in zip(values - values[0], places, strict=True):
        assert hull.gauge(value.tolist()) == inner.gauge(place.tolist())


def test_a_hull_of_full_rank_stays_and_one_too_flat_is_refused() -> None:
    values = lattice([(0, 0), (2, 1), (1, 3)])
    hull = complete_hull(values)
    assert unroll(hull, values)[0] is hull
    with pytest.raises(GraphError, match="too flat"):
        unroll(difference_hull([[1, 1]]), values)
