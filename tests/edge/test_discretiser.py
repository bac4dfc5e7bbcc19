"""Readings become states; what is unusable repeats the last one; a reading never shows its value."""

from __future__ import annotations

import copy
import pickle

import pytest

from edge_agent.discretiser import Discretiser
from edge_agent.reading import Reading

SECRET = 71.5319
BANDS = {"kind": "thresholds", "edges": [10.0, 20.0], "states": ["a", "b", "c"], "hysteresis": 2.0, "default": 1}
KINDS = {"kind": "categories", "categories": {"on": 1, "off": 0}, "states": ["off", "on"], "default": 0}


def states(document: dict[str, object], values: list[float | str | None]) -> list[int]:
    discretiser = Discretiser(document)
    return [discretiser.observe(None if value is None else Reading(value)) for value in values]


def test_edges_belong_to_the_upper_state() -> None:
    plain = {**BANDS, "hysteresis": 0.0}
    assert states(plain, [9.999, 10.0, 19.999, 20.0, -1e300, 1e300]) == [0, 1, 1, 2, 0, 2]


def test_hysteresis_keeps_the_state_until_the_edge_is_passed_by_its_width() -> None:
    assert states(BANDS, [15, 21, 22, 19, 18, 17.9, 8.1, 8, 7.9, 11, 12, 30, 0]) == [
        *(1, 1, 2, 2, 2, 1, 1, 1, 0, 0, 1, 2, 0),
    ]


def test_before_the_first_reading_the_default_and_then_the_last_state() -> None:
    assert states(BANDS, [None, 25, None, "30", None]) == [1, 2, 2, 2, 2]


@pytest.mark.parametrize("unusable", ["", "n/a", "nan", "inf", "-inf", float("nan"), float("inf")])
def test_an_unusable_number_repeats_the_last_state(unusable: float | str) -> None:
    discretiser = Discretiser(BANDS)
    discretiser.observe(Reading(25.0))
    assert discretiser.observe(Reading(unusable)) == 2
    assert discretiser.unusable == 1


def test_categories_and_the_unknown_one() -> None:
    assert states(KINDS, ["on", "broken", " off ", "on"]) == [1, 1, 0, 1]


def test_a_reading_never_shows_its_value() -> None:
    reading = Reading(SECRET)
    shown = [repr(reading), str(reading), f"{reading}", f"{reading:>20}", "%s" % reading, repr([reading])]  # noqa: UP031
    assert not any("71" in text for text in shown)
    with pytest.raises(TypeError):
        pickle.dumps(reading)
    with pytest.raises(TypeError):
        copy.copy(reading)
