"""The staircase mechanism: closed forms against enumeration, its inequality, and exact draws."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from fugu.contract.measure_table import Staircase
from fugu.places.graphs import GraphError, complete
from fugu.places.hull import Hull, complete_hull, difference_hull, graph_hull
from fugu.places.noise import floor_exp, noise_ratio, staircase, staircase_error
from tests.support.dphmm_cases import GOLDEN, GRAPH, VALUES, probability, stairs

HULL = graph_hull(VALUES, GRAPH)
SHAPES = {
    "example": HULL,
    "segment in the plane": difference_hull([[4, -2]]),
    "segment in space": difference_hull([[0, 3, 3]]),
    "line": difference_hull([[3]]),
    "diamond": difference_hull([[1, 0], [0, 1]]),
    "thin": difference_hull([[7, 3], [2, 1]]),
    "box": difference_hull([[2, 2], [2, -2]]),
    "skew": difference_hull([[0, 2], [3, 5], [-4, 6]]),
}
BOXES = {
    "8-neigh box": difference_hull([[1, 1], [1, -1]]),
    "4-neigh diamond": SHAPES["diamond"],
    "box5": difference_hull([[5, 5], [5, -5]]),
    "2-step box": SHAPES["box"],
}


def points_near(hull: Hull, shells: int) -> np.ndarray:
    sides = [range(-shells * reach, shells * reach + 1) for reach in np.abs(hull.vertices).max(axis=0).tolist()]
    return np.array(list(product(*sides)), dtype=np.int64)


def test_the_golden_staircase() -> None:
    golden = GOLDEN["staircase_q=100000/271828"]
    noise = stairs(HULL, Fraction(100000, 271828))
    assert noise.normaliser == Fraction(golden["Z"])
    assert float(probability(noise, (0, 0))) == pytest.approx(golden["P(0)"], rel=1e-12)
    assert sorted(noise.shell_weights) == sorted(value // 16 for value in golden["sampler_weights_w3_w2_w1"])


@pytest.mark.parametrize("epsilon", ["0.5", "1.0", "2.0"])
def test_normalisers_and_errors_of_the_example(epsilon: str) -> None:
    noise = stairs(HULL, Fraction(math.exp(-float(epsilon))))
    golden = GOLDEN["lattice_rmse"][f"K51_eps{epsilon}"]
    assert float(noise.normaliser) == pytest.approx(float(golden["Z_stair_closed"]), rel=1e-12)
    assert float(noise.normaliser) == pytest.approx(float(GOLDEN["staircase_Z_K51"][epsilon]), rel=1e-12)
    assert math.sqrt(staircase_error(noise)) == pytest.approx(golden["rmse_stair"], rel=1e-9)


@pytest.mark.parametrize("epsilon", ["0.5", "1.0", "2.0"])
@pytest.mark.parametrize("shape", BOXES)
def test_errors_of_boxes(shape: str, epsilon: str) -> None:
    noise = stairs(BOXES[shape], Fraction(math.exp(-float(epsilon))))
    assert math.sqrt(staircase_error(noise)) == pytest.approx(
        GOLDEN["lattice_rmse"][f"{shape}_eps{epsilon}"][2], rel=1e-9
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_closed_forms_against_enumeration(shape: str) -> None:
    hull = SHAPES[shape]
    noise = stairs(hull, Fraction(1, 9))
    points = points_near(hull, 14)
    powers = hull.ceil_gauges(points)
    weights = np.where(powers < 0, 0.0, (1 / 9) ** np.maximum(powers, 0))
    assert float(noise.normaliser) == pytest.approx(weights.sum(), rel=1e-9)
    error = float(weights @ np.sum(points * points, axis=1)) / weights.sum()
    assert staircase_error(noise) == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize("shape", ["example", "segment in the plane", "thin"])
def test_no_step_within_the_hull_changes_a_probability_by_more_than_the_ratio(shape: str) -> None:
    """Exactly, for all points of the first shells and all lattice points of K."""
    hull = SHAPES[shape]
    steps = [step for step in points_near(hull, 1).tolist() if hull.gauge(step) <= 1]
    noise = staircase(hull, epsilon=1)
    for point in points_near(hull, 2)[::7].tolist():
        here = probability(noise, tuple(point))
        for step in steps:
            there = probability(noise, tuple(a + b for a, b in zip(point, step, strict=True)))
            assert here * noise.ratio <= there
    assert GOLDEN["staircase_inequality_check"][1] == 0


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_draws_follow_the_distribution(shape: str) -> None:
    noise = staircase(SHAPES[shape], epsilon=1)
    source = random.Random(20)
    count = 3_000
    seen = Counter(noise.draw(source.randrange) for _ in range(count))
    excess, cells, rest_expected, rest_seen = 0.0, 0, float(count), count
    for point, times in seen.items():
        expected = count * float(probability(noise, point))
        if expected > 8.0:
            excess += (times - expected) ** 2 / expected
            cells += 1
            rest_expected -= expected
            rest_seen -= times
    excess += (rest_seen - rest_expected) ** 2 / rest_expected
    assert cells > 3
    assert excess < cells + 5.0 * math.sqrt(2.0 * cells)


class Every:
    """A source of randomness that walks through all its answers, and knows how likely each walk was."""

    def __init__(self) -> None:
        self.path: list[int] = []
        self.sizes: list[int] = []

    def start(self) -> None:
        self.at, self.chance = 0, Fraction(1)

    def __call__(self, size: int) -> int:
        if self.at == len(self.path):
            self.path.append(0)
            self.sizes.append(size)
        self.at += 1
        self.chance /= size
        return self.path[self.at - 1]

    def advance(self) -> bool:
        while self.path and self.path[-1] + 1 == self.sizes[-1]:
            self.path.pop()
            self.sizes.pop()
        if self.path:
            self.path[-1] += 1
        return bool(self.path)


def test_draws_are_exact_on_a_segment() -> None:
    """Every sequence of answers up to a depth: the chances of a point add up to its probability from below."""
    noise = stairs(SHAPES["line"], Fraction(1, 2))
    source, chances = Every(), Counter[tuple[int, ...]]()
    open_chance = Fraction(0)
    while True:
        source.start()
        deep = False

        def below(size: int) -> int:
            nonlocal deep
            if source.at >= 6:
                deep = True
                raise StopIteration
            return source(size)

        try:
            chances[noise.draw(below)] += source.chance
        except StopIteration:
            open_chance += source.chance
        assert deep or source.at <= 6
        if not source.advance():
            break
    assert sum(chances.values()) + open_chance == 1
    for point in [(0,), (1,), (-3,), (4,), (-6,)]:
        assert chances[point] == probability(noise, point)


@pytest.mark.parametrize("bits", [24, 32])
@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1", "2", "4"])
def test_likelihood_ratios_are_rounded_down(epsilon: str, bits: int) -> None:
    golden = GOLDEN["exp_rational_floor"][f"eps{epsilon}_q{bits}"]
    assert floor_exp(Fraction(epsilon), bits) == golden == floor_exp(float(epsilon), bits)


def test_noise_never_falls_short_of_epsilon() -> None:
    for epsilon in (Fraction(1, 1000), Fraction(1, 3), 1, 5, 20):
        assert 0 <= float(epsilon) + math.log(noise_ratio(epsilon)) < 1e-3 * float(epsilon)


@pytest.mark.parametrize("epsilon", [0, -1, 21, float("nan"), 2.0**-25])
def test_epsilons_out_of_range(epsilon: float) -> None:
    with pytest.raises(GraphError, match="epsilon"):
        staircase(HULL, epsilon)


def test_shapes_that_have_no_staircase() -> None:
    for hull in (
        HULL.capped(complete_hull(VALUES), Fraction(3, 2)),
        difference_hull(GOLDEN["hull3d"]["points"]),
        difference_hull([[1, 0, 1], [0, 1, 1]]),
        graph_hull(VALUES, ~complete(6) & complete(6)),
    ):
        with pytest.raises(GraphError, match="lattice points"):
            staircase(hull, 1)
    assert isinstance(staircase(HULL, 1), Staircase)
