"""Constraint sets: reachability, schedules against brute force, delta-location sets and surrogates."""

from __future__ import annotations

import numpy as np
import pytest

from fugu.chains.tracking import reachable
from fugu.places.graphs import GraphError, delta_set, surrogates
from papers.graphs import within_radius
from papers.walks import schedule
from tests.support.dphmm_cases import GOLDEN, grid, states

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
