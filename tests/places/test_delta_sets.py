"""Constraint sets, delta-location sets and surrogates: schedules against brute force and filters, and promises."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fugu.chains.arrays import Bools, Ints
from fugu.chains.tracking import reachable
from fugu.places.graphs import GraphError, complete, delta_set, edge_list, lattice, restrict, surrogates
from fugu.places.hull import difference_hull, graph_hull
from fugu.places.noise import floor_exp
from fugu.places.protection import Protection, degree_of_protection, protect, protect_likely
from fugu.places.tables import TableError, TableWeights, build_table, check_table
from papers.graphs import explicit, within_radius
from papers.walks import fallback_table, schedule
from tests.support.dphmm_cases import GOLDEN, GRAPH, VALUES, close, grid, states

LINE = lattice(range(6))


def table_of(values: Ints, protection: Protection, likely: Bools, epsilon: int) -> TableWeights:
    """Tables that a device draws from: the fallback where all that is kept measures the same."""
    if not np.any(values[likely] != values[likely][0]):
        return fallback_table(values, epsilon)
    return build_table(protection.hull, values, likely, epsilon)


def degrees_of(values: Ints, protection: Protection, possible: Bools, likely: Bools) -> Ints:
    return degree_of_protection(protection.hull, values[surrogates(values, likely)], possible)


def random_graph(generator: np.random.Generator, count: int, share: float) -> Bools:
    upper = np.triu(generator.random((count, count)) < share, 1)
    return np.asarray(upper | upper.T)


def random_chain(generator: np.random.Generator, count: int, periods: int) -> Ints:
    """Integer weights of steps; with several periods each class of states leads to the next one only."""
    weights = generator.integers(1, 9, (count, count)) * (generator.random((count, count)) < 0.35)
    place = np.arange(count) % periods
    weights *= place[None, :] == (place[:, None] + 1) % periods
    for state in np.flatnonzero(~weights.any(axis=1)):
        weights[state, int(np.argmax(place == (place[state] + 1) % periods))] = 1
    return np.asarray(weights)


@pytest.mark.parametrize("seed", range(12))
def test_the_schedule_is_the_support_that_an_exact_filter_finds(seed: int) -> None:
    """The filter's belief is unnormalised, in whole numbers: weights of steps times weights of certified tables."""
    generator = np.random.default_rng(seed)
    count = int(generator.integers(4, 8))
    transition = random_chain(generator, count, 1 + seed % 4)
    values = lattice(generator.permutation(12)[:count])
    start = int(generator.integers(count))
    graph = random_graph(generator, count, 0.4)
    plan = schedule(np.arange(count) == start, transition)
    steps = [[int(weight) for weight in row] for row in transition]
    belief, state = [int(x == start) for x in range(count)], start
    for tick in range(min(40, len(plan.constraints) + 2 * plan.period)):
        possible = plan.at(tick)
        assert [weight > 0 for weight in belief] == possible.tolist()
        weights = table_of(values, protect_likely(values, graph, possible, possible), possible, 2).weights
        output = int(generator.choice(weights.shape[1], p=weights[state] / 2**32))
        seen = [weight * int(row[output]) for weight, row in zip(belief, weights, strict=True)]
        belief = [sum(seen[x] * steps[x][y] for x in range(count)) for y in range(count)]
        state = int(generator.choice(count, p=transition[state] / transition[state].sum()))
        assert belief[state] > 0


def test_an_edge_to_a_state_left_out_is_kept_by_its_surrogate() -> None:
    """On a line 0 - 1 - 2 - 3 with 0 and 3 kept, 1 draws from the row of 0 and 2 from that of 3."""
    path = explicit(6, [(0, 1), (1, 2), (2, 3)])
    likely, possible = states(6, 1, 4), states(6, 1, 2, 3, 4)
    protection = protect_likely(LINE, path, possible, likely)
    assert (edge_list(protection.graph), protection.added_edges) == ([(0, 3)], ())
    assert protection.hull.vertices.tolist() == [[-3], [3]]
    naive = build_table(graph_hull(LINE, explicit(6, [(0, 1)])), LINE, likely, 1)
    with pytest.raises(TableError, match="tells state 1 from state 2"):
        check_table(naive.weights, restrict(path, possible), 1)


@pytest.mark.parametrize("seed", range(16))
def test_a_table_for_a_delta_set_keeps_every_promise_on_all_reachable_states(seed: int) -> None:
    generator = np.random.default_rng(seed)
    count = int(generator.integers(4, 11))
    space = 1 + seed % 2
    values = lattice(generator.integers(0, 5, (count, space)))
    graph = random_graph(generator, count, (0.1, 0.3, 0.7)[seed % 3])
    possible = generator.random(count) < 0.8
    possible[:2] = True
    belief = generator.dirichlet(np.full(count, 0.5)) * possible
    likely = delta_set(belief / belief.sum(), 0.3) & possible
    protection = protect_likely(values, graph, possible, likely)
    table = table_of(values, protection, likely, 1)
    check_table(table.weights, restrict(graph, possible), 1)
    inside = np.flatnonzero(possible).tolist()
    for state in inside:
        assert any(close(table, state, other, floor_exp(1)) for other in inside if other != state)
    if np.any(values[likely] != values[likely][0]):
        degrees = degrees_of(values, protection, possible, likely)
        assert 1 not in degrees
        assert degrees.tolist() == brute_degrees(protection, values, possible, likely)
        rows = surrogates(values, likely)
        assert all(likely[[i, j]].all() for i, j in edge_list(protection.graph))
        assert protection.factor < math.inf
        assert all(np.array_equal(table.weights[x], table.weights[rows[x]]) for x in inside)


def brute_degrees(protection: Protection, values: Ints, possible: Bools, likely: Bools) -> list[int]:
    rows = values[surrogates(values, likely)].tolist()
    inside = np.flatnonzero(possible).tolist()
    hull = protection.hull
    counts = [0] * len(values)
    for i in inside:
        counts[i] = sum(hull.gauge([a - b for a, b in zip(rows[i], rows[j], strict=True)]) <= 1 for j in inside)
    return counts


@pytest.mark.parametrize("seed", range(10))
def test_the_surrogate_graph_joins_the_rows_of_every_edge(seed: int) -> None:
    generator = np.random.default_rng(seed)
    values, graph = lattice(generator.integers(0, 9, (12, 2))), random_graph(generator, 12, 0.3)
    possible = generator.random(12) < 0.8
    likely = possible & (generator.random(12) < 0.5)
    likely[int(np.argmax(possible))] = True
    rows = surrogates(values, likely)
    pairs = {tuple(sorted((int(rows[i]), int(rows[j])))) for i, j in edge_list(restrict(graph, possible))}
    protection = protect_likely(values, graph, possible, likely)
    added = {(min(pair), max(pair)) for pair in protection.added_edges}
    assert edge_list(protection.graph) == sorted({pair for pair in pairs if len({*pair}) > 1} | added)


@pytest.mark.parametrize("seed", range(24))
def test_points_left_out_beforehand_are_no_vertices(seed: int) -> None:
    """Thin, flat, tiny and wide hulls; against the hull of every single difference."""
    generator = np.random.default_rng(seed)
    count, space = int(generator.integers(2, 15)), 1 + seed % 3
    basis = generator.integers(-3, 4, (int(generator.integers(1, space + 1)), space))
    values = lattice(generator.integers(-(10 ** (1 + seed % 4)), 10 ** (1 + seed % 4), (count, len(basis))) @ basis)
    graph = random_graph(generator, count, 0.4)
    first, second = np.nonzero(graph)
    quick, slow = graph_hull(values, graph), difference_hull(values[first] - values[second])
    assert sorted(quick.vertices.tolist()) == sorted(slow.vertices.tolist())
    assert quick.axes == slow.axes


def test_without_a_delta_set_it_is_what_protect_finds() -> None:
    for chosen in ((2, 4, 5, 6), (3, 4, 5, 6), (1, 2), (1, 2, 3, 4, 5, 6)):
        constraint = states(6, *chosen)
        plain, protection = protect(VALUES, GRAPH, constraint), protect_likely(VALUES, GRAPH, constraint, constraint)
        assert (protection.added_edges, protection.factor) == (plain.added_edges, plain.factor)
        assert np.array_equal(protection.graph, plain.graph)
        assert np.array_equal(protection.hull.vertices, plain.hull.vertices)


def test_states_that_share_a_row_protect_one_another_and_edges_join_kept_states() -> None:
    """States 0 and 5 are kept, 1 is answered for by 0: only 5 is alone, and its partner is 0, not 1."""
    protection = protect_likely(LINE, explicit(6, []), states(6, 1, 2, 6), states(6, 1, 6))
    assert protection.added_edges == ((5, 0),)
    shared = protect_likely(LINE, explicit(6, []), states(6, 1, 2, 5, 6), states(6, 1, 6))
    assert (shared.added_edges, shared.is_capped, shared.factor) == ((), True, 4)


@pytest.mark.parametrize("objective", ["error", "nearest"])
def test_a_step_on_a_grid_has_a_finite_factor_and_no_exposed_state(objective: str) -> None:
    walk = (np.abs(grid(5)[:, None] - grid(5)[None]).sum(axis=2) <= 1).astype(float)
    plan, graph = schedule(states(25, 13), walk), explicit(25, [(0, 1)])
    assert protect_likely(grid(5), graph, plan.at(0), plan.at(0)).exposed == (12,)
    for possible in plan.constraints[1:]:
        protection = protect_likely(grid(5), graph, possible, possible, objective=objective)
        assert 1 not in degrees_of(grid(5), protection, possible, possible)
        assert (protection.factor < math.inf, protection.exposed) == (True, ())


def test_refusals() -> None:
    with pytest.raises(GraphError, match="keeps at least one state"):
        protect_likely(LINE, complete(6), states(6, 1), states(6, 1) & states(6, 6))
    with pytest.raises(GraphError, match="only states that are possible"):
        protect_likely(LINE, complete(6), states(6, 1, 2), states(6, 3))


MATRIX = np.array(GOLDEN["forward_example"]["M"])


def test_constraints_of_the_forward_example() -> None:
    """At the paper's tick 1 the constraint is what follows from the starting state."""
    current = states(6, 1)
    for step in GOLDEN["forward_example"]["steps"]:
        current = reachable(current, MATRIX)
        assert [state + 1 for state in np.flatnonzero(current)] == step["C"]


@pytest.mark.parametrize("side", [6, 10, 20, 32])
@pytest.mark.parametrize(("name", "radius"), [("5", 1), ("9", 1.5)])
def test_a_walk_from_a_corner_or_the_centre_fills_a_grid_when_it_should(side: int, name: str, radius: float) -> None:
    walk = within_radius(grid(side), radius) | np.eye(side * side, dtype=np.bool_)
    for where, start in (("corner", 0), ("centre", (side // 2) * side + side // 2)):
        plan = schedule(np.arange(side * side) == start, walk)
        assert [plan.start] * 2 == GOLDEN["constraint_dynamics"][f"A|{side}|{name}|{where}"]
        assert (plan.period, bool(plan.at(10**9).all())) == (1, True)


def test_a_schedule_repeats_after_its_run_in() -> None:
    """Two states lead into a cycle of three, and one of two: period 6."""
    transition = np.zeros((7, 7))
    for here, there in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 2), (0, 5), (5, 6), (6, 5)]:
        transition[here, there] = 1.0
    plan = schedule(np.arange(7) == 0, transition)
    assert (plan.start, plan.period) == (2, 6)
    current = np.arange(7) == 0
    for tick in range(40):
        assert np.array_equal(plan.at(tick), current)
        current = reachable(current, transition)


def test_a_full_start_keeps_every_state_that_has_a_predecessor() -> None:
    assert len(schedule(states(6), MATRIX).constraints) == 1


def test_a_step_too_unlikely_for_floating_point_is_still_a_step() -> None:
    """Counterexample 14: after 20 steps the belief underflows to 0 in state 2, which is nevertheless possible."""
    transition = np.array([[1.0 - 1e-20, 1e-20, 0.0], [1.0 - 1e-20, 0.0, 1e-20], [0.0, 0.0, 1.0]])
    tiny = np.array([[1.0, 1e-200, 0.0], [0.0, 0.0, 1e-200], [0.0, 0.0, 1.0]])
    assert schedule(np.arange(3) == 0, transition).at(2).all()
    belief = np.array([1.0, 0.0, 0.0]) @ tiny @ np.diag([0.0, 1.0, 0.0]) @ tiny
    assert belief[2] == 0.0
    assert reachable(reachable(np.arange(3) == 0, tiny), tiny).tolist() == [True, True, True]


@pytest.mark.parametrize("delta", ["0.01", "0.05", "0.2"])
def test_delta_sets_of_the_example(delta: str) -> None:
    golden = GOLDEN["delta_set"]
    likely = delta_set(golden["p"], float(delta))
    assert [state + 1 for state in np.flatnonzero(likely)] == golden[delta]


def test_of_equally_likely_states_the_last_one_goes_first() -> None:
    assert delta_set([0.25] * 4, 0.3).tolist() == [True, True, True, False]
    assert delta_set([0.25] * 4, 0.25).tolist() == [True, True, True, False]
    assert delta_set([0.25] * 4, 0.2499).all()
    assert delta_set([1.0], 0.9).all()


def test_a_surrogate_is_the_nearest_state_inside_with_ties_to_the_lowest() -> None:
    """Cells of a 3 x 3 grid with 0, 2 and 8 left: the centre, 4, is as far from all three."""
    assert surrogates(grid(3), states(9, 1, 3, 9)).tolist() == [0, 0, 2, 0, 0, 2, 0, 8, 8]


@pytest.mark.parametrize(("belief", "delta"), [([0.5, 0.6], 0.1), ([1.5, -0.5], 0.1), ([0.5, 0.5], 1.0), ([1.0], -0.1)])
def test_a_belief_is_a_distribution_and_delta_is_below_one(belief: list[float], delta: float) -> None:
    with pytest.raises(GraphError):
        delta_set(belief, delta)


def test_impossible_schedules_are_refused() -> None:
    with pytest.raises(GraphError, match="at tick 1"):
        schedule(states(2, 2), np.array([[0.0, 1.0], [0.0, 0.0]]))
    with pytest.raises(GraphError, match="do not repeat within 2"):
        schedule(states(3, 1), np.roll(np.eye(3), 1, axis=1), longest=2)
    with pytest.raises(GraphError, match="tick 0"):
        schedule(states(1), np.eye(1)).at(-1)
    with pytest.raises(GraphError, match="stand in"):
        surrogates(grid(2), np.zeros(4, dtype=np.bool_))
