"""Tracking many devices against all paths: tables and transitions that change per tick, gaps, impossible points."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from fugu.chains.arrays import Floats
from fugu.chains.tracking import Seen, Transition, advance, fixed_lag, follow


class Case(NamedTuple):
    distributions: Floats
    matrices: list[Floats]
    seen: list[Seen]

    @property
    def steps(self) -> list[Transition]:
        return [Transition.of(matrix) for matrix in self.matrices]


def case(states: int, ticks: int, devices: int, seed: int, *, zeros: float = 0.3) -> Case:
    """Random distributions, matrices and points; of some ticks a device says nothing, and some entries are 0."""
    generator = np.random.default_rng(seed)

    def sparse(*shape: int) -> Floats:
        return generator.random(shape) * (generator.random(shape) >= zeros)

    matrices = []
    for _ in range(ticks - 1):
        matrix = sparse(states, states) + np.roll(np.eye(states), int(generator.integers(states)), axis=1) * 0.1
        matrices.append(matrix / matrix.sum(axis=1, keepdims=True))
    distributions = generator.dirichlet(np.ones(states), devices) if states > 1 else np.ones((devices, 1))
    points = [int(generator.integers(1, 5)) for _ in range(ticks)]
    seen = [Seen(sparse(some, states), generator.integers(-1, some, devices)) for some in points]
    return Case(distributions, matrices, seen)


def path_weights(one: Case, device: int, until: int, counted: set[int]) -> dict[tuple[int, ...], float]:
    """The weight of every path up to a tick, given what counts."""
    states, found = one.distributions.shape[1], {}
    for path in product(range(states), repeat=until + 1):
        weight = float(one.distributions[device, path[0]])
        for tick, state in enumerate(path):
            if tick:
                weight *= float(one.matrices[tick - 1][path[tick - 1], state])
            if tick in counted:
                weight *= float(one.seen[tick].rows[one.seen[tick].which[device], state])
        found[path] = weight
    return found


def counting(one: Case, device: int) -> set[int]:
    """The ticks whose points some path allows that all points before allow."""
    counted: set[int] = set()
    for tick, seen in enumerate(one.seen):
        if seen.which[device] >= 0 and sum(path_weights(one, device, tick, {*counted, tick}).values()) > 0.0:
            counted.add(tick)
    return counted


def by_paths(one: Case, device: int, lag: int) -> Floats:
    """The distribution of each tick given what counts up to `lag` ticks later."""
    counted, last = counting(one, device), len(one.seen) - 1
    rows = np.zeros((last + 1, one.distributions.shape[1]))
    for tick in range(last + 1):
        until = min(tick + lag, last)
        for path, weight in path_weights(one, device, until, counted).items():
            rows[tick, path[tick]] += weight
    return rows / rows.sum(axis=1, keepdims=True)


CASES = [(1, 4, 2, 0), (2, 6, 3, 1), (3, 5, 2, 2), (3, 5, 2, 3), (4, 4, 2, 4)]


@pytest.mark.long
@pytest.mark.parametrize("shape", CASES)
def test_every_distribution_is_what_all_paths_add_up_to(shape: tuple[int, int, int, int]) -> None:
    one = case(*shape)
    found = follow(one.distributions, one.steps, one.seen)
    last = len(one.seen) - 1
    for device in range(len(one.distributions)):
        counted = counting(one, device)
        assert set(np.flatnonzero(found.counted[:, device]).tolist()) == counted
        for lag in range(last + 2):
            expected = by_paths(one, device, lag)
            close = pytest.approx(expected, abs=1e-12)
            assert fixed_lag(found, one.steps, one.seen, lag)[:, device] == close
            if lag == 0:
                assert found.beliefs[:, device] == close
        before = 1.0
        for tick in range(last + 1):
            total = sum(path_weights(one, device, tick, {t for t in counted if t <= tick}).values())
            expected = np.log(total / before) if tick in counted else 0.0
            assert found.log_likelihoods[tick, device] == pytest.approx(expected, abs=1e-12)
            before = total


def test_impossible_points_were_among_the_cases() -> None:
    missed = 0
    for shape in CASES:
        one = case(*shape)
        counted = follow(one.distributions, one.steps, one.seen).counted
        missed += int(sum(np.sum((seen.which >= 0) & ~now) for seen, now in zip(one.seen, counted, strict=True)))
    assert missed


def test_states_that_nothing_follows_are_ruled_out_by_going_on() -> None:
    """A row of zeros: whoever was there is gone a tick later, and smoothing knows."""
    matrix = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0], [0.0, 0.3, 0.7]])
    one = Case(np.array([[0.2, 0.5, 0.3]]), [matrix] * 3, [Seen.nothing(1, 3)] * 4)
    found = follow(one.distributions, one.steps, one.seen)
    assert fixed_lag(found, one.steps, one.seen, 9)[:, 0] == pytest.approx(by_paths(one, 0, 9), abs=1e-12)
    assert found.beliefs[:, 0] == pytest.approx(by_paths(one, 0, 0), abs=1e-12)
    ended = Transition.of([[0.0, 1.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match="no state is possible for device 1"):
        follow(np.array([[1.0, 0.0], [0.0, 1.0]]), [ended], [Seen.nothing(2, 2)] * 2)


def test_points_all_but_impossible_still_count() -> None:
    """Two of 1e-290 in a row from a state of 1e-200: products vanish in floating point, the distribution does not."""
    distributions = np.array([[1e-200, 1.0]])
    steps = [Transition.of(np.eye(2))]
    seen = [Seen(np.array([[1e-290, 0.0]]), np.zeros(1, dtype=np.int64))] * 2
    found = follow(distributions, steps, seen)
    assert found.counted.all()
    assert found.beliefs[:, 0] == pytest.approx(np.array([[1.0, 0.0]] * 2))
    assert found.log_likelihoods[:, 0] == pytest.approx(np.log(10.0) * np.array([-490.0, -290.0]), rel=1e-12)


def walk(columns: int, rows: int, seed: int) -> Floats:
    """A random walk over cells that steps to any of the eight beside, or stays."""
    generator = np.random.default_rng(seed)
    x, y = np.arange(columns * rows) % columns, np.arange(columns * rows) // columns
    near = np.maximum(abs(x[:, None] - x), abs(y[:, None] - y)) <= 1
    matrix = near * generator.random(near.shape)
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


@pytest.mark.long
@pytest.mark.parametrize("devices", [1, 2, 53])
def test_every_form_of_a_matrix_carries_distributions_alike(devices: int) -> None:
    """Diagonals of a walk in both directions, predecessors of scattered steps, and BLAS for a full matrix."""
    generator = np.random.default_rng(devices)
    scattered = np.eye(60)[generator.permutation(60)] * 0.6 + np.eye(60)[generator.permutation(60)] * 0.4
    full = generator.dirichlet(np.ones(12), 12)
    kinds = set()
    for matrix in (walk(7, 5, 1), scattered, full, np.eye(1), np.eye(5), np.diag(np.ones(4), 1) + np.eye(5) * 0.5):
        count = len(matrix)
        transition = Transition.of(matrix)
        distributions = generator.dirichlet(np.ones(count), devices) if count > 1 else np.ones((devices, 1))
        seen = Seen(generator.random((4, count)), generator.integers(-1, 4, devices))
        found, logs = advance(distributions, transition, seen)
        for device in range(devices):
            expected = distributions[device] @ matrix
            total, row = expected.sum(), seen.which[device]
            expected = expected * (seen.rows[row] if row >= 0 else 1.0)
            assert found[device] == pytest.approx(expected / expected.sum(), abs=1e-13)
            assert np.isnan(logs[device]) == (row < 0)
            assert row < 0 or logs[device] == pytest.approx(np.log(expected.sum() / total), abs=1e-12)
        back = np.empty_like(distributions)
        transition.backward.carry(distributions, back)
        assert back == pytest.approx(distributions @ matrix.T, abs=1e-13)
        kinds.add((len(transition.forward.weights) > 0, len(transition.forward.values) > 0))
    assert len(kinds) == 3, "some form was never used"


def test_wrong_shapes_are_refused() -> None:
    steps, distributions = [Transition.of(np.eye(2))], np.array([[0.5, 0.5]])
    fine = Seen(np.ones((1, 2)), np.zeros(1, dtype=np.int64))
    for wrong, words in [
        (Seen(np.ones((1, 3)), fine.which), "likelihoods have shape"),
        (Seen(np.ones((0, 2)), fine.which - 1), "at least one"),
        (Seen(np.ones((2, 2)).T[:, :], fine.which), "contiguous"),
        (Seen(fine.rows, fine.which + 1), "name points from 1 to 1"),
        (Seen(fine.rows, fine.which - 2), "name points"),
        (Seen(fine.rows, np.zeros(2, dtype=np.int64)), "one integer for each of 1"),
    ]:
        with pytest.raises(ValueError, match=words):
            follow(distributions, steps, [fine, wrong])
    with pytest.raises(ValueError, match="1 steps between"):
        follow(distributions, [], [fine, fine])
    with pytest.raises(ValueError, match="lag is -1"):
        fixed_lag(follow(distributions, [], [fine]), [], [fine], -1)
    for matrix, words in [
        (np.ones((2, 3)), "square"),
        (np.array([[-1.0]]), "from 0 on"),
        (np.array([[np.nan]]), "fin"),
    ]:
        with pytest.raises(ValueError, match=words):
            Transition.of(matrix)
    with pytest.raises(ValueError, match="distributions have shape"):
        advance(np.ones((1, 3)), steps[0], fine)
