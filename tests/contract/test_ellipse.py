"""The ellipse of a place holds it with its probability, by exact sums over corners of cells, and is no larger."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu.contract.ellipse import Ellipse, ellipse
from fugu.contract.measure_table import Staircase
from tests.support.dphmm_cases import probability

Places = list[tuple[float, float]]


def holds(
    ellipse: Ellipse, places: Places, weights: list[Fraction], cell: tuple[float, float], scale: float
) -> Fraction:
    """The share of the cells that lie in the ellipse, so many times as large, as a whole."""
    turn = math.radians(ellipse.orientation)
    inside = Fraction(0)
    for place, weight in zip(places, weights, strict=True):
        corners = [(place[0] + u * cell[0] / 2, place[1] + v * cell[1] / 2) for u, v in product((-1, 1), repeat=2)]
        lengths = [
            math.hypot(
                ((x - ellipse.east) * math.sin(turn) + (y - ellipse.north) * math.cos(turn)) / ellipse.semi_major,
                ((x - ellipse.east) * math.cos(turn) - (y - ellipse.north) * math.sin(turn)) / ellipse.semi_minor,
            )
            for x, y in corners
        ]
        inside += weight * (max(lengths) <= scale)
    return inside / sum(weights)


def check(places: Places, weights: list[Fraction], cell: tuple[float, float], wanted: float) -> Ellipse:
    shape = ellipse(places, [float(weight) for weight in weights], cell, wanted)
    assert shape.semi_major >= shape.semi_minor > 0.0
    assert 0.0 <= shape.orientation < 180.0
    assert holds(shape, places, weights, cell, 1.0) >= Fraction(wanted) - Fraction(1, 10**12)
    assert holds(shape, places, weights, cell, 1.0 - 1e-6) < Fraction(wanted)
    return shape


HULLS = [((2, 1), (0, 1), (-2, -1), (0, -1)), ((1, 0), (0, 1), (-1, 0), (0, -1)), ((-3, -1), (3, 1))]


@pytest.mark.long
@pytest.mark.parametrize("vertices", [HULLS[0], HULLS[2]])
def test_of_staircase_noise_it_holds_the_truth_with_its_probability(vertices: tuple[tuple[int, int], ...]) -> None:
    """Knowledge of the truth, from one point alone: it is the point less noise of the exact distribution."""
    ratio = Fraction(1, 2)
    noise = Staircase(vertices, ratio)
    side = range(-45, 46)
    places = [(x, y) for x, y in product(side, side) if noise.spans((x, y))]
    weights = [probability(noise, place) for place in places]
    if ratio == Fraction(1, 2):
        assert sum(weights) > 1 - Fraction(1, 10**3)
    region = check([(30.0 * x, 20.0 * y) for x, y in places], weights, (30.0, 20.0), 0.95)
    assert abs(region.east) < 1e-9
    assert abs(region.north) < 1e-9


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(-5, 5)] * 2), min_size=1, max_size=12, unique=True),
    st.data(),
    st.sampled_from([0.5, 0.9, 0.95]),
)
def test_of_any_cells_it_is_the_smallest_of_its_shape(cells: Places, data: st.DataObject, wanted: float) -> None:
    weights = data.draw(st.lists(st.integers(1, 100), min_size=len(cells), max_size=len(cells)))
    places = [(70.0 * x, 110.0 * y) for x, y in cells]
    shape = ellipse(places, [float(weight) for weight in weights], (70.0, 110.0), wanted)
    exact = [Fraction(weight) for weight in weights]
    assert holds(shape, places, exact, (70.0, 110.0), 1.0) >= Fraction(wanted) - Fraction(1, 10**12)
    assert holds(shape, places, exact, (70.0, 110.0), 1.0 - 1e-6) <= Fraction(wanted) + Fraction(1, 10**12)


def test_its_shape_is_that_of_the_covariance() -> None:
    generator = np.random.default_rng(5)
    places = generator.normal(size=(40, 2)) @ np.array([[3.0, 1.0], [0.0, 1.0]]) * 50.0
    weights = generator.random(40)
    shape = ellipse(places.tolist(), weights.tolist(), (10.0, 20.0), 0.95)
    spread = np.cov(places.T, aweights=weights, ddof=0) + np.diag([10.0**2, 20.0**2]) / 12.0
    sizes, axes = np.linalg.eigh(spread)
    assert shape.semi_major / shape.semi_minor == pytest.approx(math.sqrt(sizes[1] / sizes[0]))
    assert (shape.east, shape.north) == pytest.approx(tuple(np.average(places, axis=0, weights=weights)))
    turn = math.radians(shape.orientation)
    assert abs(axes[:, 1] @ [math.sin(turn), math.cos(turn)]) == pytest.approx(1.0)


@pytest.mark.parametrize(("second", "angle"), [((0, 1), 0.0), ((1, 1), 45.0), ((1, 0), 90.0), ((1, -1), 135.0)])
def test_north_is_0_and_east_90_degrees(second: tuple[float, float], angle: float) -> None:
    assert ellipse([(0, 0), second], [1, 1], (0.1, 0.1), 0.95).orientation == pytest.approx(angle)
