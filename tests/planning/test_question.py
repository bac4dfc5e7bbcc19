"""Which states answer a question, never as noise would have it; and the three sets of its recording, far apart."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from fugu.contract.discretisers import Baseline, Categories, Thresholds
from fugu.planning.errors import PlanningError
from fugu.planning.question import (
    BASELINES_APART,
    DEFAULT_BASELINE,
    Cut,
    Question,
    choose_states,
    merged_states,
    set_distance,
    three_sets,
)
from fugu.planning.states import states_of
from fugu.recordings.readings import Kind, Readings
from tests.support.classifiers import classifier_of


def readings(values: Any, kind: Kind, period: float | None = 60.0, missing: float = 0.0) -> Readings:
    segments = np.zeros(len(values), dtype=np.int64)
    values = values if isinstance(values, np.ndarray) else np.array(values, dtype=object)
    return Readings(values, segments, period, True, False, kind, "value", "room.csv", missing, ())


NUMBERS = readings(np.linspace(50.0, 90.0, 500), "numbers")


def test_numbers_are_compared_with_their_own_mean_of_a_public_length() -> None:
    states = choose_states(NUMBERS, Question())
    assert isinstance(states.discretiser, Baseline)
    assert states.baseline_ticks == states.discretiser.baseline_ticks == DEFAULT_BASELINE
    assert str(DEFAULT_BASELINE) in states.notes[0]
    assert states.discretiser.lowest < 50.0 - 30.0 < 90.0 + 30.0 < states.discretiser.highest


@pytest.mark.parametrize(("scale", "jumps"), [(1.0, 1), (1e-3, 7), (1e6 + 0.1, 100)])
def test_the_length_of_the_mean_does_not_depend_on_the_readings(scale: float, jumps: int) -> None:
    some = readings(scale * (0.5 + np.arange(999) // jumps % 17), "numbers")
    assert choose_states(some, Question()).baseline_ticks == DEFAULT_BASELINE


def test_a_baseline_is_ticks_or_time() -> None:
    assert choose_states(NUMBERS, Question(baseline=100)).baseline_ticks == 100
    assert choose_states(NUMBERS, Question(baseline=3600, baseline_is_time=True)).baseline_ticks == 60
    with pytest.raises(PlanningError, match="is not from 1 to"):
        choose_states(NUMBERS, Question(baseline=1, baseline_is_time=True))


def test_numbers_with_units_are_not_taken_for_names() -> None:
    with pytest.raises(PlanningError, match="need a decimal point and no unit"):
        choose_states(readings([f"{n},5 W" for n in range(40)], "names"), Question())


def test_a_threshold_makes_two_states() -> None:
    states = choose_states(NUMBERS, Question(threshold=70.0))
    assert isinstance(states.discretiser, Thresholds)
    assert (states.discretiser.edges, states.baseline_ticks, states.counted) == ((70.0,), 0, (1,))


def test_on_and_off_are_two_states_however_they_are_written() -> None:
    states = choose_states(readings(["On", "off", "ON", "Off"], "on/off"), Question())
    assert isinstance(states.discretiser, Categories)
    assert states.share_of.casefold() == "on"
    segments = np.zeros(4, dtype=np.int64)
    assert states_of(states.discretiser, ["On", "off", "ON", "Off"], segments).tolist() == [1, 0, 1, 0]
    bits = choose_states(readings(np.array([0.0, 1.0]), "on/off"), Question())
    assert states_of(bits.discretiser, np.array([0.0, 1.0, 1.0, 0.0]), segments).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("recorded", [["on", "off"], ["ON", "Off"], ["home", "not_home"], ["open", "closed"]])
def test_a_plan_from_a_recording_of_on_and_off_knows_the_names_of_a_live_sensor(recorded: list[str]) -> None:
    states = choose_states(readings(recorded, "on/off"), Question())
    assert (states.discretiser.states, states.share_of) == (tuple(reversed(recorded)), recorded[0])
    device = classifier_of(states.discretiser.model_dump(mode="json"))
    live = [*recorded, True, False, "true", "false", "ON", "OFF", "unavailable"]
    assert [device.observe(*reading) for reading in enumerate(live)] == [1, 0, 1, 0, 1, 0, 1, 0, None]


def test_two_names_that_are_not_on_and_off_are_states_by_themselves() -> None:
    for recorded in (["hall", "bath"], ["on", "standby"], ["on", "open"]):
        states = choose_states(readings(recorded, "on/off"), Question())
        assert isinstance(states.discretiser, Categories)
        assert set(states.discretiser.categories) == set(recorded)
    asked = choose_states(readings(["on", "off"], "on/off"), Question(states=("on", "off")))
    assert isinstance(asked.discretiser, Categories)
    assert asked.discretiser.categories == {"on": 0, "off": 1}


def test_names_are_states_and_their_histogram_is_asked_for() -> None:
    rooms = readings(["hall", "bath", "kitchen", "hall"], "names")
    states = choose_states(rooms, Question())
    assert (states.discretiser.states, states.histogram) == (("bath", "hall", "kitchen"), True)
    some = choose_states(rooms, Question(states=("kitchen", "bath")))
    assert isinstance(some.discretiser, Categories)
    assert (some.discretiser.states, some.histogram) == (("kitchen", "bath"), False)
    assert "hall" not in some.discretiser.categories


def test_few_whole_numbers_are_states() -> None:
    states = choose_states(readings(np.array([0.0, 1.0, 2.0, 4.0]), "levels"), Question(want="share"))
    assert isinstance(states.discretiser, Thresholds)
    assert (states.discretiser.edges, states.discretiser.states) == ((0.5, 1.5, 3.0), ("0", "1", "2", "4"))
    assert (states.histogram, states.counted, states.share_of) == (False, (1, 2, 3), "other than 0")
    assert choose_states(NUMBERS, Question(states=("60", "80"))).discretiser.states == ("60", "80")
    large = choose_states(readings(np.array([1_000_001.0, 1_000_002.0]), "levels"), Question(want="share"))
    assert large.discretiser.states == ("1000001", "1000002")


def test_many_missing_readings_are_a_state_and_few_are_not() -> None:
    states = choose_states(NUMBERS._replace(missing_share=0.02), Question(baseline=10))
    assert (states.discretiser.states, states.discretiser.missing) == (("below", "above", "missing"), "missing")
    assert (states.counted, states.histogram) == ((1,), False)
    assert choose_states(NUMBERS._replace(missing_share=0.01), Question()).discretiser.missing is None


@pytest.mark.parametrize(
    ("some", "question", "words"),
    [
        (readings(["a", "b"], "names"), {"threshold": 1.0}, "holds names"),
        (readings(["a", "b"], "names"), {"states": ("a",)}, "at least two different names"),
        (readings(["a", "b"], "names"), {"states": ("a", "c")}, "never holds 'c'"),
        (readings([f"room {n}" for n in range(20)], "names"), {}, "20 names; at most 16"),
        (readings(["x" * 64 + "1", "x" * 64 + "2"], "names"), {}, "two states would have one name, of 64 letters"),
        (NUMBERS, {"states": ("a", "b")}, "must be numbers"),
        (NUMBERS, {"states": ("2", "1")}, "numbers that increase"),
    ],
)
def test_states_that_are_not_there_are_refused(some: Readings, question: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanningError, match=words):
        choose_states(some, Question(**question))


def test_states_are_merged_by_plus_be_they_names_or_neighbouring_numbers() -> None:
    names = readings(["bath", "hall", "bath", "Kitchen", "a+b"], "names")
    some = choose_states(names, Question(states=("bath", "hall+kitchen", "a+b"))).discretiser
    assert isinstance(some, Categories)
    assert some.states == ("bath", "hall+Kitchen", "a+b")
    assert some.categories == {"bath": 0, "hall": 1, "Kitchen": 1, "a+b": 2}
    levels = readings(np.array([0.0, 1.0, 2.0, 4.0]), "levels")
    discretiser = choose_states(levels, Question(states=("0", "1+2", "4"))).discretiser
    assert isinstance(discretiser, Thresholds)
    assert (discretiser.edges, discretiser.states) == ((0.5, 3.0), ("0", "1+2", "4"))
    with pytest.raises(PlanningError, match="numbers that increase"):
        choose_states(levels, Question(states=("0+2", "1")))


@pytest.mark.parametrize(("kind", "merged"), [("levels", ("0", "1", "2+3+4")), ("names", ("s0", "s1", "s2+s3+s4"))])
def test_rare_states_are_merged_numbers_with_a_neighbour_and_names_with_the_next_rarest(
    kind: Kind, merged: tuple[str, ...]
) -> None:
    drawn = np.random.default_rng(4).choice(5, size=5_000, p=[0.5, 0.3, 0.17, 0.02, 0.01])
    values: Any = drawn.astype(np.float64) if kind == "levels" else [f"s{state}" for state in drawn]
    chosen = choose_states(readings(values, kind), Question())
    whole = [Cut(drawn, np.zeros(5_000, dtype=np.int64))]
    assert merged_states(chosen, whole) == merged
    assert merged_states(chosen, [Cut(drawn % 3, np.zeros(5_000, dtype=np.int64))]) is not None, "never seen is rare"
    two = choose_states(readings(values, kind), Question(states=(merged[0], "+".join(merged[1:]))))
    assert merged_states(two, [Cut(np.minimum(drawn, 1), whole[0].segments)]) is None


def test_whole_numbers_that_may_be_codes_are_asked_about() -> None:
    rng = np.random.default_rng(3)
    codes = readings(np.repeat(rng.integers(12, size=500), 4).astype(np.float64), "numbers")
    many = readings(np.repeat(rng.integers(200, size=900), 4).astype(np.float64), "numbers")
    amounts = readings(np.cumsum(rng.integers(-3, 4, size=4_000)).astype(np.float64), "numbers")
    for some in (codes, many):
        with pytest.raises(PlanningError, match="different whole numbers: are they codes, or amounts"):
            choose_states(some, Question())
        assert choose_states(some, Question(baseline=300)).baseline_ticks == 300
        assert choose_states(some, Question(threshold=5.0)).discretiser.states == ("below", "above")
    assert choose_states(amounts, Question()).baseline_ticks == DEFAULT_BASELINE


def test_a_plan_says_how_many_numbers_are_none_of_the_states() -> None:
    levels = readings(np.array([0.0, 1.0, 3.0, 5.0]), "levels")
    asked = choose_states(levels, Question(states=("0", "5")))
    assert asked.notes == ("50.0% of the readings are other numbers: each has the state of the nearest of these",)
    segments = np.zeros(4, dtype=np.int64)
    assert states_of(asked.discretiser, np.array([0.0, 1.0, 3.0, 5.0]), segments).tolist() == [0, 0, 1, 1]
    assert choose_states(levels, Question(states=("0", "1", "3+5"))).notes == ()


@pytest.mark.parametrize("asked", [{"blocks": "4h"}, {"days": 7}])
def test_only_a_profile_has_parts_of_the_day(asked: dict[str, Any]) -> None:
    Question(**asked)
    Question(want="profile", **asked)
    for want in ("now", "share", "histogram", "place"):
        with pytest.raises(PlanningError, match="has no --blocks and no --days"):
            Question(want=want, **asked)


def test_only_one_kind_of_states_can_be_asked_for() -> None:
    with pytest.raises(PlanningError, match="give one of them"):
        Question(threshold=1.0, baseline=100)


def test_a_place_has_no_other_states() -> None:
    Question(want="place")
    for other in ({"threshold": 1.0}, {"baseline": 5}, {"states": ("a", "b")}, {"within": 0.05}, {"devices": 2}):
        with pytest.raises(PlanningError, match="a place has no --baseline"):
            Question(want="place", **other)


@pytest.mark.parametrize("far", [1e308, -1e308])
def test_one_reading_far_off_does_not_stretch_the_range(far: float) -> None:
    values = np.random.default_rng(1).normal(60.0, 5.0, 5_000)
    values[77] = far
    discretiser = choose_states(readings(values, "numbers"), Question(baseline=20)).discretiser
    assert isinstance(discretiser, Baseline)
    assert -50.0 < discretiser.lowest < discretiser.highest < 170.0
    two = choose_states(readings(np.array([far, 1.0] * 50), "numbers"), Question(baseline=20)).discretiser
    assert isinstance(two, Baseline)
    assert np.isfinite([two.lowest, two.highest]).all()


@pytest.mark.parametrize(("ticks", "baseline"), [(16_859, 300), (16_859, 100), (43_200, 0), (10_000, 30), (4_000, 0)])
def test_sets_are_ten_baselines_apart_and_made_of_blocks(ticks: int, baseline: int) -> None:
    sets = three_sets(np.zeros(ticks, dtype=np.int64), baseline)
    apart = set_distance(baseline)
    assert apart >= BASELINES_APART * baseline
    for first, second in combinations(sets, 2):
        nearest = np.abs(first.rows[:, None] - second.rows[None, :: max(1, apart // 3)]).min()
        assert nearest > apart / 2
        edges = [part.rows[np.flatnonzero(np.diff(part.rows, prepend=-2) != 1)] for part in (first, second)]
        ends = [part.rows[np.flatnonzero(np.diff(part.rows, append=ticks + 2) != 1)] for part in (first, second)]
        assert min(np.abs(edges[0][:, None] - ends[1]).min(), np.abs(ends[0][:, None] - edges[1]).min()) > apart
    used = sum(len(part.rows) for part in sets)
    assert used >= 0.25 * ticks
    for part in sets:
        assert (np.diff(part.segments) == (np.diff(part.rows) != 1)).all()


def test_blocks_take_turns_where_there_is_room() -> None:
    sets = three_sets(np.zeros(100_000, dtype=np.int64), 100)
    assert sets.fit.segments.max() == sets.test.segments.max() == 4


def test_gaps_of_the_recording_stay_gaps() -> None:
    segments = np.repeat([0, 1, 2, 3], 3_000)
    sets = three_sets(segments, 0)
    for part in sets:
        jump = (np.diff(part.rows) != 1) | (np.diff(segments[part.rows]) != 0)
        assert (np.diff(part.segments) == jump).all()


def test_a_recording_that_is_too_short_says_what_it_would_need() -> None:
    with pytest.raises(PlanningError, match="3 ticks are too few to plan from"):
        three_sets(np.zeros(3, dtype=np.int64), 0)
    message = ""
    try:
        three_sets(np.zeros(6_000, dtype=np.int64), 300)
    except PlanningError as error:
        message = str(error)
    least = int(message.split("need ")[1].split(" ")[0])
    three_sets(np.zeros(least, dtype=np.int64), 300)
    with pytest.raises(PlanningError):
        three_sets(np.zeros(least - 2, dtype=np.int64), 300)


def test_numbers_beyond_those_of_a_policy_are_refused() -> None:
    with pytest.raises(PlanningError, match=r"^room\.csv: the numbers of column value are beyond 1e\+300"):
        choose_states(readings(np.linspace(1e305, 2e305, 2_000), "numbers"), Question())
    with pytest.raises(PlanningError, match="a baseline of inf ticks"):
        choose_states(readings(NUMBERS.values, "numbers", 1e-320), Question(baseline=600.0, baseline_is_time=True))
