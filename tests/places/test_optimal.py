"""Optimal tables: the golden optima, the strict definition by brute force, and what keeps states of C together."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog

from fugu.chains.arrays import Bools, Ints
from fugu.places.graphs import GraphError, complete, lattice
from fugu.places.hull import graph_hull
from fugu.places.noise import floor_exp
from fugu.places.optimal import optimal_table
from fugu.places.protection import protect, protected_pairs
from fugu.places.tables import TableError, build_table, check_table, table_loss
from papers.graphs import one_step, within_radius
from tests.support.dphmm_cases import (
    GOLDEN,
    GRAPH,
    OBJECTIVES,
    VALUES,
    close,
    estimate_error,
    grid,
    random_case,
    states,
)

HULL = graph_hull(VALUES, GRAPH)
NAMES = {"8nbr": "G_util r=1.5 (8-nbr)", "trs": "G_trs (k=9 -> 5x5)", "cplt": "G_cplt"}
ROOM = grid(6)
WALK = within_radius(ROOM, 1.5) | np.eye(36, dtype=np.bool_)
PRIOR = WALK.sum(axis=1) / WALK.sum()


@pytest.mark.long
@pytest.mark.parametrize(("name", "epsilon"), [("8nbr", 0.5), ("trs", 1.0), ("cplt", 2.0)])
def test_golden_optima_survive_certification(name: str, epsilon: float) -> None:
    """The solver's optimum, and the certified one of another builder, on a grid of 6 x 6 cells."""
    raw = GOLDEN["mechanisms_6x6"][f"6|{NAMES[name]}|{epsilon}"]["lp_edges_raw"]
    fine = GOLDEN["lp_fine_outputs"][f"6|1|{name}|{epsilon}"]
    certified = GOLDEN["cem_rounding"][f"LPcert|{name}|{epsilon}|32"]
    assert raw == pytest.approx(fine[0], rel=1e-9) == certified["lp"]
    graphs = {"8nbr": within_radius(ROOM, 1.5), "trs": one_step(WALK), "cplt": complete(36)}
    hull = graph_hull(ROOM, graphs[name])
    table = optimal_table(hull, ROOM, states(36), epsilon, prior=PRIOR)
    ours, remapped = (math.sqrt(error) for error in estimate_error(table, ROOM, PRIOR))
    assert raw * (1.0 - 1e-9) < ours < raw * (1.0 + 1e-6)
    assert ours == pytest.approx(certified["cert"], rel=1e-6)
    assert remapped <= fine[1] * (1.0 + 2e-3)  # several optima, with different posterior means
    assert table.share < 1e-6
    own = build_table(hull, ROOM, states(36), epsilon)
    assert ours < math.sqrt(estimate_error(own, ROOM, PRIOR)[0])


@pytest.mark.soak
def test_a_golden_optimum_of_a_hundred_states() -> None:
    """All pairs of 10 x 10 cells: 990 000 constraints pair by pair, 20 000 with the clique's least cell."""
    epsilon = 0.5
    values = grid(10)
    walk = within_radius(values, 1.5) | np.eye(100, dtype=np.bool_)
    prior = walk.sum(axis=1) / walk.sum()
    golden = GOLDEN["mechanisms_10x10"][f"10|G_cplt|{epsilon}"]["lp_edges_raw"]
    table = optimal_table(graph_hull(values, complete(100)), values, states(100), epsilon, prior=prior)
    assert golden * (1.0 - 1e-9) < math.sqrt(estimate_error(table, values, prior)[0]) < golden * (1.0 + 1e-6)


def optimum(values: Ints, pairs: Bools, epsilon: float) -> float:
    """The same programme written out pair by pair, for a uniform prior: the oracle."""
    count, ratio = len(values), math.exp(epsilon)
    rows = []
    for i, j in np.argwhere(pairs):
        for z in range(count):
            row = np.zeros((count, count))
            row[i, z], row[j, z] = 1.0, -ratio
            rows.append(row.ravel())
    costs = np.sum((values[:, None] - values[None]) ** 2, axis=2) / count
    sums = np.kron(np.eye(count), np.ones(count))
    solution = linprog(costs.ravel(), A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=sums, b_eq=np.ones(count))
    return float(solution.fun)


@pytest.mark.parametrize("seed", range(6))
def test_against_the_programme_pair_by_pair(seed: int) -> None:
    """Random states, equal ones among them, and a connected graph whose hull protects just what the graph says."""
    generator = np.random.default_rng(seed)
    values = lattice(generator.integers(0, 5, (8, 2)))
    graph = complete(8) if seed % 2 else within_radius(values, 3)
    protection = protect(values, graph, states(8))
    pairs = protected_pairs(protection.hull, values, states(8))
    table = optimal_table(protection.hull, values, states(8), 1)
    raw, _ = estimate_error(table, values)
    assert optimum(values, pairs, 1.0) * (1.0 - 1e-7) <= raw
    if len(np.unique(values, axis=0)) and protection.factor <= 1:
        assert raw == pytest.approx(optimum(values, pairs, 1.0), rel=1e-6)


@pytest.mark.parametrize("seed", range(24))
def test_no_output_of_an_optimal_table_separates_a_protected_pair(seed: int) -> None:
    """Definition 4.4, strict, by brute force; theorem 6.3 for all others; and one weight beyond is refused."""
    values, graph, constraint = random_case(seed)
    epsilon = (0.3, 1.0, 2.5)[seed % 3]
    protection = protect(values, graph, constraint, objective=OBJECTIVES[seed // 3 % 3])
    if protection.hull.rank == 0:
        with pytest.raises(TableError, match="fallback"):
            optimal_table(protection.hull, values, constraint, epsilon)
        return
    table = optimal_table(protection.hull, values, constraint, epsilon)
    inside = np.flatnonzero(constraint).tolist()
    for state in inside:
        partners = [k for k in inside if k != state and close(table, state, k, floor_exp(epsilon))]
        assert partners, "the same other state for every output"
        for neighbour in np.flatnonzero(protection.graph[state]).tolist():
            assert neighbour in partners
    loss = table_loss(table.weights)
    for i, k in combinations(inside, 2):
        power = int(protection.hull.ceil_gauges((values[i] - values[k])[None, :])[0])
        assert max(loss[i, k], loss[k, i]) <= min(epsilon * power, 20.0) + 1e-9
    pairs = protected_pairs(protection.hull, values, constraint)
    check_table(table.weights, pairs, epsilon)
    refused = 0
    for i, k in np.argwhere(pairs):
        z = int(np.argmax(table.weights[i] / table.weights[k]))
        most = floor_exp(epsilon) * int(table.weights[k, z]) // 2**24
        changed = table.weights.copy()
        richest = int(np.argmax(np.where(np.arange(changed.shape[1]) == z, 0, changed[i])))
        changed[i, richest] -= most + 1 - changed[i, z]
        changed[i, z] = most + 1
        if changed.shape[1] > 1 and changed[i, richest] >= 1:
            refused += 1
            with pytest.raises(TableError, match="further apart"):
                check_table(changed, pairs, epsilon)
    assert refused or table.weights.shape[1] == 1


def test_protected_pairs_alone_would_reveal_the_component() -> None:
    """C = {s1, s2, s3, s4} capped at 4: s1s4 and s2s3 are the pairs, and nothing joins them but theorem 6.3."""
    constraint = states(6, 1, 2, 3, 4)
    protection = protect(VALUES, GRAPH, constraint)
    assert protection.is_capped
    table = optimal_table(protection.hull, VALUES, constraint, 1)
    loss = table_loss(table.weights)[np.ix_(constraint, constraint)]
    assert 1.0 < loss.max() <= 4.0 + 1e-9


def test_states_outside_use_the_row_of_their_surrogate_and_the_prior_counts_them() -> None:
    constraint = states(6, 1, 2, 4)
    protection = protect(VALUES, GRAPH, constraint)
    table = optimal_table(protection.hull, VALUES, constraint, 1)
    assert table.weights[[2, 4, 5]].tolist() == table.weights[[1, 1, 1]].tolist()
    prior = np.full(6, 1 / 6)
    better = optimal_table(protection.hull, VALUES, constraint, 1, prior=prior)
    assert estimate_error(better, VALUES, prior)[0] < estimate_error(table, VALUES, prior)[0]


def test_equal_measurements_share_a_row() -> None:
    values = lattice([(0, 0), (1, 0), (1, 0), (2, 1)])
    table = optimal_table(graph_hull(values, complete(4)), values, states(4), 1)
    assert table.weights[1].tolist() == table.weights[2].tolist()
    assert len(table.outputs) <= 3


def test_optimal_tables_that_cannot_be() -> None:
    with pytest.raises(TableError, match="at most 100 states"):
        optimal_table(graph_hull(grid(11), complete(121)), grid(11), states(121), 1)
    with pytest.raises(TableError, match="fallback"):
        optimal_table(HULL, VALUES, states(6, 2), 1)
    flat = protect(VALUES, GRAPH, states(6, 1, 2, 3, 4), cap=None)
    with pytest.raises(TableError, match="cap it first"):
        optimal_table(flat.hull, VALUES, states(6, 1, 2, 3, 4), 1)
    for prior in ([0.5, 0.5], [1.5, -0.5, 0, 0, 0, 0], [0.1] * 6):
        with pytest.raises(TableError, match="6 probabilities"):
            optimal_table(HULL, VALUES, states(6), 1, prior=prior)
    with pytest.raises(GraphError, match="epsilon"):
        optimal_table(HULL, VALUES, states(6), 0)


@pytest.mark.long
def test_the_solver_stops_at_its_limit() -> None:
    """One of these is over after the solver's first phase and before its end, at any speed of the machine."""
    hull = graph_hull(grid(10), within_radius(grid(10), 1.5))
    reasons = []
    for limit in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
        try:
            optimal_table(hull, grid(10), states(100), 1, seconds=limit)
        except TableError as error:
            reasons.append(str(error))
            break
    assert reasons == [f"no optimal table within {limit:g} seconds: allow more time, or build one from the hull"]
