"""Certified tables: the boundary of the check, golden tables and errors, fallbacks; definition 4.4 by brute force."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fugu.contract.noise_table import SCALE
from fugu.places.graphs import GraphError, complete, lattice, restrict
from fugu.places.hull import difference_hull, graph_hull
from fugu.places.noise import floor_exp
from fugu.places.protection import Protection, degree_of_protection, protect, protected_pairs
from fugu.places.tables import (
    TableError,
    TableWeights,
    build_table,
    certify,
    check_table,
    clamped_mass,
    output_box,
    table_loss,
)
from papers.graphs import one_step, within_radius
from papers.walks import fallback_table
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
EVERY = states(6)
GOLDEN_TABLE = np.array(GOLDEN["cem6"]["W"])


def test_the_golden_table_passes_and_has_the_golden_figures() -> None:
    golden = GOLDEN["cem6"]
    pairs = protected_pairs(HULL, VALUES, EVERY)
    check_table(GOLDEN_TABLE, pairs, 1)
    assert floor_exp(1) == golden["E_q24_eps1"]
    loss = table_loss(GOLDEN_TABLE)
    assert loss[pairs].max() == pytest.approx(golden["worst_protected_logratio"], abs=1e-9)
    assert loss.max() == pytest.approx(golden["all_pairs_logratio"], abs=1e-9)
    outputs = lattice([(x, y) for y in range(3) for x in range(5)])
    raw, _ = estimate_error(TableWeights(GOLDEN_TABLE, outputs, 0.0), VALUES)
    assert math.sqrt(raw) == pytest.approx(golden["rmse_uniform_prior"], abs=1e-9)


def test_our_table_is_as_good_as_the_golden_one() -> None:
    table = build_table(HULL, VALUES, EVERY, 1)
    raw, _ = estimate_error(table, VALUES)
    assert math.sqrt(raw) <= GOLDEN["cem6"]["rmse_uniform_prior"]
    reordered = GOLDEN_TABLE.reshape(6, 3, 5).transpose(0, 2, 1).reshape(6, 15)
    assert table.weights == pytest.approx(reordered, rel=2e-5)


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1", "2"])
def test_golden_randomised_response_is_at_the_boundary(epsilon: str) -> None:
    """Both rows can be made a unit more distinct only beyond the bound, or nearly so."""
    table = np.array(GOLDEN["rr2_T32"][epsilon])
    check_table(table, complete(2), Fraction(epsilon))
    sharper = table + 300 * np.array([[1, -1], [-1, 1]])
    with pytest.raises(TableError, match="further apart"):
        check_table(sharper, complete(2), Fraction(epsilon))
    ours = build_table(difference_hull([[1]]), lattice([0, 1]), states(2), Fraction(epsilon))
    assert ours.weights == pytest.approx(table, rel=1e-6)


def test_a_weight_beyond_the_bound_is_refused_and_one_at_it_is_taken() -> None:
    """The row sum is kept by a cell that no bound comes near."""
    table = np.array([[SCALE - SCALE // 4, SCALE // 8, SCALE // 8]] * 2)
    most = floor_exp(1) * int(table[1, 1]) // 2**24
    for weight, good in ((most, True), (most + 1, False)):
        changed = table.copy()
        changed[0, 1] = weight
        changed[0, 0] -= weight - table[0, 1]
        assert changed[0, 0] > table[0, 0] / 2
        if good:
            check_table(changed, complete(2), 1)
            check_table(changed[::-1], complete(2), 1)
        else:
            with pytest.raises(TableError, match="output 1 tells state 0 from state 1"):
                check_table(changed, complete(2), 1)
            with pytest.raises(TableError, match="output 1 tells state 1 from state 0"):
                check_table(changed[::-1], complete(2), 1)
            check_table(changed, np.zeros((2, 2), dtype=np.bool_), 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([[0, 0, 1], [0, 0, 0]], "sum to 4294967297"),
        ([[0, 0, 0], [0, -1, 0]], "state 1 sum to 4294967295"),
        ([[1, 0, -1], [0, 0, 0]], "at least 1"),
    ],
)
def test_rows_sum_to_the_scale_and_no_cell_is_empty(change: list[list[int]], message: str) -> None:
    table = np.array([[SCALE - 3, 2, 1], [SCALE - 3, 2, 1]]) + np.array(change)
    with pytest.raises(TableError, match=message):
        check_table(table, complete(2), 20)


def test_a_table_is_a_matrix_of_integers() -> None:
    for table in (np.full((2, 2), SCALE / 2), np.full(2, SCALE // 2), np.full((3, 2), SCALE // 2)):
        with pytest.raises(TableError, match="matrix of integers"):
            check_table(table, complete(2), 1)
    with pytest.raises(GraphError, match="epsilon"):
        check_table(np.full((2, 2), SCALE // 2), complete(2), 0)


def test_the_largest_epsilon_does_not_overflow() -> None:
    e20 = floor_exp(20)
    low = 7
    for high, good in ((e20 * low // 2**24, True), (e20 * low // 2**24 + 1, False)):
        table = np.array([[high, SCALE - high], [low, SCALE - low]])
        table = np.concatenate([table[:, :1], table[:, 1:] // 2, table[:, 1:] - table[:, 1:] // 2], axis=1)
        if good:
            check_table(table, complete(2), 20)
        else:
            with pytest.raises(TableError, match="output 0"):
                check_table(table, complete(2), 20)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("name", ["G_util r=1.5 (8-nbr)", "G_trs (k=9 -> 5x5)", "G_cplt"])
def test_errors_of_clamped_staircases_on_grids(epsilon: float, name: str) -> None:
    """With the stationary distribution of the walk over nine cells as the prior; certification costs below 0.001 %."""
    side = 6
    values = grid(side)
    walk = within_radius(values, 1.5) | np.eye(side * side, dtype=np.bool_)
    graphs = {"G_u": within_radius(values, 1.5), "G_t": one_step(walk), "G_c": complete(side * side)}
    graph = graphs[name[:3].lower().replace("g", "G")]
    prior = walk.sum(axis=1) / walk.sum()
    hull, box = graph_hull(values, graph), output_box(values, 255)
    golden = GOLDEN[f"mechanisms_{side}x{side}"][f"{side}|{name}|{epsilon}"]
    mass = clamped_mass(hull, values, box, math.exp(-epsilon))
    unrounded = TableWeights(mass * SCALE, box.points(), 0.0)
    raw, estimated = (math.sqrt(error) for error in estimate_error(unrounded, values, prior))
    assert raw == pytest.approx(golden["stair_clamp"], rel=1e-9)
    assert estimated == pytest.approx(golden["stair_remap"], rel=1e-9)
    table = build_table(hull, values, states(side * side), epsilon)
    assert math.sqrt(estimate_error(table, values, prior)[0]) == pytest.approx(raw, rel=1e-5)


ROUNDED = {
    name: golden for name, golden in GOLDEN["cem_rounding"].items() if name[:2] in ("6|", "10") and "T2^32" in name
}


@pytest.mark.long
@pytest.mark.parametrize("name", ROUNDED)
def test_golden_costs_of_rounding(name: str) -> None:
    """exp(-epsilon gauge) on the lattice, clamped, then certified over 2^32.

    The hulls are boxes of D by D, so that is a staircase of the unit box with the D-th root of the ratio.
    """
    side, graph, epsilon, _ = name.split("|")
    values, golden, size = grid(int(side)), ROUNDED[name], float(epsilon)
    near = within_radius(values, 1.5)
    walk = near | np.eye(len(values), dtype=np.bool_)
    edges, reach = {"8nbr": (near, 1), "trs": (one_step(walk), 2), "cplt": (complete(len(values)), int(side) - 1)}[
        graph
    ]
    box = output_box(values, 255)
    mass = clamped_mass(graph_hull(values, near), values, box, math.exp(-size / reach))
    pairs = protected_pairs(graph_hull(values, edges), values, states(len(values)))
    weights, share = certify(mass, [(pairs, floor_exp(size))])
    check_table(weights, pairs, size)
    prior = walk.sum(axis=1) / walk.sum()
    errors = [
        math.sqrt(estimate_error(TableWeights(rows, box.points(), share), values, prior)[0])
        for rows in (mass * SCALE, weights)
    ]
    assert errors[0] == pytest.approx(golden["rmse_cont_matrix"], rel=1e-9)
    assert weights.shape == (golden["N"], golden["M"])
    assert errors[1] == pytest.approx(golden["rmse_certified"], rel=1e-5)
    assert table_loss(weights).max() / size == pytest.approx(golden["all_pair_factor"], rel=1e-4)
    assert share <= 1e-4
    if graph == "8nbr":  # gauges are whole, so the staircase is the same
        own = build_table(graph_hull(values, edges), values, states(len(values)), size).weights
        assert own == pytest.approx(weights, rel=1e-3)


def test_states_outside_the_constraint_use_the_row_of_their_surrogate() -> None:
    constraint = states(6, 1, 2, 4)
    protection = protect(VALUES, GRAPH, constraint)
    table = build_table(protection.hull, VALUES, constraint, 1)
    assert table.weights[[2, 4, 5]].tolist() == table.weights[[1, 1, 1]].tolist()
    assert table.outputs.min(axis=0).tolist() == [0, 0]
    assert table.outputs.max(axis=0).tolist() == [2, 1]


@pytest.mark.long
@pytest.mark.parametrize(
    "values",
    [
        VALUES,
        lattice([0, 1000, 5000]),
        lattice([(0, 0), (100, 100), (300, 300)]),
        lattice([(0, 0), (30, 70), (100, 20)]),
        lattice([(0, 0, 0), (1, 2, 3), (4, 0, 1), (2, 2, 2)]),
        lattice([(0, 0, 0), (1, 1, 0), (0, 2, 2)]),
        lattice([(0, 0, 0), (9, 9, 3), (0, 9, 9), (9, 0, 0)]),
        lattice([(5, 0, 0), (55, 50, 0), (5, 70, 70)]),
    ],
    ids=[
        *("example", "wide line", "slanted line", "wide plane", "space", "plane in space", "wide space"),
        "wide plane in space",
    ],
)
def test_the_fallback_protects_every_pair_and_so_every_graph_and_constraint(values: Any) -> None:
    table = fallback_table(values, 1, most_outputs=120)
    check_table(table.weights, complete(len(values)), 1)
    assert table_loss(table.weights).max() <= 1.0
    assert table.weights.shape[1] <= 120
    assert table.share <= 2.0**-10


def test_the_fallback_is_worse_than_the_table_of_the_graph() -> None:
    fallback = estimate_error(fallback_table(VALUES, 1), VALUES)
    own = estimate_error(build_table(HULL, VALUES, EVERY, 1), VALUES)
    assert fallback[0] > own[0]
    assert fallback[1] > own[1]


def test_a_loss_is_rounded_up() -> None:
    table = build_table(HULL, VALUES, EVERY, 1).weights
    loss = table_loss(table)
    for i in range(6):
        assert loss[i, i] == 0.0
        for j in range(6):
            ratio = max(Fraction(int(a), int(b)) for a, b in zip(table[i], table[j], strict=True))
            assert 0.0 <= loss[i, j] - math.log(ratio) < 1e-11 or i == j


def test_tables_that_cannot_be() -> None:
    with pytest.raises(TableError, match="at most 100 states"):
        fallback_table(lattice(range(101)), 1)
    with pytest.raises(TableError, match="fallback"):
        build_table(HULL, VALUES, states(6, 2), 1)
    with pytest.raises(TableError, match="cap it first"):
        build_table(graph_hull(VALUES, GRAPH & False), VALUES, EVERY, 1)
    with pytest.raises(TableError, match="would be exact"):
        fallback_table(lattice([(1, 2), (1, 2)]), 1)
    flat = protect(VALUES, GRAPH, states(6, 1, 2, 3, 4), cap=None)
    with pytest.raises(TableError, match="cap it first"):
        build_table(flat.hull, VALUES, states(6, 1, 2, 3, 4), 1)
    with pytest.raises(GraphError, match="within its span"):
        clamped_mass(difference_hull([[1, 1]]), VALUES, output_box(VALUES, 99), 0.5)


@pytest.mark.long
@pytest.mark.parametrize("seed", sorted({*range(24)} - {4, 15}))
def test_no_output_separates_a_protected_pair(seed: int) -> None:
    values, graph, constraint = random_case(seed)
    epsilon = (0.3, 1.0, 2.5)[seed % 3]
    protection: Protection = protect(values, graph, constraint, objective=OBJECTIVES[seed // 3 % 3])
    states = np.flatnonzero(constraint).tolist()
    for state in states:
        gauges = [protection.hull.gauge((values[state] - values[k]).tolist()) for k in states]
        near = [k for k, size in zip(states, gauges, strict=True) if size <= 1]
        assert degree_of_protection(protection.hull, values, constraint)[state] == len(near) >= 2
    if protection.hull.rank == 0:
        assert len({tuple(values[state]) for state in states}) == 1  # nothing to tell apart
        return
    assert protection.factor < math.inf
    if any(protection.added_edges):
        assert restrict(graph, constraint).sum() < protection.graph.sum()
    table = build_table(protection.hull, values, constraint, epsilon, most_outputs=60)
    bound = floor_exp(epsilon)
    for state in states:
        partners = [k for k in states if k != state and close(table, state, k, bound)]
        assert partners, "the same other state for every output"
        for neighbour in np.flatnonzero(protection.graph[state]).tolist():
            assert neighbour in partners
    check_table(table.weights, protection.graph, epsilon)


@pytest.mark.long
@pytest.mark.parametrize("seed", sorted({*range(24)} - {15}))
def test_theorem_6_3_bounds_what_is_revealed_between_any_two_possible_states(seed: int) -> None:
    """Powers of the staircase are rounded up, so the bound is epsilon times the factor rounded up."""
    values, graph, constraint = random_case(seed)
    protection = protect(values, graph, constraint, cap=Fraction(5, 2))
    if protection.hull.rank == 0:
        return
    assert protection.factor <= Fraction(5, 2) or not protection.is_capped
    table = build_table(protection.hull, values, constraint, 1, most_outputs=60)
    rows = table.weights[constraint].astype(float)
    worst = max(float(np.log(a / b).max()) for a in rows for b in rows)
    assert worst <= math.ceil(protection.factor) + 1e-9
