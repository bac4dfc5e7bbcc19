"""The pipeline of a stream: schedules against exact filters, what is worked out once, and promises of delta-sets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gateway.chain.arrays import Bools, Ints
from gateway.dphmm.constraints import surrogates
from gateway.dphmm.graphs import GraphError, complete, edge_list, explicit, lattice, restrict
from gateway.dphmm.hull import difference_hull, gauge, graph_hull
from gateway.dphmm.progress import FALLBACK, Progress, Step, protect_kept, surrogate_graph
from gateway.dphmm.protection import protect
from gateway.dphmm.ratios import RATIO_BITS, floor_exp
from gateway.dphmm.tables import TableError, build_table, check_table
from tests.support.dphmm_cases import GRAPH, VALUES, grid, states

LINE = lattice(range(6))
ROUND = np.roll(np.eye(6), 1, axis=1)


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


@pytest.mark.parametrize("seed", range(30))
def test_the_schedule_is_the_support_that_an_exact_filter_finds(seed: int) -> None:
    """The filter's belief is unnormalised, in whole numbers: weights of steps times weights of certified tables."""
    generator = np.random.default_rng(seed)
    count = int(generator.integers(4, 8))
    transition = random_chain(generator, count, 1 + seed % 4)
    values = lattice(generator.permutation(12)[:count])
    start = int(generator.integers(count))
    graph = random_graph(generator, count, 0.4)
    progress = Progress(values, graph, transition, np.arange(count) == start, epsilon=2)
    steps = [[int(weight) for weight in row] for row in transition]
    belief, state = [int(x == start) for x in range(count)], start
    for tick in range(min(40, len(progress.schedule.constraints) + 2 * progress.schedule.period)):
        step = progress.at(tick)
        assert [weight > 0 for weight in belief] == step.reachable.tolist()
        weights = progress.table(step).weights
        output = int(generator.choice(weights.shape[1], p=weights[state] / 2**32))
        seen = [weight * int(row[output]) for weight, row in zip(belief, weights, strict=True)]
        belief = [sum(seen[x] * steps[x][y] for x in range(count)) for y in range(count)]
        state = int(generator.choice(count, p=transition[state] / transition[state].sum()))
        assert belief[state] > 0


def test_a_periodic_stream_comes_back_to_the_same_steps_and_tables() -> None:
    progress = Progress(LINE, complete(6), ROUND, states(6, 1, 3), epsilon=1)
    assert (progress.schedule.start, progress.schedule.period) == (0, 6)
    for tick in range(6):
        assert progress.at(tick) is progress.at(tick + 6) is progress.at(tick + 6 * 10**12)
        assert progress.table(progress.at(tick)) is progress.table(progress.at(tick + 6))
    assert len({progress.at(tick).key for tick in range(12)}) == 6


def test_what_was_used_longest_ago_is_worked_out_again() -> None:
    progress = Progress(LINE, complete(6), ROUND, states(6, 1, 3), epsilon=1, remembered=2)
    first, second = progress.at(0), progress.at(1)
    assert progress.at(0) is first
    progress.at(2)
    assert progress.at(0) is first
    assert progress.at(1) is not second
    assert progress.at(1).key == second.key


def test_equal_belief_sets_give_the_same_step_and_table() -> None:
    progress = Progress(LINE, complete(6), np.ones((6, 6)), states(6), epsilon=1, delta=0.2)
    first = progress.at(0, [0.05, 0.3, 0.3, 0.25, 0.05, 0.05])
    assert np.flatnonzero(first.kept).tolist() == [1, 2, 3]
    assert progress.at(7, [0.06, 0.4, 0.2, 0.2, 0.04, 0.1]) is first
    other = progress.at(8, [0.0, 0.3, 0.3, 0.3, 0.1, 0.0])
    assert other is first
    assert progress.table(other) is progress.table(first)


def test_different_reachable_sets_share_a_table_if_kept_states_and_hull_are_equal() -> None:
    """Of 0 - 1 - 2 - 3 the first three are kept; state 3 is answered for by 2, and adds no difference of its own."""
    path = explicit(4, [(0, 1), (1, 2), (2, 3)])
    steps = np.array([[1, 1, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])
    progress = Progress(LINE[:4], path, steps, states(4, 1, 2, 3), epsilon=1, delta=0.1)
    near, far = progress.at(0, [0.4, 0.3, 0.3, 0.0]), progress.at(1, [0.3, 0.3, 0.35, 0.05])
    assert near is not far
    assert near.key == far.key
    assert progress.table(near) is progress.table(far)
    assert (near.degrees.tolist(), far.degrees.tolist()) == ([2, 3, 2, 0], [2, 4, 3, 3])


def test_an_edge_to_a_state_left_out_is_kept_by_its_surrogate() -> None:
    """On a line 0 - 1 - 2 - 3 with 0 and 3 kept, 1 draws from the row of 0 and 2 from that of 3."""
    path = explicit(6, [(0, 1), (1, 2), (2, 3)])
    kept, reachable = states(6, 1, 4), states(6, 1, 2, 3, 4)
    assert edge_list(surrogate_graph(LINE, path, reachable, kept)) == [(0, 3)]
    assert edge_list(surrogate_graph(LINE, path, states(6, 1, 2, 4), kept)) == []
    found = protect_kept(LINE, path, reachable, kept)
    assert found.hull.vertices.tolist() == [[-3], [3]]
    naive = build_table(graph_hull(LINE, explicit(6, [(0, 1)])), LINE, kept, 1)
    with pytest.raises(TableError, match="tells state 1 from state 2"):
        check_table(naive.weights, restrict(path, reachable), 1)


@pytest.mark.parametrize("seed", range(40))
def test_a_table_for_a_delta_set_keeps_every_promise_on_all_reachable_states(seed: int) -> None:
    generator = np.random.default_rng(seed)
    count = int(generator.integers(4, 11))
    space = 1 + seed % 2
    values = lattice(generator.integers(0, 5, (count, space)))
    graph = random_graph(generator, count, (0.1, 0.3, 0.7)[seed % 3])
    reachable = generator.random(count) < 0.8
    reachable[:2] = True
    belief = generator.dirichlet(np.full(count, 0.5)) * reachable
    progress = Progress(values, graph, np.ones((count, count)), reachable, epsilon=1, delta=0.3)
    step = progress.at(0, belief / belief.sum())
    table = progress.table(step)
    check_table(table.weights, restrict(graph, reachable), 1)
    inside = np.flatnonzero(reachable).tolist()
    for state in inside:
        assert any(close(table.weights, state, other) for other in inside if other != state)
    if step.key != FALLBACK:
        assert step.exposed == []
        assert step.degrees.tolist() == brute_degrees(step, values)
        rows = surrogates(values, step.kept)
        assert all(step.kept[[i, j]].all() for i, j in edge_list(step.protection.graph))
        assert step.protection.factor < math.inf
        assert all(np.array_equal(table.weights[x], table.weights[rows[x]]) for x in inside)


def close(weights: Ints, i: int, j: int) -> bool:
    bound = floor_exp(1)
    pairs = list(zip(weights[i].tolist(), weights[j].tolist(), strict=True))
    return all(a << RATIO_BITS <= bound * b and b << RATIO_BITS <= bound * a for a, b in pairs)


def brute_degrees(step: Step, values: Ints) -> list[int]:
    rows = values[surrogates(values, step.kept)].tolist()
    inside = np.flatnonzero(step.reachable).tolist()
    hull = step.protection.hull
    counts = [0] * len(values)
    for i in inside:
        counts[i] = sum(gauge(hull, [a - b for a, b in zip(rows[i], rows[j], strict=True)]) <= 1 for j in inside)
    return counts


@pytest.mark.parametrize("seed", range(10))
def test_the_surrogate_graph_joins_the_rows_of_every_edge(seed: int) -> None:
    generator = np.random.default_rng(seed)
    values, graph = lattice(generator.integers(0, 9, (12, 2))), random_graph(generator, 12, 0.3)
    reachable = generator.random(12) < 0.8
    kept = reachable & (generator.random(12) < 0.5)
    kept[int(np.argmax(reachable))] = True
    rows = surrogates(values, kept)
    pairs = {tuple(sorted((int(rows[i]), int(rows[j])))) for i, j in edge_list(restrict(graph, reachable))}
    assert edge_list(surrogate_graph(values, graph, reachable, kept)) == sorted(
        pair for pair in pairs if len({*pair}) > 1
    )


@pytest.mark.parametrize("seed", range(60))
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
        plain, found = protect(VALUES, GRAPH, constraint), protect_kept(VALUES, GRAPH, constraint, constraint)
        assert (found.added, found.factor) == (plain.added, plain.factor)
        assert np.array_equal(found.graph, plain.graph)
        assert np.array_equal(found.hull.vertices, plain.hull.vertices)


def test_states_that_share_a_row_protect_one_another_and_edges_join_kept_states() -> None:
    """States 0 and 5 are kept, 1 is answered for by 0: only 5 is alone, and its partner is 0, not 1."""
    found = protect_kept(LINE, explicit(6, []), states(6, 1, 2, 6), states(6, 1, 6))
    assert found.added == ((5, 0),)
    shared = protect_kept(LINE, explicit(6, []), states(6, 1, 2, 5, 6), states(6, 1, 6))
    assert (shared.added, shared.capped, shared.factor) == ((), True, 4)


@pytest.mark.parametrize("objective", ["error", "nearest"])
def test_a_step_on_a_grid_has_a_finite_factor_and_no_exposed_state(objective: str) -> None:
    walk = (np.abs(grid(5)[:, None] - grid(5)[None]).sum(axis=2) <= 1).astype(float)
    progress = Progress(grid(5), explicit(25, [(0, 1)]), walk, states(25, 13), epsilon=1, objective=objective)  # type: ignore[arg-type]
    assert progress.at(0).key == FALLBACK
    assert progress.at(0).exposed == [12]
    for tick in range(1, len(progress.schedule.constraints)):
        step = progress.at(tick)
        assert (step.exposed, step.protection.factor < math.inf) == ([], True)
        assert step.protection.exposed == ()


def test_one_kept_state_would_say_nothing_and_takes_the_fallback() -> None:
    progress = Progress(LINE, complete(6), np.ones((6, 6)), states(6), epsilon=1, delta=0.5)
    step = progress.at(0, [0.9, 0.1, 0.0, 0.0, 0.0, 0.0])
    assert (step.key, step.exposed) == (FALLBACK, [])
    check_table(progress.table(step).weights, complete(6), 1)


def test_refusals() -> None:
    with pytest.raises(GraphError, match="6 measurements need"):
        Progress(LINE, complete(5), ROUND, states(6), epsilon=1)
    with pytest.raises(GraphError, match="delta must be"):
        Progress(LINE, complete(6), ROUND, states(6), epsilon=1, delta=1.0)
    with pytest.raises(GraphError, match="at least one step"):
        Progress(LINE, complete(6), ROUND, states(6), epsilon=1, remembered=0)
    progress = Progress(LINE, complete(6), ROUND, states(6, 1), epsilon=1)
    with pytest.raises(GraphError, match="for nothing else"):
        progress.at(0, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    careful = Progress(LINE, complete(6), ROUND, states(6, 1), epsilon=1, delta=0.1)
    with pytest.raises(GraphError, match="a belief is needed"):
        careful.at(0)
    with pytest.raises(GraphError, match="keeps at least one state"):
        careful.at(0, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    with pytest.raises(GraphError, match="only states that are possible"):
        protect_kept(LINE, complete(6), states(6, 1, 2), states(6, 3))
