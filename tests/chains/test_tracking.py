"""Tracking a stream against all paths: tables and transitions that change per tick, gaps, impossible points."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from fugu.chains.arrays import Floats
from fugu.chains.tracking import fixed_lag, follow, moves_of, reachable, smooth_stream
from tests.support import naive_tracking


class Case(NamedTuple):
    distribution: Floats
    steps: list[Floats]
    seen: list[Floats | None]


def case(states: int, ticks: int, seed: int, *, zeros: float = 0.3) -> Case:
    """A random distribution, matrices and likelihoods; some ticks release nothing, and some entries are 0."""
    generator = np.random.default_rng(seed)

    def sparse(*shape: int) -> Floats:
        return generator.random(shape) * (generator.random(shape) >= zeros)

    matrices = []
    for _ in range(ticks - 1):
        matrix = sparse(states, states) + np.roll(np.eye(states), int(generator.integers(states)), axis=1) * 0.1
        matrices.append(matrix / matrix.sum(axis=1, keepdims=True))
    seen = [sparse(states) if generator.random() < 0.8 else None for _ in range(ticks)]
    return Case(generator.dirichlet(np.ones(states)), matrices, seen)


def path_weights(case: Case, until: int, counted: set[int]) -> dict[tuple[int, ...], float]:
    """The weight of every path up to a tick, given what counts."""
    weights = {}
    for path in product(range(len(case.distribution)), repeat=until + 1):
        weight = float(case.distribution[path[0]])
        for tick, state in enumerate(path):
            if tick:
                weight *= float(case.steps[tick - 1][path[tick - 1], state])
            if tick in counted:
                weight *= float(case.seen[tick][state])
        weights[path] = weight
    return weights


def counting(case: Case) -> set[int]:
    """The ticks whose points some path allows that all points before allow."""
    counted: set[int] = set()
    for tick, seen in enumerate(case.seen):
        if seen is not None and sum(path_weights(case, tick, {*counted, tick}).values()) > 0.0:
            counted.add(tick)
    return counted


def by_paths(case: Case, lag: int) -> Floats:
    """The distribution of each tick given what counts up to `lag` ticks later."""
    counted, last = counting(case), len(case.seen) - 1
    rows = np.zeros((last + 1, len(case.distribution)))
    for tick in range(last + 1):
        for path, weight in path_weights(case, min(tick + lag, last), counted).items():
            rows[tick, path[tick]] += weight
    return rows / rows.sum(axis=1, keepdims=True)


CASES = [(states, ticks, seed) for states, ticks in [(1, 4), (2, 6), (3, 5), (4, 4)] for seed in range(3)]


@pytest.mark.long
@pytest.mark.parametrize("shape", CASES)
def test_every_distribution_is_what_all_paths_add_up_to(shape: tuple[int, int, int]) -> None:
    instance = case(*shape)
    moves, kinds = moves_of(instance.steps), np.arange(len(instance.steps))
    followed = follow(instance.distribution, moves, kinds, instance.seen)
    counted, last = counting(instance), len(instance.seen) - 1
    for lag in range(last + 2):
        expected = by_paths(instance, lag)
        assert fixed_lag(followed, moves, kinds, lag) == pytest.approx(expected, abs=1e-12)
        assert fixed_lag(followed, moves, kinds, lag, slice(1, 3)) == pytest.approx(expected[1:3], abs=1e-12)
        if lag == 0:
            assert followed.beliefs == pytest.approx(expected, abs=1e-12)
    before = 1.0
    for tick in range(last + 1):
        total = sum(path_weights(instance, tick, {t for t in counted if t <= tick}).values())
        assert followed.log_likelihoods[tick] == pytest.approx(
            np.log(total / before) if tick in counted else 0, abs=1e-12
        )
        before = total


def test_impossible_points_and_gaps_were_among_the_cases() -> None:
    cases = [case(*shape) for shape in CASES]
    silent = [{tick for tick, seen in enumerate(case.seen) if seen is None} for case in cases]
    assert any(silent)
    assert any(counting(case) | gaps != {*range(len(case.seen))} for case, gaps in zip(cases, silent, strict=True))


def test_states_that_nothing_follows_are_ruled_out_by_going_on() -> None:
    """A row of zeros: whoever was there is gone a tick later, and smoothing knows."""
    matrix = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0], [0.0, 0.3, 0.7]])
    case = Case(np.array([0.2, 0.5, 0.3]), [matrix] * 3, [None] * 4)
    moves, kinds = moves_of([matrix]), np.zeros(3, dtype=np.int64)
    followed = follow(case.distribution, moves, kinds, case.seen)
    assert fixed_lag(followed, moves, kinds, 9) == pytest.approx(by_paths(case, 9), abs=1e-12)
    assert followed.beliefs == pytest.approx(by_paths(case, 0), abs=1e-12)
    with pytest.raises(ValueError, match="no state is possible at tick 1"):
        follow(np.array([0.0, 1.0]), moves_of([[[0.0, 1.0], [0.0, 0.0]]]), kinds[:1], [None, None])


def test_points_all_but_impossible_still_count() -> None:
    """Two of 1e-290 in a row from a state of 1e-200: products vanish in floating point, the distribution does not."""
    moves, kinds = moves_of([np.eye(2)]), np.zeros(1, dtype=np.int64)
    followed = follow(np.array([1e-200, 1.0]), moves, kinds, [np.array([1e-290, 0.0])] * 2)
    assert (followed.evidence < 1.0).all()
    assert followed.beliefs == pytest.approx(np.array([[1.0, 0.0]] * 2))
    assert followed.log_likelihoods == pytest.approx(np.log(10.0) * np.array([-490.0, -290.0]), rel=1e-12)
    assert fixed_lag(followed, moves, kinds, 1) == pytest.approx(np.array([[1.0, 0.0]] * 2))


def walk_over_cells() -> Floats:
    generator = np.random.default_rng(1)
    x, y = np.arange(121) % 11, np.arange(121) // 11
    near = (np.maximum(abs(x[:, None] - x), abs(y[:, None] - y)) <= 1) * generator.random((121, 121))
    return np.asarray(near / near.sum(axis=1, keepdims=True))


SPARSE = walk_over_cells()
OTHER = np.eye(121)[np.random.default_rng(2).permutation(121)]
DENSE = np.random.default_rng(3).dirichlet(np.ones(7), 7)


@pytest.mark.parametrize(
    "matrices",
    [[SPARSE], [OTHER], [SPARSE, OTHER], [DENSE], [DENSE, np.roll(DENSE, 1, axis=1)]],
    ids=["cells", "permutation", "two sparse", "dense", "two dense"],
)
def test_kernels_do_what_their_naive_twin_does(matrices: list[Floats]) -> None:
    """Any form of the matrices, in any order; gaps and impossible releases among them."""
    generator, states, ticks = np.random.default_rng(4), len(matrices[0]), 12
    kinds = generator.integers(len(matrices), size=ticks - 1)
    seen: list[Floats | None] = [generator.random(states) for _ in range(ticks)]
    seen[3], seen[7] = None, np.zeros(states)
    distribution = generator.dirichlet(np.ones(states))
    moves, steps = moves_of(matrices), [matrices[kind] for kind in kinds]
    assert (len(moves.dense) > 0) == (states == 7)
    twin = naive_tracking.follow(distribution, steps, seen)
    followed = follow(distribution, moves, kinds, seen)
    assert followed.beliefs == pytest.approx(twin.beliefs, abs=1e-12)
    assert followed.log_likelihoods == pytest.approx(twin.log_likelihoods, rel=1e-12)
    assert (followed.evidence == twin.evidence).all()
    for lag in (0, 1, 3, 40):
        for ticks_of in (slice(None), slice(2, 9)):
            smoothed = naive_tracking.fixed_lag(twin, steps, lag, ticks_of)
            assert fixed_lag(followed, moves, kinds, lag, ticks_of) == pytest.approx(smoothed, abs=1e-12)
    if len(matrices) == 1:
        assert smooth_stream(distribution, matrices[0], seen, 3) == pytest.approx(
            fixed_lag(followed, moves, kinds, 3), abs=1e-12
        )


def test_states_that_can_follow() -> None:
    generator = np.random.default_rng(5)
    steps = generator.random((9, 9)) * (generator.random((9, 9)) < 0.2)
    for _ in range(20):
        possible = generator.random(9) < 0.3
        expected = [any(possible[a] and steps[a, b] > 0 for a in range(9)) for b in range(9)]
        assert reachable(possible, steps).tolist() == expected


def test_wrong_shapes_are_refused() -> None:
    distribution, none = np.array([0.5, 0.5]), np.zeros(0, dtype=np.int64)
    moves = moves_of([np.eye(2)])
    with pytest.raises(ValueError, match="1 steps between"):
        follow(distribution, moves, none, [None, None])
    with pytest.raises(ValueError, match="shape"):
        follow(distribution, moves, none, [np.ones(3)])
    with pytest.raises(ValueError, match="lag is -1"):
        fixed_lag(follow(distribution, moves, none, [None]), moves, none, -1)
