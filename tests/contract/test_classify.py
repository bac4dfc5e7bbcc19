"""Readings of a sensor and their states: words, numbers of any size and type, and every place among all doubles."""

from __future__ import annotations

import json
import math
import random
from bisect import bisect_right
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fugu.contract.classify import ON_OFF
from fugu.contract.discretisers import Categories, Thresholds
from tests.support.classifiers import classifier_of

SECRET = 71.5319
BANDS = {
    "kind": "thresholds",
    "edges": [10.0, 20.0],
    "states": ["a", "b", "c"],
    "hysteresis": 2.0,
    "hysteresis_ticks": 3,
    "missing": None,
}
KINDS = {"kind": "categories", "categories": {"on": 1, "off": 0}, "states": ["off", "on"], "missing": None}
NAN, INFINITY = float("nan"), float("inf")


class Hostile:
    """A value whose every method raises an exception that holds the reading."""

    def __float__(self) -> float:
        raise ZeroDivisionError(f"{SECRET}")

    def __str__(self) -> str:
        raise ValueError(f"{SECRET}")


class Endless(Hostile):
    """A value that says it is too large, and cannot even be compared."""

    def __float__(self) -> float:
        raise OverflowError(f"{SECRET}")

    def __gt__(self, other: object) -> bool:
        raise MemoryError(f"{SECRET}")


def states(document: dict[str, Any], values: list[Any]) -> list[int | None]:
    discretiser = classifier_of(document)
    return [discretiser.observe(tick, v) for tick, v in enumerate(values)]


def test_words_for_off_and_on_are_0_and_1_where_one_edge_tells_them_apart() -> None:
    plain = {**BANDS, "edges": [0.5], "states": ["off", "on"], "hysteresis": 0.0}
    words = ["true", "False", " ON\n", "off", "Open", "CLOSED", "detected", "not_home", True, "1", 0.0]
    assert states(plain, words) == [1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0]
    assert states(plain, ["unavailable", "unknown", "oN", "", "nan"]) == [None] * 5
    assert states({**plain, "edges": [1.0]}, ["on", "off"]) == [1, 0]
    for edges in ([0.0], [1.0001], [-3.0]):
        assert states({**plain, "edges": edges}, ["on", "off"]) == [None, None]
    assert states({**plain, "edges": [0.5, 1.5], "states": ["a", "b", "c"]}, ["on", "off"]) == [None, None]


@pytest.mark.parametrize(
    ("value", "state"),
    [
        *((10**400, 2), (-(10**400), 0), ("9" * 5000, 2), ("-" + "9" * 5000, 0), (1e999, 2), (-INFINITY, 0)),
        *(("inf", 2), ("-Infinity", 0), ("1e999", 2), (10**5000, 2), (-(10**5000), 0), (2**63, 2), (-(2**1024), 0)),
        *((True, 0), (Decimal("1e400"), 2), (Decimal("-15"), 0), (Decimal("Infinity"), 2)),
        *((Fraction(10**400), 2), (Fraction(31, 2), 1), (Fraction(-(10**400), 3), 0)),
        *((np.float32(15), 1), (np.int64(25), 2), (np.float64(INFINITY), 2), (b"15", 1), (" 15\n", 1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_of_any_size_and_type_are_the_outermost_states_and_never_an_exception(value: Any, state: int) -> None:
    discretiser = classifier_of(BANDS)
    assert discretiser.observe(0, value) == state
    assert discretiser.unusable == 0


@pytest.mark.parametrize(
    "value",
    [
        *("", "n/a", "nan", "-NAN", NAN, np.float64("nan"), Decimal("NaN"), Decimal("sNaN"), b"\xff", "١٥x"),
        *(object(), [1], (1, 2), {}, 1j, Hostile(), Endless(), np.array([1.0, 2.0]), "0x10", "\0", bytearray(b"")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_number_is_missing_and_never_an_exception(value: Any) -> None:
    discretiser = classifier_of(BANDS)
    discretiser.observe(0, 25.0)
    assert discretiser.observe(1, value) is None
    assert discretiser.unusable == 1


@pytest.mark.parametrize(
    "value",
    [Hostile(), Endless(), 10**5000, "broken", [1], b"on", 1.0, object()],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_known_name_is_missing_and_never_an_exception(value: Any) -> None:
    assert states(KINDS, ["on", " off "]) == [1, 0]
    discretiser = classifier_of(KINDS)
    assert discretiser.observe(0, value) is None
    assert discretiser.unusable == 1


def test_a_policy_may_name_a_state_for_what_is_missing() -> None:
    extra = {**BANDS, "states": ["a", "b", "c", "gone"], "missing": "gone"}
    document = Thresholds.model_validate_json(json.dumps(extra)).model_dump(mode="json")
    assert states(document, [None, 25, NAN, "x", 19]) == [3, 2, 3, 3, 2], "hysteresis goes on from the last reading"
    one_of_them = {**BANDS, "missing": "b"}
    document = Thresholds.model_validate_json(json.dumps(one_of_them)).model_dump(mode="json")
    assert states(document, [None, 25, None]) == [1, 2, 1]
    named = {**KINDS, "states": ["off", "on", "gone"], "missing": "gone"}
    document = Categories.model_validate_json(json.dumps(named)).model_dump(mode="json")
    assert states(document, [None, "on", "broken"]) == [2, 1, 2]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"missing": "gone"}, "missing names a state 'gone' that is not among the states"),
        ({"states": ["a", "b", "c", "gone"]}, "2 edges make 3 states, not 4"),
        ({"states": ["gone", "a", "b", "c"], "missing": "gone"}, "or 4 with the last for missing readings"),
        ({"states": ["a", "b", "c", "d", "gone"], "missing": "gone"}, "not 5"),
        ({"states": ["a", "b", "a"]}, "two states have the same name"),
        ({"default": 0}, "Extra inputs"),
    ],
)
def test_a_policy_whose_missing_state_does_not_fit_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Thresholds.model_validate_json(json.dumps({**BANDS, **change}))


_WHOLE = (0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308, -1.7976931348623157e308, math.inf, -math.inf, math.nan)


def thresholds(generator: random.Random) -> Thresholds:
    """Edges of all sizes, with or without hysteresis; some are exact in binary, most are not."""
    size = 10.0 ** generator.choice((-320, -300, -3, 0, 0, 1, 6, 300))
    edges = sorted({generator.choice((0.0, 0.1, 0.3, generator.gauss(0.0, 3.0))) * size for _ in range(4)})
    gaps = [high - low for low, high in pairwise(edges)]
    by = generator.choice((0.0, 0.49, 0.1, 1e-9)) * min(gaps, default=size)
    names = tuple(map(str, range(len(edges) + 1)))
    return Thresholds(edges=tuple(edges), states=names, hysteresis=by, hysteresis_ticks=generator.choice((0, 2, 10)))


def near(generator: random.Random, discretiser: Thresholds) -> Any:
    """A reading at an edge, or where hysteresis ends, or a few doubles beside it; or something else altogether."""
    value = generator.choice(discretiser.edges) + generator.choice((-1, 0, 1)) * discretiser.hysteresis
    for _ in range(generator.randrange(4)):
        value = math.nextafter(value, generator.choice((-math.inf, math.inf)))
    odd = generator.choice((None, "x", "on", repr(value), 10**400, Fraction(1, 3), True, *_WHOLE))
    return generator.choice((value, value, value, value, generator.gauss(0.0, 5.0), odd))


def double(discretiser: Thresholds, reading: Any) -> float:
    """A reading as a double, and none as NaN; a word for off or on is a number where one edge tells them apart."""
    if isinstance(reading, str) and len(discretiser.edges) == 1 and 0.0 < discretiser.edges[0] <= 1.0:
        reading = ON_OFF.get(reading, reading)
    try:
        return float(reading)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return math.nan


@pytest.mark.parametrize("seed", range(40))
def test_a_place_among_all_doubles_tells_what_the_double_tells(seed: int) -> None:
    generator = random.Random(seed)
    discretiser = thresholds(generator)
    core, last, before = classifier_of(discretiser.model_dump(mode="json")), -1, None
    for tick in sorted(generator.sample(range(500), 200)):
        reading = near(generator, discretiser)
        value, state = double(discretiser, reading), None
        if tick - last - 1 > discretiser.hysteresis_ticks:
            before = None
        if not math.isnan(value):
            state, by = bisect_right(discretiser.edges, value), discretiser.hysteresis
            if before is not None and by:
                up, down = (bisect_right(discretiser.edges, each) for each in (value - by, value + by))
                state = max(before, up) if state > before else min(before, down)
            last, before = tick, state
        assert core.observe(tick, reading) == state, (discretiser, tick, reading)
        assert core.observe(tick, 1.0) == state, "a tick that is asked for again keeps its state"
