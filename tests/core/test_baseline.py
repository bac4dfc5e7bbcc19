"""The running mean against exact rationals, at extremes; what its states depend on, and when there are none."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import MAX_BASELINE_TICKS, Baseline
from fugu.core.states import STEPS, UNIT, Classifier, RunningMean
from tests.support.classifiers import classifier_of
from tests.support.proofs import check_printed

GOLDEN = Path(__file__).parents[1] / "golden" / "baseline.json"
NAN, INFINITY = float("nan"), float("inf")
PULSE = Baseline(baseline_ticks=4, lowest=30.0, highest=230.0)
BANDS = {"edges": (-5.0, 5.0), "states": ("below", "near", "above")}
RATIOS = {"compare": "multiple", "edges": (0.9, 1.5), "states": ("low", "usual", "high")}


def document(discretiser: Baseline, **changes: object) -> dict[str, Any]:
    return Baseline.model_validate(discretiser.model_dump() | changes).model_dump(mode="json")


def states(plain: dict[str, Any], readings: Iterable[object]) -> list[int | None]:
    classifier = classifier_of(plain)
    return [classifier.observe(tick, reading) for tick, reading in enumerate(readings)]


def mean_of(classifier: Classifier) -> RunningMean:
    assert isinstance(classifier.rule, RunningMean)
    return classifier.rule


def grid(discretiser: Baseline, reading: float) -> int:
    """The step of a reading, by its definition."""
    low, high = Fraction(discretiser.lowest), Fraction(discretiser.highest)
    exact = (min(max(Fraction(reading), low), high) - low) / (high - low) * STEPS
    return int((exact + Fraction(1, 2)) // 1)


def exact_means(discretiser: Baseline, readings: Sequence[float]) -> list[Fraction]:
    """The mean before each reading after the first, in steps and without rounding."""
    means, mean = [], Fraction(grid(discretiser, readings[0]))
    for count, reading in enumerate(readings[1:], 2):
        means.append(mean)
        mean += (grid(discretiser, reading) - mean) / min(count, discretiser.baseline_ticks)
    return means


def unusual(seed: int, count: int) -> list[float]:
    """Readings of all sizes, many of them beyond the range or at its ends."""
    generator = random.Random(seed)
    kinds: list[Callable[[], float]] = [
        lambda: generator.gauss(80.0, 30.0),
        lambda: float(generator.randint(29, 231)),
        lambda: generator.choice([1e308, -1e308, -0.0, 0.0, 5e-324, sys.float_info.max, 30.0, 230.0, 30.0000000001]),
        lambda: generator.uniform(-1.0, 1.0) * 10.0 ** generator.randint(-300, 300),
    ]
    return [generator.choice(kinds)() for _ in range(count)]


@pytest.mark.long
@pytest.mark.parametrize("ticks", [1, 2, 7, 100])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_mean_is_within_its_bound_of_the_one_without_rounding(ticks: int, seed: int) -> None:
    discretiser = PULSE.model_copy(update={"baseline_ticks": ticks})
    readings = unusual(seed, 600)
    classifier = classifier_of(document(discretiser))
    classifier.observe(0, readings[0])
    for tick, (reading, exact) in enumerate(zip(readings[1:], exact_means(discretiser, readings), strict=True), 1):
        assert abs(Fraction(mean_of(classifier).mean, UNIT) - exact) < Fraction(ticks, UNIT)
        classifier.observe(tick, reading)


def test_the_largest_baseline_does_not_stall() -> None:
    """One step up from a long constant stretch: every reading moves the mean, as slow as it is."""
    plain = document(PULSE, baseline_ticks=MAX_BASELINE_TICKS, lowest=0.0, highest=float(STEPS))
    classifier = classifier_of(plain)
    classifier.observe(0, 5.0)
    mean = mean_of(classifier)
    mean.count = MAX_BASELINE_TICKS
    before = mean.mean
    for count in range(1, 1000):
        classifier.observe(count, 6.0)
        exact = 6 - (1 - Fraction(1, MAX_BASELINE_TICKS)) ** count
        assert before < mean.mean
        assert abs(Fraction(mean.mean, UNIT) - exact) < Fraction(1, 256)
        before = mean.mean


@pytest.mark.long
@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("changes", [{}, BANDS, RATIOS], ids=["above", "differences", "multiples"])
def test_states_are_those_of_exact_arithmetic(changes: dict[str, object], seed: int) -> None:
    """Wherever rounding cannot decide: further from every edge than the mean's bound and half a unit of the edge."""
    plain = document(PULSE, **changes)
    discretiser = Baseline.model_validate_json(json.dumps(plain))
    readings = unusual(seed, 800)
    decided, observed = 0, states(plain, readings)[1:]
    step = (Fraction(discretiser.highest) - Fraction(discretiser.lowest)) / STEPS
    for tick, (reading, mean) in enumerate(zip(readings[1:], exact_means(discretiser, readings), strict=True), 1):
        here, there = (Fraction(discretiser.lowest) + step * at for at in (grid(discretiser, reading), mean))
        edges = [there * Fraction(e) if changes is RATIOS else there + Fraction(e) for e in discretiser.edges]
        if tick >= 4 and min(abs(here - edge) for edge in edges) > step * Fraction(8, UNIT):
            decided += 1
            assert observed[tick - 1] == sum(here > edge for edge in edges)
    assert decided > 700


def test_a_reading_is_compared_with_the_mean_before_it() -> None:
    assert states(document(PULSE), [100, 100, 100, 100, 100, 101, 100.2, 100.1]) == [*(None,) * 4, 0, 1, 0, 0]
    assert states(document(PULSE, **BANDS), [100, 100, 100, 100, 105, 105.001]) == [*(None,) * 4, 1, 1]
    assert states(document(PULSE, **BANDS), [100, 100, 100, 100, 105.001]) == [*(None,) * 4, 2]
    for last, state in ((164.06, 1), (164.07, 2)):  # 1.5 times 109.375
        assert states(document(PULSE, **RATIOS), [100, 100, 100, 100, 150, 100, last]) == [*(None,) * 4, 1, 0, state]


def test_what_is_equal_to_the_mean_is_not_above_it() -> None:
    for value in (30.0, 99.9, 230.0, 1e308):
        assert states(document(PULSE), [value] * 9) == [None] * 4 + [0] * 5
        assert states(document(PULSE, lowest=0.0, **RATIOS), [value] * 9) == [None] * 4 + [1] * 5
    assert states(document(PULSE, lowest=0.0, **RATIOS), [0.0] * 6) == [None] * 4 + [0] * 2
    assert states(document(PULSE), [200.0] * 4 + [100.0] * 500) == [None] * 4 + [0] * 500, "nor after a fall towards it"
    assert states(document(PULSE), [100.0] * 4 + [200.0] * 500) == [None] * 4 + [1] * 500, "nor below it after a rise"


@pytest.mark.parametrize("huge", [1e308, 10**400, "9" * 5000, "1e999", Decimal("1e400"), Fraction(10**400, 3), 1e18])
def test_one_huge_reading_counts_as_the_end_of_the_range(huge: object) -> None:
    others = [100, 90, 110, 100, 95], [100, 150, 80, 110]
    readings = [*others[0], huge, *others[1]]
    expected = states(document(PULSE), [230 if reading is huge else reading for reading in readings])
    assert states(document(PULSE), readings) == expected
    assert expected[5] == 1
    mirrored = [*(200.0 - reading for reading in others[0]), -1e308, *(200.0 - reading for reading in others[1])]
    assert states(document(PULSE), mirrored)[5] == 0


@pytest.mark.parametrize(
    "nothing",
    [
        *(NAN, INFINITY, -INFINITY, "inf", "-Infinity", b"inf", "nan", ""),
        Decimal("-Infinity"),
        np.float64(INFINITY),
        [],
        {},
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_what_is_not_finite_is_skipped(nothing: object) -> None:
    with_it, without = [100, 100, 100, 100, nothing, 101, 100], [100, 100, 100, 100, None, 101, 100]
    assert states(document(PULSE), with_it) == states(document(PULSE), without) == [None] * 5 + [1, 0]


def test_ranges_at_the_ends_of_floating_point() -> None:
    for lowest, highest in ((-1.7e308, 1.7e308), (0.0, 5e-324), (1.0, 1.0000000000000002), (-5e-324, 1e308)):
        plain = document(PULSE, lowest=lowest, highest=highest)
        assert states(plain, [lowest] * 5 + [highest, lowest]) == [None] * 4 + [0, 1, 0]
        assert states(plain, [highest] * 5 + [lowest, highest]) == [None] * 4 + [0, 0, 1]


@pytest.mark.parametrize("missing", [None, "gone"])
def test_the_first_ticks_after_a_start_have_no_state_whatever_comes(missing: str | None) -> None:
    """Neither do those without a reading, where that is a state: only ticks decide."""
    plain = document(PULSE, missing=missing, states=("below", "above", *(("gone",) if missing else ())))
    gone = None if missing is None else 2
    for readings in ([None] * 4, [100, None, "x", NAN], [1e308, -1e308, 100, 100], [None, None, None, 80]):
        assert states(plain, readings) == [None] * 4
    later = [None] * 4 + [0] if missing is None else [gone, 1, 1, 1, 0]
    assert states(plain, [None] * 6 + [100, 101, 102, 103, 100]) == [None] * 4 + [gone] * 2 + later
    classifier = classifier_of(plain)
    assert [classifier.observe(tick, 100) for tick in (7, 9, 10, 11)] == [None, None, None, 0], "absent ticks count"
    classifier.restart()
    assert [classifier.observe(tick, 200) for tick in range(12, 17)] == [None] * 4 + [0], "as in a new process"


def test_a_gap_keeps_the_mean_and_after_a_longer_one_ticks_have_no_state_as_after_a_start() -> None:
    """At the boundary from both sides; 200 is above the old mean, and no more than itself in a new one."""
    begun, anew = [None] * 4 + [0], [None] * 4 + [1, 0]
    for gap in ([None] * 4, [NAN, None, "x", INFINITY]):
        assert states(document(PULSE), [100] * 5 + gap + [200, 150]) == begun + [None] * 4 + [1, 1]
        after = [200, 150, 220, 60, 200, 100]
        assert states(document(PULSE), [100] * 5 + [*gap, None, *after]) == begun + [None] * 5 + anew
    classifier = classifier_of(document(PULSE))
    seen = [classifier.observe(tick, reading) for tick, reading in enumerate([100] * 5)]
    assert [*seen, classifier.observe(9, 200)] == [*begun, 1]
    assert [classifier.observe(tick, 230) for tick in range(15, 20)] == [None] * 4 + [0], "absent ticks, too"


def test_where_missing_is_a_state_the_mean_outlasts_every_gap() -> None:
    """A tick without a state must not say that those before were missing: that is what the noise hides."""
    plain = document(PULSE, missing="gone", states=("below", "above", "gone"))
    assert states(plain, [100] * 5 + [None] * 9 + [200, 60]) == [None] * 4 + [0] + [2] * 9 + [1, 0]


def test_a_state_that_is_known_after_a_gap_breaks_an_ignorant_guarantee() -> None:
    """Why ticks after a gap have none: the loss of a chain that no state is known of, and with one on one side."""
    steps = BinaryChains(q=(0.02, 0.02), r=(0.02, 0.02))
    low, high = 1.0, math.exp(4.0)
    for _ in range(60):
        ratio = (low + high) / 2.0
        epsilon = steps.ratio_loss(Fraction(ratio), Fraction(ratio), "ignorant").epsilon
        low, high = (ratio, high) if epsilon <= 4.0 else (low, ratio)
    matrix = np.array([[0.98, 0.02], [0.02, 0.98]])
    weighed, unknown = matrix * [low, 1.0], np.ones(2)
    for _ in range(2000):
        unknown = weighed @ unknown
        unknown /= unknown[1]
    worst, seen, unseen = 0.0, matrix[:, 1], matrix[:, 1]  # the known state is the other one
    for _ in range(500):
        leakage = seen[0] * unseen[1] / (seen[1] * unseen[0])
        worst = max(worst, math.log(low * unknown[0] * leakage))
        seen, unseen = weighed @ seen / seen.sum(), matrix @ unseen
    assert worst > 4.2
    check_printed("(with q = r = 0.02 an epsilon of 4 would be {})", worst)


def test_which_ticks_have_a_state_depends_on_ticks_and_missing_readings_only() -> None:
    generator = random.Random(5)
    for _ in range(50):
        pattern = [generator.random() < 0.6 for _ in range(60)]
        runs = [
            states(document(PULSE), [value if there else None for value, there in zip(values, pattern, strict=True)])
            for values in (unusual(generator.randrange(99), 60), [50.0] * 60)
        ]
        present = [[state is not None for state in run] for run in runs]
        first, last, expected = None, -1, []
        for tick, there in enumerate(pattern):
            if there:
                first, last = (tick, tick) if first is None or tick - last > 5 else (first, tick)
            expected.append(there and first is not None and tick - first >= 4)
        assert present[0] == present[1] == expected


def test_to_ask_again_for_the_newest_tick_changes_nothing() -> None:
    once, twice = classifier_of(document(PULSE)), classifier_of(document(PULSE))
    for tick, reading in enumerate(unusual(6, 100)):
        expected = once.observe(tick, reading)
        assert [twice.observe(tick, reading) for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"lowest": 230.0}, "lowest must be less than highest"),
        ({"baseline_ticks": 0}, "greater than or equal to 1"),
        ({"baseline_ticks": MAX_BASELINE_TICKS + 1}, "less than or equal to"),
        ({"edges": [1.0, 1.0], "states": ["a", "b", "c"]}, "edges must increase strictly"),
        ({"edges": [1.0, 2.0]}, "2 edges make 3 states, not 2"),
        ({"compare": "multiple"}, "multiples of the mean need"),
        ({"compare": "multiple", "edges": [1.0], "lowest": -1.0}, "multiples of the mean need"),
        ({"highest": INFINITY}, "finite"),
        ({"hysteresis": 1.0}, "Extra inputs"),
    ],
)
def test_a_baseline_that_makes_no_sense_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Baseline.model_validate_json(json.dumps({**document(PULSE), **changes}))


@pytest.mark.parametrize("case", json.loads(GOLDEN.read_text()), ids=lambda case: str(case["discretiser"]["edges"]))
def test_golden_states_and_means(case: dict[str, Any]) -> None:
    """Values that every device must have after every reading, in units of the mean and bit for bit."""
    plain = Baseline.model_validate_json(json.dumps(case["discretiser"])).model_dump(mode="json")
    classifier, states = classifier_of(plain), []
    for tick, reading in enumerate(case["readings"]):
        state = classifier.observe(tick, reading)
        states.append((state, mean_of(classifier).mean))
    assert states == list(zip(case["states"], case["means"], strict=True))
