"""Composition: per pair, per tick, per sequence, and the epsilon of a stream, against every sequence of outputs."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from fugu.contract.measurement import Measurement
from fugu.places.composition import accepted_loss, any_pair_loss, stream_loss
from fugu.places.graphs import GraphError, complete, lattice
from fugu.places.hull import difference_hull, graph_hull
from fugu.places.protection import protect
from fugu.places.tables import build_table, table_loss
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.inner_maximum import close_bounds, exact_step
from fugu.privacy.accountant.walks import endless_bound, local_step
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from papers.composition import joint_loss, sequence_epsilon, staircase_loss, trajectory_loss
from papers.graphs import explicit, one_step, within_radius
from papers.walks import fallback_table
from tests.support.dphmm_cases import GOLDEN, GRAPH, VALUES, grid, states, strict_epsilon
from tests.support.oracle import worst_loss
from tests.support.proofs import check_printed

HULL = graph_hull(VALUES, GRAPH)
ADVERSARIES: tuple[Any, ...] = ("ignorant", "informed", "universal")


def stationary(transition: np.ndarray) -> np.ndarray:
    return np.asarray(MarkovChain.stationary(transition).initial)


def true_losses(initial: np.ndarray, transition: np.ndarray, tables: list[np.ndarray]) -> float:
    """The largest |log Pr(outputs | X_t = x) / Pr(outputs | X_t = x')| over all outputs, ticks and pairs of states."""
    count, worst = len(initial), 0.0
    paths = np.array(list(product(range(count), repeat=len(tables))))
    distribution = initial[paths[:, 0]].copy()
    for here, there in zip(paths.T[:-1], paths.T[1:], strict=True):
        distribution *= transition[here, there]
    for outputs in product(*(range(table.shape[1]) for table in tables)):
        joint = distribution.copy()
        for tick, z in enumerate(outputs):
            joint *= tables[tick][paths[:, tick], z]
        for tick in range(len(tables)):
            above = np.bincount(paths[:, tick], joint, count) / np.bincount(paths[:, tick], distribution, count)
            worst = max(worst, float(np.log(above.max() / above.min())))
    return worst


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_stream_never_loses_more_than_its_bound(seed: int, adversary: Any) -> None:
    """Random chains and random pairs of tables, either of them at any tick; every sequence of outputs."""
    generator = np.random.default_rng(seed)
    count, ticks = 2 + seed % 2, 5 - seed % 2
    transition = generator.dirichlet(np.full(count, (0.3, 2.0)[seed // 2 % 2]), count) * 0.98 + 0.02 / count
    pool = [generator.dirichlet(np.ones(2 + seed % 2), count) * 0.9 + 0.1 / (2 + seed % 2) for _ in range(2)]
    losses = [table_loss(table) for table in pool]
    start = stationary(transition)
    bound = stream_loss(losses, "stationary", transition, adversary)
    ended = stream_loss(losses, "stationary", transition, adversary, ticks)
    for use in ([0] * ticks, [1] * ticks, generator.integers(0, 2, ticks).tolist()):
        truth = true_losses(start, transition, [pool[index] for index in use])
        assert truth <= ended.epsilon + 1e-9
        assert truth <= bound.epsilon + 1e-9
    assert bound.adversary == adversary


@pytest.mark.parametrize("seed", range(4))
def test_a_start_that_is_given_is_accounted_for(seed: int) -> None:
    generator = np.random.default_rng(100 + seed)
    transition = generator.dirichlet(np.ones(3), 3) * 0.9 + 0.1 / 3
    start, table = generator.dirichlet(np.ones(3)), generator.dirichlet(np.ones(2), 3) * 0.9 + 0.05
    truth = true_losses(start, transition, [table] * 5)
    assert truth <= stream_loss([table_loss(table)], start, transition, length=5).epsilon + 1e-9
    assert truth <= stream_loss([table_loss(table)], None, transition, length=5).epsilon + 1e-9


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_an_endless_stream_from_any_start_covers_every_start(seed: int) -> None:
    """Chains with steps that cannot be, and starts in one state: what the past tells is bounded by powers of P."""
    generator = np.random.default_rng(300 + seed)
    transition = np.array([[0.5, 0.5, 0.0], [0.2, 0.5, 0.3], [0.0, 0.4, 0.6]])
    if seed % 2:
        transition = generator.dirichlet(np.full(3, 0.4), 3)
        transition[0, 2] = transition[2, 0] = 0.0
        transition += 0.02 * (np.eye(3) + np.eye(3, k=1) + np.eye(3, k=-1))
        transition /= transition.sum(axis=1, keepdims=True)
    table = generator.dirichlet(np.ones(2), 3) * 0.7 + 0.15
    loss = table_loss(table)
    any_start = {adversary: stream_loss([loss], None, transition, adversary) for adversary in ADVERSARIES[:2]}
    assert all(math.isfinite(loss.epsilon) for loss in any_start.values())
    assert any_start["ignorant"].epsilon >= stream_loss([loss], "stationary", transition).epsilon * (1 - 1e-9)
    for start in (*np.eye(3), np.full(3, 1 / 3), generator.dirichlet(np.full(3, 0.2)), np.array([1 - 1e-7, 1e-7, 0.0])):
        for adversary, ticks in (("ignorant", 6), ("informed", 4)):
            truth = worst_loss(start, [transition] * (ticks - 1), table, informed=adversary == "informed").max()
            assert truth <= any_start[adversary].epsilon + 1e-9


def test_what_a_device_accepts_is_the_loss_of_the_worst_table() -> None:
    """Two edges apart is two epsilon; what nothing joins, the factor; a set that leaves the middle out, the factor."""
    fields: dict[str, Any] = {"coordinates": ((0,), (1,), (2,), (3,)), "epsilon": 0.5, "factor": 3}
    chain = (0b0111, 0b0111, 0b0111, 0b1111)
    measurement = Measurement(neighbours=(0b0010, 0b0101, 0b0010, 0), successors=chain, initial=0b0111, **fields)
    loss = accepted_loss(measurement)
    assert loss[:3, :3] == pytest.approx(0.5 * np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]]))
    whole = Measurement(neighbours=(0b0010, 0b0101, 0b0010, 0), successors=chain, initial=0b1101, **fields)
    assert accepted_loss(whole)[0, 2] == accepted_loss(whole)[0, 3] == pytest.approx(1.5)


def test_an_epsilon_per_tick_is_no_epsilon_of_the_stream() -> None:
    """Two states that stay with probability .9: 4.5 times the epsilon of a tick."""
    table = build_table(difference_hull([[1]]), lattice([0, 1]), states(2), 1).weights
    lost = stream_loss([table_loss(table)], "stationary", [[0.9, 0.1], [0.1, 0.9]])
    assert lost.epsilon == pytest.approx(4.499453471015, abs=1e-6)
    # nine ticks of it, every sequence of outputs tried, come close
    truth = true_losses(np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.1, 0.9]]), [table / 2**32] * 9)
    assert 0.9 * lost.epsilon < truth <= lost.epsilon
    check_printed(
        "that is {} at epsilon 1 from a stationary start and {} from any",
        lost.epsilon,
        stream_loss([table_loss(table)], None, [[0.9, 0.1], [0.1, 0.9]]).epsilon,
    )


@pytest.mark.parametrize("stay", ["0.6", "0.8", "0.9", "0.95"])
@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1.0", "2.0"])
def test_golden_leakage_of_two_states(stay: str, epsilon: str) -> None:
    """The past alone, and both sides: the golden fixed points of the temporal leakage recursion."""
    one_side, total = GOLDEN["unsafe"][f"tpl|{stay}|{epsilon}"]
    size, p = float(epsilon), float(stay)
    lost = stream_loss([np.array([[0.0, size], [size, 0.0]])], "stationary", [[p, 1 - p], [1 - p, p]])
    assert lost.epsilon == pytest.approx(total, rel=1e-9)
    assert total == pytest.approx(2.0 * one_side - size, rel=1e-9)


def test_the_largest_table_counts_and_the_fallback_is_one_of_them() -> None:
    """A table that protects s2s3 alone reveals more between others than the fallback, and less between these."""
    protection = protect(VALUES, GRAPH, states(6))
    own = table_loss(build_table(protection.hull, VALUES, states(6), 1).weights)
    fallback = table_loss(fallback_table(VALUES, 1).weights)
    transition = np.full((6, 6), 0.05) + 0.7 * np.eye(6)
    both = stream_loss([own, fallback], "stationary", transition).epsilon
    assert both >= max(stream_loss([loss], "stationary", transition).epsilon for loss in (own, fallback))
    single = ChainAccountant((MarkovChain.stationary(transition),)).loss(np.maximum(own, fallback)).epsilon
    assert both == single


@pytest.mark.long
def test_a_walk_on_a_large_grid_is_accounted_for() -> None:
    """6 x 6 cells, four of five steps impossible: below the accountant's own bound, and above every tick alone."""
    values = grid(6)
    walk = within_radius(values, 1.5) | np.eye(36, dtype=np.bool_)
    transition = walk / walk.sum(axis=1, keepdims=True)
    loss = table_loss(build_table(graph_hull(values, within_radius(values, 1.5)), values, states(36), 1).weights)
    lost = stream_loss([loss], "stationary", transition)
    assert lost.bound == "local linear programmes"
    check_printed("with edges between these, it is {} for one table", lost.epsilon)
    assert loss.max() < lost.epsilon < ChainAccountant((MarkovChain.stationary(transition),)).loss(loss).epsilon
    informed = stream_loss([loss], "stationary", transition, "informed")
    assert informed.epsilon >= lost.epsilon
    short = stream_loss([loss], "stationary", transition, length=2).epsilon
    assert short <= 2.0 * loss.max() + 1e-9


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_local_bound_is_above_every_sequence_of_outputs(seed: int) -> None:
    """Three states that move to a neighbour only; and one step against the programme over all columns at once."""
    generator = np.random.default_rng(seed)
    ring = np.eye(3) + np.roll(np.eye(3), 1, axis=1)
    transition = generator.random((3, 3)) * ring + 0.05 * ring
    transition /= transition.sum(axis=1, keepdims=True)
    table = generator.dirichlet(np.ones(2), 3) * 0.9 + 0.05
    chain = MarkovChain.stationary(transition)
    bound = endless_bound(chain, table_loss(table), "ignorant")
    assert chain.initial is not None
    assert true_losses(chain.initial, transition, [table] * 6) <= bound + 1e-9
    best = ChainAccountant((chain,)).loss(table_loss(table)).epsilon
    assert bound <= 1.1 * best + 1e-2  # it can be less: quilts cut off every step, not the first alone
    full, near = generator.dirichlet(np.ones(3), 3), close_bounds(table_loss(table))
    exact = exact_step(full, near, np.full((3, 3), 50.0) * (1 - np.eye(3)))
    assert local_step(full, near) == pytest.approx(exact, abs=1e-9)


@pytest.mark.long
def test_chains_that_the_local_bound_leaves_to_others() -> None:
    dying = np.eye(14)
    dying[:, 0] = 1.0
    dying[0] = np.eye(14)[0]
    dying /= dying.sum(axis=1, keepdims=True)
    assert endless_bound(MarkovChain.stationary(dying), np.ones((14, 14)), "ignorant") is None
    cycle = np.roll(np.eye(14), 1, axis=1)
    assert endless_bound(MarkovChain.stationary(cycle), 9.0 * complete(14), "ignorant") is None
    assert stream_loss([complete(14) * 1.0], "stationary", cycle, "universal").epsilon == math.inf


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_theorem_6_3_needs_whole_steps_for_staircases_and_tables(epsilon: float) -> None:
    """Two states at gauge 1/2 are a full step apart: epsilon * gauge would be too little."""
    loss = table_loss(build_table(HULL, VALUES, states(6), epsilon).weights)
    steps = staircase_loss(HULL, VALUES, epsilon)
    assert np.all(loss <= steps + 1e-9)
    gauges = np.array([[float(HULL.gauge((a - b).tolist())) for b in VALUES] for a in VALUES])
    assert np.any(loss > epsilon * gauges + 0.1)
    size = HULL.largest_gauge(VALUES)
    assert loss.max() <= any_pair_loss(epsilon, math.ceil(size))
    assert 1.5 <= any_pair_loss(1.0, Fraction(3, 2)) < 1.5 + 1e-9


def test_what_a_flat_hull_reveals_has_no_bound() -> None:
    flat = graph_hull(VALUES, explicit(6, [(1, 2)]))
    assert staircase_loss(flat, VALUES, 1.0)[0, 2] == math.inf
    assert any_pair_loss(1.0, math.inf) == math.inf
    with pytest.raises(GraphError, match="for certain"):
        stream_loss([staircase_loss(flat, VALUES, 1.0)], "stationary", np.full((6, 6), 1 / 6))


def test_the_strict_definition_asks_for_one_partner() -> None:
    loss = np.array([[0.0, 1.0, 3.0], [2.0, 0.0, 0.5], [3.0, 0.5, 0.0]])
    assert strict_epsilon(loss, states(3)) == 2.0
    assert strict_epsilon(loss, states(3, 2, 3)) == 0.5
    assert strict_epsilon(joint_loss([loss, loss]), states(3)) == pytest.approx(4.0, rel=1e-11)


def test_golden_composition_over_ticks() -> None:
    """The forward example: four ticks at epsilon 1, factors 2; two trajectories reach the sum."""
    golden = GOLDEN["forward_example"]
    hulls = [protect(VALUES, GRAPH, states(6, *step["C"])) for step in golden["steps"]]
    total = sequence_epsilon([golden["eps"]] * 4, [hull.factor for hull in hulls])
    assert total == pytest.approx(golden["thm72"], rel=1e-9)
    losses, pairs = [], []
    for step, hull in zip(golden["steps"], hulls, strict=True):
        losses.append(staircase_loss(hull.hull, VALUES, golden["eps"]))
        inside = [state - 1 for state in step["C"]]
        pairs.append(max(((i, k) for i in inside for k in inside), key=lambda pair: losses[-1][pair]))
    first, second = zip(*pairs, strict=True)
    assert trajectory_loss(losses, first, second) == pytest.approx(golden["exact_pair_loss"], rel=1e-9)
    matrix = np.array(golden["M"]) > 0
    hull = sorted([i + 1, k + 1] for i, k in np.argwhere(np.triu(one_step(matrix), 1)).tolist())
    assert hull == golden["G_trs_edges"]


def test_the_loss_along_fixed_trajectories_is_exact() -> None:
    generator = np.random.default_rng(3)
    tables = [generator.dirichlet(np.ones(3), 3) for _ in range(4)]
    first, second = [0, 1, 2, 1], [2, 2, 0, 1]
    worst = max(
        sum(math.log(table[i, z] / table[k, z]) for table, i, k, z in zip(tables, first, second, outputs, strict=True))
        for outputs in product(range(3), repeat=4)
    )
    assert trajectory_loss([table_loss(table) for table in tables], first, second) == pytest.approx(worst, abs=1e-9)
    with pytest.raises(ValueError, match=r"shorter|longer"):
        trajectory_loss([table_loss(table) for table in tables], first, second[:3])


def test_streams_that_cannot_be_accounted_for() -> None:
    with pytest.raises(GraphError, match="fallback included"):
        stream_loss([], "stationary", np.eye(2))
    with pytest.raises(ChainClassError, match="must sum to 1"):
        stream_loss([np.zeros((2, 2))], [0.5, 0.6], np.full((2, 2), 0.5))


def test_powers_are_those_of_the_staircase() -> None:
    steps = staircase_loss(HULL, VALUES, 1.0)
    for i in range(6):
        assert steps[i] == pytest.approx(HULL.ceil_gauges(VALUES - VALUES[i]).astype(float), rel=1e-11)
