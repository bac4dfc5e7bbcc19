"""The device's plain-Python graphs and sets of states against those of the gateway, and their limits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu.chains.arrays import Bools
from fugu.contract.errors import PolicyError
from fugu.contract.measure_table import set_of, states_in
from fugu.contract.measurement import MOST_SETS, ConstraintSets, Measurement, neighbours_of
from fugu.places.graphs import complete, surrogates
from papers.graphs import explicit, one_step, within_radius


def matrix(neighbours: tuple[int, ...]) -> Bools:
    count = len(neighbours)
    return np.array([[bool(others >> y & 1) for y in range(count)] for others in neighbours])


def chain(successors: list[int], initial: int) -> Measurement:
    """States on a line that can follow one another so."""
    count = len(successors)
    return Measurement(tuple((x,) for x in range(count)), (0,) * count, tuple(successors), initial, 1.0, 1)


def random_points(generator: np.random.Generator, count: int, reach: int = 4) -> list[tuple[int, ...]]:
    dimensions = int(generator.integers(1, 4))
    return [tuple(point) for point in generator.integers(-reach, reach + 1, (count, dimensions)).tolist()]


# Graphs


@pytest.mark.parametrize("seed", range(12))
def test_graphs_are_those_of_the_gateway(seed: int) -> None:
    """Every kind of graph, with states that share a measurement, and loops in the chain."""
    generator = np.random.default_rng(seed)
    count = int(generator.integers(2, 30))
    points = random_points(generator, count)
    possible = generator.random((count, count)) < 0.15
    successors = [set_of(np.flatnonzero(row).tolist()) for row in possible]
    labels = generator.integers(0, 4, count).tolist()
    pairs = [(a, b) for a, b in generator.integers(0, count, (count, 2)).tolist() if a != b]

    def check(graph: dict[str, Any], expected: Bools) -> None:
        assert np.array_equal(matrix(neighbours_of(graph, points, successors)), expected)

    same = np.array([[a != b and labels[a] == labels[b] for b in range(count)] for a in range(count)])
    check({"complete": True}, complete(count))
    check({"categories": labels}, same)
    check({"categories": [str(label) for label in labels]}, same)
    check({"transition": True}, one_step(possible))
    check({"edges": pairs}, explicit(count, pairs))
    for radius in (0.0, 1.0, math.sqrt(2), 1.4142, 2.5, 3.0, 7.0, 1e5, 1e300):
        check({"radius": radius}, within_radius(points, radius))


def test_labels_of_different_types_are_different() -> None:
    points = [(0,)] * 3
    assert neighbours_of({"categories": [1, "1", 1]}, points, ()) == (0b100, 0, 0b001)


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        ({"categories": ["a", "b"]}, "2 categories for 3 states"),
        ({"edges": [(0, 3)]}, r"edge \(0, 3\) does not join two different states of 0..2"),
        ({"edges": [(0, 1), (1, 1)]}, r"edge \(1, 1\)"),
        ({"edges": [(-1, 1)]}, r"edge \(-1, 1\)"),
    ],
)
def test_a_graph_that_does_not_fit_is_refused(graph: dict[str, Any], text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        neighbours_of(graph, [(0,), (1,), (2,)], (7, 7, 7))


# Stand-ins


@pytest.mark.parametrize("seed", range(20))
def test_surrogates_are_those_of_the_gateway(seed: int) -> None:
    """Few places and many ties."""
    generator = np.random.default_rng(seed)
    points = random_points(generator, 20, reach=1)
    likely = generator.random(20) < 0.3
    likely[7] = True
    measurement = Measurement(tuple(points), (0,) * 20, (0,) * 20, 1, 1.0, 1)
    answers = surrogates(points, likely).tolist()
    inside = np.flatnonzero(likely).tolist()
    assert all(measurement.surrogate(x, inside) == answers[x] for x in range(20) if x not in inside)
    assert measurement.centres(set_of(inside)) == tuple(points[answer] for answer in answers)


# Sets of possible states


def cycles(*lengths: int) -> tuple[list[int], int]:
    """Disjoint cycles of states, and their first states: the sets repeat after the least common multiple."""
    successors, initial, base = [], 0, 0
    for length in lengths:
        successors += [1 << base + (x + 1) % length for x in range(length)]
        initial |= 1 << base
        base += length
    return successors, initial


def test_a_periodic_chain_comes_back_and_is_asked_far_ahead() -> None:
    reach = ConstraintSets(chain(*cycles(3, 5, 7)))
    assert len(reach.all_sets()) == 105
    assert reach.cycle_index == 0
    far = 10**15
    assert reach.set_at(far) == reach.set_at(far % 105) == reach.all_sets()[far % 105]


def test_there_is_a_limit_to_the_number_of_sets() -> None:
    """4096 of them are taken, one more is not."""
    successors, initial = cycles(8, 27, 25)
    with pytest.raises(PolicyError, match="do not repeat within 4096 ticks"):
        ConstraintSets(chain(successors, initial)).all_sets()
    run_in = [1 << x + 1 for x in range(1023)] + [1 << 1023]
    assert len(ConstraintSets(chain(run_in, 1)).all_sets()) == 1024
    assert len(ConstraintSets(chain(*cycles(64, 63))).all_sets()) == 64 * 63 <= MOST_SETS
    assert len(ConstraintSets(chain(*cycles(4096))).all_sets()) == MOST_SETS
    with pytest.raises(PolicyError, match="do not repeat"):
        ConstraintSets(chain(*cycles(4097))).all_sets()


def test_a_state_without_a_successor_empties_the_sets() -> None:
    reach = ConstraintSets(chain([0b10, 0b00], 0b01))
    assert [reach.set_at(0), reach.set_at(1)] == [0b01, 0b10]
    for ask in (lambda: reach.set_at(2), reach.all_sets, lambda: reach.cycle_index):
        with pytest.raises(PolicyError, match="no state is possible at tick 2"):
            ask()


@given(st.integers(0, 2**40))
def test_every_tick_has_a_set(tick: int) -> None:
    assert ConstraintSets(chain([0b0010, 0b1100, 0b0001, 0b0001], 0b0001)).set_at(tick) != 0


# Steps that change, and states that show others


def random_steps(generator: np.random.Generator, count: int) -> tuple[int, ...]:
    """Some successors for each state; for every third state all."""
    drawn = generator.random((count, count)) < 0.25
    drawn[np.arange(count), generator.integers(0, count, count)] = True
    drawn[::3] = True
    return tuple(set_of(np.flatnonzero(row).tolist()) for row in drawn)


@pytest.mark.parametrize("seed", range(24))
def test_sets_follow_steps_that_change_tick_by_tick(seed: int) -> None:
    """Against following the states of the chain one tick at a time, for several cycles; far ticks by their phase."""
    generator = np.random.default_rng(seed)
    count, cycle = int(generator.integers(2, 7)), int(generator.integers(1, 30))
    shows = tuple(generator.integers(0, 3, count).tolist()) if seed % 2 else ()
    ticks = sorted({int(tick) for tick in generator.integers(1, cycle + 1, seed % 4)} - {cycle})
    changes = tuple((tick, random_steps(generator, count)) for tick in ticks)
    first = random_steps(generator, count)
    initial = int(generator.integers(1, 1 << count))
    points = tuple((x,) for x in range(3 if shows else count))
    measurement = Measurement(points, (0,) * len(points), first, initial, 1.0, 1, 2, shows, cycle, changes)
    reach, states, shown_at = ConstraintSets(measurement), initial, []
    for tick in range(12 * cycle + 200):
        shown_at.append(set_of({shows[x] for x in states_in(states)} if shows else states_in(states)))
        assert reach.set_at(tick) == shown_at[-1]
        assert tick > 40 or ConstraintSets(measurement).set_at(tick) == shown_at[-1]
        steps = [part for begin, part in ((0, first), *changes) if begin <= tick % cycle][-1]
        states = set_of({y for x in states_in(states) for y in states_in(steps[x])})
    again = ConstraintSets(measurement)
    assert reach.set_at(10**15) == again.set_at(10**15)
    assert set(shown_at) == set(again.all_sets())
    for constraint in set(shown_at):
        begin, until = again.ticks_of(constraint)
        assert begin == shown_at.index(constraint)
        assert constraint in again.all_sets()
        last = len(shown_at) - shown_at[::-1].index(constraint)
        assert until in (None, last)
        assert until is not None or last > 6 * cycle + 100, "what never ends came back late"


def test_a_long_cycle_of_sets_that_stay_is_short() -> None:
    """A day of seconds, at night nobody moves: what is kept are the sets, not the ticks."""
    everywhere = (1 << 5) - 1
    day = tuple(set_of({x, min(x + 1, 4), max(x - 1, 0)}) for x in range(5))
    night = tuple(1 << x for x in range(5))
    points = tuple((x,) for x in range(5))
    measurement = Measurement(points, (0,) * 5, night, 1, 1.0, 1, 2, (), 86_400, ((30_000, day), (80_000, night)))
    reach = ConstraintSets(measurement)
    assert [reach.set_at(tick) for tick in (0, 30_000, 30_001, 30_002, 30_004, 79_000, 86_400 * 10**9)] == [
        1, 1, 3, 7, everywhere, everywhere, everywhere
    ]  # fmt: skip
    assert len(reach.all_sets()) < 12


def test_a_graph_of_steps_joins_what_is_shown_in_any_part_of_the_cycle() -> None:
    row = [[(0, 0.5), (1, 0.5)], [(2, 1.0)], [(3, 1.0)], [(3, 1.0)]]
    later = [[(0, 1.0)], [(1, 1.0)], [(2, 1.0)], [(0, 0.5), (3, 0.5)]]
    policy = {
        "coordinates": [[0], [1], [2]],
        "transition": row,
        "shows": [0, 1, 1, 2],
        "cycle": 4,
        "changes": [{"tick": 2, "transition": later}],
        "initial": [0.0, 0.0, 0.0, 1.0],
        "graph": {"transition": True},
        "epsilon": 1.0,
        "factor": 1,
        "degree": 2,
    }
    measurement = Measurement.of(policy)
    assert measurement.neighbours == (0b110, 0b001, 0b001), "states 0 and 1 by the first part, 0 and 2 by the second"
    assert ConstraintSets(measurement).set_at(2) == 0b100
    assert ConstraintSets(measurement).set_at(3) == 0b101
