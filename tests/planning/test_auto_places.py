"""Plans for places: true numbers in metres, an epsilon of the whole stream, a policy that passes, and a plain no."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fugu.chains.arrays import Floats
from fugu.contract.discretisers import Cells
from fugu.contract.errors import FuguError
from fugu.places.composition import stream_loss, verify_stream
from fugu.planning.auto_places import PlacePlan, place_policy, plan_places, read_places
from fugu.planning.errors import PlanningError
from fugu.planning.question import Question
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import AS_FOUND, load

pytestmark = pytest.mark.usefixtures("planned_once")

STEP = np.array([0.0045, 0.0073])
"""About 500 m in each direction, in degrees at 52 degrees north."""


def walk(folder: Path, size: int, jump: float, ticks: int = 4_000) -> Path:
    """A walk over size x size places 500 m apart, each minute to a neighbour, or now and then to any of them."""
    rng, at, rows = np.random.default_rng(3), np.zeros(2), ["t,lat,lon"]
    for tick in range(ticks):
        far = rng.random() < jump
        at = rng.integers(0, size, 2) if far else np.clip(at + rng.integers(-1, 2, 2), 0, size - 1)
        latitude, longitude = np.array([52.002, 4.003]) + at * STEP
        rows.append(f"{tick * 60},{latitude},{longitude}")
    file = folder / "walk.csv"
    file.write_text("\n".join(rows) + "\n")
    return file


def planned(file: Path, epsilon: float) -> PlacePlan:
    traces, period = read_places(file)
    question = Question(epsilon=epsilon, want="place")
    return plan_places(traces, period, question, np.random.default_rng(1), lambda _part, _share: None)


def stream(transition: Floats, point: float) -> float:
    """Epsilon of an endless stream of points about one tick, by the accountant."""
    k = len(transition)
    return stream_loss([point * (1.0 - np.eye(k))], None, transition, "universal").epsilon


@pytest.mark.long
def test_a_slow_walk_gets_a_plain_no_with_true_numbers(tmp_path: Path) -> None:
    plan = planned(walk(tmp_path, 7, 0.0, 2_600), 1.0)
    assert plan.recommended.kind == "none"
    assert plan.recommended.attack is None
    assert plan.spec is None
    assert not plan.reasons
    assert len(plan.candidates) == len(plan.curves) == len(plan.sides) >= 2
    for candidate in plan.candidates:
        assert (candidate.kind, candidate.unit, candidate.adversary) == ("points", "metres", "universal")
        assert 0.0 < candidate.point_epsilon < candidate.epsilon <= 1.0
        assert 2.0 * candidate.expected_error > candidate.guess_error
        assert 500.0 < candidate.guess_error < 4_000.0
        assert candidate.held_back_error <= candidate.error_95
    with pytest.raises(PlanningError, match="nothing is recommended"):
        place_policy(plan)


@pytest.mark.long
def test_places_that_forget_quickly_get_points_whose_policy_keeps_the_epsilon_of_the_stream(tmp_path: Path) -> None:
    plan = planned(walk(tmp_path, 2, 0.9, 6_000), 8.0)  # with half of them, every third seed is too short to tell
    recommended = plan.recommended
    assert recommended.kind == "points"
    assert recommended in plan.candidates
    assert 2.0 * recommended.expected_error <= recommended.guess_error
    assert recommended.held_back_error <= recommended.error_95
    assert recommended.attack.success <= recommended.attack.high
    assert recommended.attack.guess < recommended.attack.success <= recommended.attack.ceiling
    assert recommended.epsilon == pytest.approx(8.0, rel=1e-4)
    assert recommended.epsilon <= 8.0
    policy = place_policy(plan)
    assert policy.useful_for == "place"
    assert verify_stream(policy).epsilon <= recommended.epsilon
    assert policy.stream_loss.epsilon == recommended.epsilon
    assert policy.epsilon == recommended.point_epsilon
    assert stream(plan.spec.transition, recommended.point_epsilon) <= recommended.epsilon
    chains = recommended.chains
    assert chains.states == len(plan.spec.names)
    worst = 2.0 * recommended.point_epsilon
    assert (
        stream(plan.spec.transition, worst)
        > stream(plan.spec.transition, recommended.point_epsilon)
        > recommended.point_epsilon
    )


def test_a_file_of_places_is_one_unless_something_else_is_asked(tmp_path: Path) -> None:
    file = walk(tmp_path, 3, 0.0, 5)
    places = load(file, AS_FOUND)
    assert Question().of_places(places, None)
    assert not Question().of_places(places, "lat")
    assert not Question(want="share").of_places(places, None)
    assert not Question(threshold=0.0).of_places(places, None)
    (tmp_path / "other.csv").write_text("t,value\n0,1\n")
    other = load(tmp_path / "other.csv", AS_FOUND)
    assert not Question().of_places(other, None)
    assert Question(want="place").of_places(other, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t,value\n0,1\n", "no column 'lat'"),
        ("t,lat,lon\n" + "".join(f"{tick},52.0,4.0\n" for tick in range(3_000)), "never changes"),
        ("t,lat,lon\n0,52.0,4.0\n1,52.1,4.0\n2,52.0,4.1\n", "too few"),
        (
            "t,lat,lon\n" + "".join(f"{tick},{tick / 100},4.0\n" for tick in range(3_000)),
            "one place every 1 rows, in the first of three sets",
        ),
    ],
)
def test_what_cannot_be_planned_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(text)
    with pytest.raises(FuguError, match=words) as refused:
        planned(file, 1.0)
    assert "\n" not in str(refused.value)


@pytest.mark.long
def test_traces_that_go_far_now_and_then_get_a_verdict_with_cells_that_are_left_often(tmp_path: Path) -> None:
    """Three places by turns, and trips of a day across the country that no chain of cells can be told from."""
    rng, rows, at = np.random.default_rng(5), ["t,lat,lon"], 0
    for tick in range(9_000):
        at = int(rng.integers(3)) if rng.random() < 0.05 else at
        far = 0.08 * max(0, 12 - abs(tick % 3_000 - 1_500))
        latitude, longitude = np.array([52.002, 4.003]) + np.array([at, at % 2]) * STEP * 4 + far
        rows.append(f"{tick * 60},{latitude},{longitude}")
    (tmp_path / "trips.csv").write_text("\n".join(rows) + "\n")
    traces, period = read_places(tmp_path / "trips.csv")
    plan = plan_places(traces, period, Question(cell=3_000.0), np.random.default_rng(1))
    assert plan.candidates
    for candidate in plan.candidates:
        assert isinstance(candidate.discretiser, Cells)
        assert 2 <= len(candidate.discretiser.cells) < 12
    assert set(plan.sides) == {3_000.0}
    with pytest.raises(PlanningError, match="has no --cell"):
        Question(want="share", cell=500.0)


def test_a_silence_of_years_between_two_traces_makes_no_places(tmp_path: Path) -> None:
    rows = [f"{begin + tick},52.{tick},4.{tick}" for begin in (0, 10**8) for tick in range(9)]
    (tmp_path / "trips.csv").write_text("\n".join(["t,lat,lon", *rows]))
    traces, period = read_places(tmp_path / "trips.csv", ReadOptions(as_it_is=frozenset(["step", "hold"])))
    assert (len(traces.places), len(set(traces.trace.tolist())), period) == (18, 2, 1.0)
