"""The check that a device makes of a table, against the definition: fractions, every point, every pair."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import accumulate, combinations, islice, product
from typing import Any

import numpy as np
import pytest

from fugu.contract.errors import GuaranteeError
from fugu.contract.measure_frames import Point
from fugu.contract.measure_table import Noise, Staircase, StaircaseNoise, set_of, states_in
from fugu.contract.measurement import RATIO_BITS, Measurement, check_noise, floor_exp, neighbours_of
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.places.graphs import lattice
from fugu.places.hull import complete_hull, difference_hull
from fugu.places.noise import staircase
from fugu.places.protection import protect
from fugu.places.tables import TableError, check_table, compile_noise, emission, fallback_noise, noise_pairs
from tests.support.dphmm_cases import probability

ONE = 1 << RATIO_BITS


def promise(
    points: Sequence[Point], edges: Sequence[tuple[int, int]] = (), epsilon: float = 1.0, factor: int = 3
) -> Measurement:
    """Promise about some states; the check does not ask how they follow one another."""
    everywhere = (1 << len(points)) - 1
    neighbours = neighbours_of({"edges": edges}, points, ())
    return Measurement(tuple(points), neighbours, (everywhere,) * len(points), everywhere, epsilon, factor)


def table(rows: Sequence[Sequence[int]], points: Sequence[Point] | None = None) -> NoiseTable:
    """A table of weights, each row summing to 2^32."""
    assert all(sum(row) == SCALE for row in rows)
    named = points or [(z,) for z in range(len(rows[0]))]
    return NoiseTable(tuple(array("I", [*accumulate(row)][:-1]) for row in rows), tuple(named))


def accepts(measurement: Measurement, noise: Noise, constraint: int) -> bool:
    """True if the check lets it pass."""
    try:
        check_noise(measurement, noise, constraint)
    except GuaranteeError:
        return False
    return True


@cache
def ratio_bound(epsilon: float, factor: int = 1) -> Fraction:
    """floor(e^(factor epsilon) 2^24) / 2^24, from decimals."""
    with localcontext() as context:
        context.prec = 80
        return Fraction(int((Decimal(epsilon) * factor).exp() * ONE), ONE)


def keeps(measurement: Measurement, distributions: Sequence[Sequence[Fraction]], constraint: int) -> bool:
    """The definition, word by word, on exact distributions."""
    everyone = range(measurement.states)
    states = states_in(constraint) if constraint else list(everyone)
    near, far = ratio_bound(measurement.epsilon), ratio_bound(measurement.epsilon, measurement.factor)

    @cache
    def apart(i: int, j: int) -> Fraction:
        return max(max(a / b, b / a) for a, b in zip(distributions[i], distributions[j], strict=True))

    if len(states) < 2 or any(apart(i, j) > far for i, j in combinations(states, 2)):
        return False
    if not constraint:
        return all(apart(i, j) <= near for i, j in combinations(states, 2))
    edges = [(i, j) for i, j in combinations(states, 2) if measurement.neighbours[i] >> j & 1]
    return (
        all(apart(i, j) <= near for i, j in edges)
        and all(any(j != i and apart(i, j) <= near for j in states) for i in states)
        and all(any(apart(i, j) <= near for j in states) for i in everyone if i not in states)
    )


def random_weights(generator: random.Random, count: int, outputs: int, epsilon: float) -> list[list[int]]:
    """Rows that are some steps around epsilon apart; a row may come twice."""
    base = [generator.randrange(1, 1 << generator.choice([4, 20, 29])) for _ in range(outputs)]
    levels = generator.choice([(0.0, 0.5), (0.0, 0.9, 1.0), (0.0, 1.0, 2.0), (0.0, 0.3, 3.0)])
    rows = []
    for _ in range(count):
        if rows and generator.random() < 0.2:
            rows.append(generator.choice(rows))
            continue
        raw = [weight * math.exp(epsilon * generator.choice(levels)) for weight in base]
        row = [max(1, int(weight / sum(raw) * SCALE)) for weight in raw]
        row[row.index(max(row))] += SCALE - sum(row)
        rows.append(row)
    return rows


# Tables of weights


def test_the_bound_is_the_floor_of_the_exponential() -> None:
    for epsilon in (1e-9, 0.001, 0.1, 0.5, 1.0, math.log(2), 2.5, 7.0, 19.99, 20.0):
        assert Fraction(floor_exp(epsilon), ONE) == ratio_bound(epsilon)
    for epsilon in (0.0, -1.0, 20.0001):
        with pytest.raises(GuaranteeError, match="above 0 and at most 20"):
            floor_exp(epsilon)


@pytest.mark.long
def test_random_tables_pass_exactly_if_they_keep_the_definition() -> None:
    """Good and bad ones, with any graph and any set of possible states."""
    generator = random.Random(4)
    outcomes = {True: 0, False: 0}
    for _ in range(600):
        count, outputs = generator.randrange(2, 6), generator.randrange(2, 5)
        epsilon, factor = generator.choice([0.2, 1.0, 3.0, 8.0]), generator.choice([1, 2, 3, 1000])
        edges = [pair for pair in combinations(range(count), 2) if generator.random() < 0.3]
        measurement = promise([(x,) for x in range(count)], edges, epsilon, factor)
        rows = random_weights(generator, count, outputs, epsilon)
        constraint = generator.randrange(1 << count)
        distributions = [[Fraction(weight, SCALE) for weight in row] for row in rows]
        expected = keeps(measurement, distributions, constraint)
        assert accepts(measurement, table(rows), constraint) == expected
        outcomes[expected] += 1
    assert min(outcomes.values()) > 70


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0])
def test_one_weight_beyond_the_bound_is_refused(epsilon: float) -> None:
    """The joined pair, from both sides; and in either direction."""
    bound = floor_exp(epsilon)
    for low in (1, 1000, 12_345_678):
        most = low * bound >> RATIO_BITS
        for high, good in ((most, True), (most + 1, False)):
            rows = [[low, SCALE - low], [high, SCALE - high]]
            for ordered in (rows, rows[::-1]):
                for edges, constraint in (([(0, 1)], 0b11), ([], 0b11), ([], 0)):  # joined, its only partner, any pair
                    assert accepts(promise([(0,), (1,)], edges, epsilon), table(ordered), constraint) == good


def test_one_weight_beyond_the_factor_is_refused() -> None:
    """A path whose steps are well within epsilon, and whose ends are as far apart as the factor allows."""
    low = 3_000_000
    most = int(ratio_bound(1.0, 2) * low)
    for high, good in ((most, True), (most + 1, False)):
        cells = [low, int(low * 1.9), int(low * 3.8), high]
        measurement = promise([(x,) for x in range(4)], [(0, 1), (1, 2), (2, 3)], 1.0, 2)
        assert accepts(measurement, table([[cell, SCALE - cell] for cell in cells]), 0b1111) == good


def test_a_factor_that_no_two_weights_can_exceed_is_not_looked_at() -> None:
    """2^32 is e^22.18; a table that far apart passes with factor 23, and not with 22."""
    cells = [1, *(int(math.exp(x)) for x in range(1, 22)), SCALE - 1]
    rows = [[cell, SCALE - cell] for cell in cells]
    path = [(x, x + 1) for x in range(len(rows) - 1)]
    everywhere = (1 << len(rows)) - 1
    points = [(x,) for x in range(len(rows))]
    distributions = [[Fraction(weight, SCALE) for weight in row] for row in rows]
    for factor in (22, 23):
        measurement = promise(points, path, 1.0, factor)
        assert accepts(measurement, table(rows), everywhere) == keeps(measurement, distributions, everywhere)


@pytest.mark.parametrize(
    ("rows", "constraint", "text"),
    [
        ([[9, 1], [1, 9], [5, 5]], 0b111, "tells state 0 from state 1"),
        ([[5, 5], [5, 5], [1, 9]], 0b111, "state 2 is exposed"),
        ([[5, 5], [5, 5], [1, 9]], 0b011, "state 2, which should not be possible, is hidden together with none"),
        ([[5, 5], [5, 5], [1, 9]], 0, "every pair"),
        ([[5, 5], [5, 5], [5, 5]], 0b1000, "states that the policy does not have"),
        ([[5, 5], [5, 5], [5, 5]], 0b001, "one possible state protects nothing"),
        ([[5, 5], [5, 5]], 0b011, "has 2 states, the policy 3"),
        ([[5, 5], [5, 5], [1, 9]], 0b101, "apart by more than 1 epsilon"),
    ],
)
def test_a_refusal_says_why(rows: list[list[int]], constraint: int, text: str) -> None:
    factor = 1 if "apart" in text else 1000
    tenth = SCALE // 10
    scaled = [[row[0] * tenth, SCALE - row[0] * tenth] for row in rows]
    with pytest.raises(GuaranteeError, match=text):
        check_noise(promise([(0,), (1,), (2,)], [(0, 1)], 1.0, factor), table(scaled), constraint)


def test_a_state_among_too_few_others_is_refused() -> None:
    """One other is enough for a degree of protection of 2, not for 3."""
    near, far = [SCALE // 2, SCALE // 2], [SCALE // 10, SCALE - SCALE // 10]
    measurement = replace(promise([(x,) for x in range(6)], (), 1.0, 1000), degree=3)
    check_noise(measurement, table([near] * 3 + [far] * 3), 0b111111)
    with pytest.raises(GuaranteeError, match="state 3 is hidden among 2 possible states"):
        check_noise(measurement, table([near] * 3 + [far] * 3), 0b011111)
    check_noise(replace(measurement, degree=7), table([near] * 6), 0b000011)  # all that there are


def test_points_of_other_dimensions_are_refused() -> None:
    half = SCALE // 2
    flat = table([[half, half]] * 2, [(0, 0), (1, 1)])
    with pytest.raises(GuaranteeError, match="other dimensions"):
        check_noise(promise([(0,), (1,)]), flat, 0b11)
    noise = StaircaseNoise(0b11, Staircase(((-1, 0), (1, 0)), Fraction(1, 2)), (0, 0), (1, 1))
    with pytest.raises(GuaranteeError, match="other dimensions"):
        check_noise(promise([(0,), (1,)]), noise, 0b11)


# What the gateway compiles

GRAPHS: list[dict[str, Any]] = [
    {"complete": True},
    {"categories": ["a", "b", "a", "b", "a", "b"]},
    {"radius": 1.0},
    {"radius": 2.5},
    {"transition": True},
    {"edges": []},
    {"edges": [[0, 1]]},
]


def random_places(generator: np.random.Generator) -> np.ndarray:
    """Two to six states in one to three dimensions, often in a line or a plane of them, sometimes at one place."""
    count, space = int(generator.integers(2, 7)), int(generator.integers(1, 4))
    basis = generator.integers(-1, 2, (int(generator.integers(1, space + 1)), space))
    return lattice(generator.integers(-2, 3, (count, len(basis))) @ basis)


@pytest.mark.parametrize("seed", range(10))
def test_what_the_gateway_compiles_passes(seed: int) -> None:
    """And the two checks, the device's and the planner's, agree on the pairs that it protects."""
    generator = np.random.default_rng(seed)
    values = random_places(generator)
    count, epsilon = len(values), (0.3, 1.0, 2.5)[seed % 3]
    points = tuple(map(tuple, values.tolist()))
    successors = tuple(int(bits) | 1 << x for x, bits in enumerate(generator.integers(0, 1 << count, count)))
    graph = dict(GRAPHS[seed % len(GRAPHS)])
    if "categories" in graph:
        graph["categories"] = graph["categories"][:count]
    neighbours = neighbours_of(graph, points, successors)
    possible = generator.random(count) < 0.6
    possible[generator.permutation(count)[:2]] = True
    constraint = set_of(np.flatnonzero(possible).tolist())
    matrix = np.array([[bool(others >> y & 1) for y in range(count)] for others in neighbours])
    protection = protect(values, matrix, possible)
    measurement = Measurement(points, neighbours, successors, constraint, epsilon, math.ceil(max(1, protection.factor)))
    try:
        noise = compile_noise(protection.hull, values, possible, epsilon)
    except TableError:
        assert len({points[x] for x in states_in(constraint)}) == 1, "nothing but one measurement cannot be protected"
        return
    check_noise(measurement, noise, constraint)
    weights = np.array([noise.row_weights(x) for x in range(count)])
    pairs = noise_pairs(noise, values, possible, epsilon)
    check_table(weights, pairs, epsilon)
    inside = states_in(constraint)
    for i, j in combinations(inside, 2):
        two = promise([points[i], points[j]], [(0, 1)], epsilon, 1000)
        assert accepts(two, table([weights[i].tolist(), weights[j].tolist()], noise.points), 0b11) == pairs[i, j]


LAYOUTS: dict[str, list[Point]] = {
    "a line": [(0,), (1,), (3,), (7,)],
    "a line in the plane": [(0, 0), (2, 1), (4, 2), (10, 5)],
    "a square": [(0, 0), (1, 0), (0, 1), (1, 1)],
    "two of them at one place": [(0, 0), (0, 0), (3, 1), (1, 3)],
    "a plane in space": [(0, 0, 1), (2, 0, 1), (0, 2, 1), (1, 1, 1)],
    "space": [(0, 0, 0), (1, 0, 0), (0, 2, 0), (0, 0, 3)],
}
PAIRS = list(combinations(range(4), 2))


@pytest.mark.long
@pytest.mark.parametrize("layout", [*LAYOUTS][3::2])
def test_the_fallback_satisfies_it_for_every_graph_and_constraint(layout: str) -> None:
    """All graphs on four states, with all sets of at least two possible ones, and with any such set at once."""
    points = LAYOUTS[layout]
    noise = fallback_noise(lattice(points), 1.0)
    constraints = [0, *(bits for bits in range(16) if bits.bit_count() >= 2)]
    for present in product((False, True), repeat=len(PAIRS)):
        edges = [pair for pair, there in zip(PAIRS, present, strict=True) if there]
        measurement = promise(points, edges, 1.0, 1)
        for constraint in constraints:
            check_noise(measurement, noise, constraint)


@pytest.mark.parametrize("layout", ["a line", "a line in the plane", "a square", "two of them at one place"])
def test_a_staircase_of_all_differences_is_a_fallback_too(layout: str) -> None:
    points = LAYOUTS[layout]
    values = lattice(points)
    low, high = tuple(values.min(axis=0).tolist()), tuple(values.max(axis=0).tolist())
    noise = StaircaseNoise(0b1111, staircase(complete_hull(values), 1.0), low, high)
    for edges in ([], PAIRS):
        for constraint in (0, *(bits for bits in range(16) if bits.bit_count() >= 2)):
            check_noise(promise(points, edges, 1.0, 1), noise, constraint)


# Staircases

DIAMOND = ((-1, 0), (0, -1), (1, 0), (0, 1))
SQUARE = ((-1, -1), (1, -1), (1, 1), (-1, 1))
HEXAGON = ((-2, -1), (0, -1), (2, 0), (2, 1), (0, 1), (-2, 0))
HULLS = (DIAMOND, SQUARE, HEXAGON, ((-1, -1), (1, 1)), ((-2, 0), (2, 0)))


def stairs(
    vertices: Sequence[Point], ratio: Fraction = Fraction(1, 2), likely: int = (1 << 30) - 1, box: int = 3
) -> StaircaseNoise:
    corner = (box,) * len(vertices[0])
    return StaircaseNoise(likely, Staircase(tuple(vertices), ratio), tuple(-x for x in corner), corner)


def clamped(noise: StaircaseNoise, centre: Point, near: dict[Point, float]) -> dict[Point, float]:
    """The distribution of a released point, from that of the noise."""
    distribution: dict[Point, float] = {}
    for step, mass in near.items():
        moved = (x + s for x, s in zip(centre, step, strict=True))
        point = tuple(min(max(x, low), high) for x, low, high in zip(moved, noise.low, noise.high, strict=True))
        distribution[point] = distribution.get(point, 0.0) + mass
    return distribution


def cases() -> Iterator[tuple[Measurement, StaircaseNoise, int]]:
    generator = random.Random(9)
    for number in range(240):
        count = generator.randrange(2, 6)
        vertices = HULLS[number % len(HULLS)]
        line = len(vertices) == 2 and generator.random() < 0.8
        steps = [(generator.randrange(-2, 3), generator.randrange(-2, 3)) for _ in range(count)]
        points = [(a * vertices[1][0], a * vertices[1][1]) for a, _ in steps] if line else steps
        edges = [pair for pair in combinations(range(count), 2) if generator.random() < 0.3]
        likely = generator.randrange(1, 1 << count)
        if generator.random() < 0.5:
            likely = (1 << count) - 1
        noise = stairs(vertices, generator.choice([Fraction(1, 2), Fraction(3, 8), Fraction(1, 3)]), likely)
        constraint = generator.randrange(1 << count)
        yield promise(points, edges, 1.0, generator.choice([1, 2, 4])), noise, constraint


@pytest.mark.long
def test_staircases_that_pass_keep_the_definition_after_clamping() -> None:
    """The distribution of the released point, added up from the exact one of the noise; below e^-20 is left out."""
    passed = 0
    distributions: dict[tuple[object, Fraction], dict[Point, float]] = {}
    for measurement, noise, constraint in islice(cases(), 60):
        if not accepts(measurement, noise, constraint):
            continue
        passed += 1
        stair, reach = noise.staircase, 42
        if (key := (stair.vertices, stair.ratio)) not in distributions:
            square = product(range(-reach, reach + 1), repeat=2)
            distributions[key] = {step: float(probability(stair, step)) for step in square if stair.spans(step)}
        likely = noise.likely_states
        answers = [x if x in likely else measurement.surrogate(x, likely) for x in range(measurement.states)]
        masses = [clamped(noise, measurement.coordinates[answer], distributions[key]) for answer in answers]
        assert len({frozenset(distribution) for distribution in masses}) == 1, "no point is impossible for any state"
        approximate = [[Fraction(distribution[point]) for point in sorted(masses[0])] for distribution in masses]
        slack = Measurement(
            measurement.coordinates, measurement.neighbours, (), 0, measurement.epsilon + 1e-6, measurement.factor
        )
        assert keeps(slack, approximate, constraint)
    assert passed > 5


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
def test_a_step_of_a_staircase_beyond_the_bound_is_refused(epsilon: float) -> None:
    bound = floor_exp(epsilon)
    for ratio, good in (
        (Fraction(ONE, bound), True),
        (Fraction(ONE, bound + 1), False),
        (Fraction(ONE + 1, bound), True),
    ):
        noise = stairs(DIAMOND, ratio, 0b11)
        assert accepts(promise([(0, 0), (1, 0)], [(0, 1)], epsilon), noise, 0b11) == good


@pytest.mark.parametrize(("distance", "factor", "good"), [(2, 1, True), (3, 1, False), (4, 2, True), (5, 2, False)])
def test_the_boundary_of_a_hull_belongs_to_it(distance: int, factor: int, good: bool) -> None:
    """An edge of the graph, then the factor, on a segment of length 2 and on a square of the same size."""
    path = [(x, 0) for x in range(distance + 1)]
    edges = [(0, distance)] if factor == 1 else [(x, x + 1) for x in range(distance)]
    for vertices in (((-2, 0), (2, 0)), ((-2, -2), (2, -2), (2, 2), (-2, 2))):
        noise = stairs(vertices, Fraction(1, 2), (1 << len(path)) - 1)
        measurement = promise(path, edges, 1.0, factor if factor > 1 else 1000)
        assert accepts(measurement, noise, (1 << len(path)) - 1) == good


def test_what_stands_in_for_a_state_is_what_counts() -> None:
    """State 2 is far away, and harmless as long as it is answered for by one of the others."""
    points = [(0, 0), (1, 0), (9, 9)]
    for likely, constraint, good in (
        (0b011, 0b111, True),
        (0b111, 0b111, False),
        (0b011, 0b011, True),
        (0b111, 0b011, False),
        (0b100, 0b011, True),  # all are answered for by state 2
        (0b101, 0b011, False),
        (0b1011, 0b011, False),
    ):
        assert accepts(promise(points, [], 1.0, 1), stairs(SQUARE, likely=likely), constraint) == good


def test_a_flat_staircase_must_not_leave_its_line() -> None:
    flat = ((-1, 0), (1, 0))
    assert accepts(promise([(0, 0), (1, 0)]), stairs(flat, likely=0b11), 0b11)
    with pytest.raises(GuaranteeError, match="flat"):
        check_noise(promise([(0, 0), (1, 0), (0, 1)]), stairs(flat, likely=0b111), 0b111)
    with pytest.raises(GuaranteeError, match="flat"):
        check_noise(promise([(0, 0), (1, 0), (0, 1)]), stairs(flat, likely=0b111), 0b011)
    assert accepts(promise([(0, 0), (1, 0), (0, 1)]), stairs(flat, likely=0b011), 0b111)


def test_the_matrix_of_a_staircase_is_its_distribution() -> None:
    """The gateway estimates with the distribution that the device draws from, unlikely states included."""
    points = [(0, 0), (1, 0), (0, 1), (2, 2)]
    noise = StaircaseNoise(0b0111, Staircase(SQUARE, Fraction(1, 2)), (0, 0), (2, 2))
    near = {step: float(probability(noise.staircase, step)) for step in product(range(-45, 46), repeat=2)}
    matrix = emission(noise, lattice(points))
    for state, centre in enumerate([(0, 0), (1, 0), (0, 1), (1, 0)]):
        distribution = clamped(noise, centre, near)
        assert set(distribution) == set(matrix.points)
        assert [matrix.probabilities[state, matrix.points[z]] for z in distribution] == pytest.approx(
            list(distribution.values()), rel=1e-9
        )


@pytest.mark.parametrize("epsilon", [1e-5, 2.0**-24])
def test_more_noise_than_a_device_draws_in_time_is_refused_at_once(epsilon: float) -> None:
    """2^-24 would take minutes for each point."""
    values = lattice([(i % 11, i // 11) for i in range(121)])
    with pytest.raises(ValueError, match="no device draws from this staircase"):
        fallback_noise(values, epsilon)


def test_a_hull_of_too_many_corners_is_refused() -> None:
    """A device compares every pair of states along every side."""
    circle = [(x, y) for x in range(-2000, 2001, 7) for y in (int(math.sqrt(2000 * 2000 - x * x)),)]
    assert len(difference_hull(circle).vertices) > 256
    values = lattice([*circle, (0, 0)])
    with pytest.raises(ValueError, match="no device draws from this staircase"):
        fallback_noise(values, 1.0)
