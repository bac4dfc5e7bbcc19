"""Places become cells of a grid: by the cell they lie in, or the nearest one; what is no place is missing."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from edge_agent.sensors.opening import open_sensor
from edge_agent.sensors.source import ConfigError
from fugu.contract.discretisers import Cells
from tests.support.classifiers import classifier_of

SQUARE = {
    "kind": "cells",
    "origin": [48.0, 11.0],
    "step": [0.5, 0.25],
    "cells": [[0, 0], [2, 0], [0, 2], [2, 2], [9, 9]],
    "states": ["a", "b", "c", "d", "far"],
    "missing": None,
}


REPLAY = {"loop": False, "silence": "samples"}


def state(reading: float | str) -> int | None:
    return classifier_of(SQUARE).observe(0, reading)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("48.0,11.0", 0),  # south and west sides belong to the cell
        ("48.499999,11.249999", 0),
        (" 48.1 , 11.6 ", 1),
        ("49.2 11.1", 2),
        ("49.2\t11.7", 3),
        ("52.6,13.3", 4),
        ("47.9,11.1", 0),  # one row south of cell (0, 0)
        ("48.1,11.3", 0),  # column 1 is as near to (0, 0) as to (2, 0): the lowest index
        ("48.6,11.3", 0),  # the middle of all four
        ("48.6,11.6", 1),
        ("-90,-180", 0),
        ("90,180", 4),
        ("90.001,11", 4),
        ("48,180.5", 4),
        ("48.1,inf", 4),
        ("-inf 1", 0),
        ("1e999,1e999", 4),
        ("9" * 5000 + " " + "9" * 5000, 4),
        (f"-{10**400},11", 0),
    ],
)
def test_a_place_is_of_the_cell_it_lies_in_or_of_the_nearest(place: str, expected: int) -> None:
    assert state(place) == expected


def test_the_nearest_cell_is_that_of_exhaustive_search() -> None:
    cells = SQUARE["cells"]
    for row in range(-3, 12):
        for column in range(-3, 12):
            place = f"{48.0 + 0.5 * row + 0.2},{11.0 + 0.25 * column + 0.1}"
            distances = [math.hypot(column - x, row - y) for x, y in cells]
            nearest = min(range(len(cells)), key=lambda index: (round(distances[index], 9), index))
            assert state(place) == nearest


@pytest.mark.parametrize(
    "reading",
    ["", ",", "48.1", "48.1,", "48.1,11.1,3", "nan,11.1", "48.1,NaN", "n/a,1", 4.5, 10**5000, (48.1, 11.1)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_place_is_missing(reading: object) -> None:
    discretiser = classifier_of(SQUARE)
    assert discretiser.observe(0, reading) is None
    assert discretiser.observe(1, "52.6,13.3") == 4
    assert discretiser.observe(2, reading) is None
    assert discretiser.observe(3, None) is None
    assert discretiser.unusable == 2


@pytest.mark.parametrize("change", [{"missing": "b"}, {"missing": "lost", "states": [*"abcd", "far", "lost"]}])
def test_a_policy_may_name_a_cell_or_one_more_state_for_what_is_missing(change: dict[str, object]) -> None:
    document = json.dumps({**SQUARE, **change})
    device = classifier_of(Cells.model_validate_json(document).model_dump(mode="json"))
    expected = 1 if change["missing"] == "b" else 5
    assert [device.observe(0, None), device.observe(1, "n/a"), device.observe(2, "52.6,13.3")] == [
        *(expected, expected, 4)
    ]
    with pytest.raises(ValueError, match="make 5 states"):
        Cells.model_validate_json(json.dumps({**SQUARE, "states": [*"abcd", "far", "lost"]}))


def test_steps_too_small_for_numbers_stop_no_device() -> None:
    tiny = classifier_of({**SQUARE, "step": [5e-324, 5e-324]})
    assert tiny.observe(0, "52.6,13.3") == 4
    assert tiny.unusable == 0


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("t,lat,lon\n0,48.1,11.1\n1,,\n2,49.2,11.7\n", "lat,lon"),
        ("t,lat,lon\n0,48.1,11.1\n1,,\n2,49.2,11.7\n", "lat, lon"),
        ('t,value\n0,"48.1,11.1"\n1,\n2,"49.2,11.7"\n', "value"),
        ('t,"lat,lon"\n0,48.1 11.1\n1,\n2,49.2 11.7\n', "lat,lon"),
    ],
)
def test_recordings_deliver_places(tmp_path: Path, text: str, column: str) -> None:
    (tmp_path / "walk.csv").write_text(text)
    sensor = open_sensor({"kind": "replay", "file": str(tmp_path / "walk.csv"), "column": column, **REPLAY})
    discretiser = classifier_of(SQUARE)
    raw = [reading and reading.reveal() for reading in map(sensor.read, range(4))]
    assert [discretiser.observe(tick, value) for tick, value in enumerate(raw)] == [0, None, 3, None]
    assert discretiser.unusable == 0
    assert "48" not in f"{sensor.read(0)!r} {sensor.read(0)} {sensor.trouble}"


def test_a_missing_column_of_several_is_named(tmp_path: Path) -> None:
    (tmp_path / "walk.csv").write_text("lat,long\n48.1,11.1\n")
    with pytest.raises(ConfigError, match="has no column 'lon'"):
        open_sensor({"kind": "replay", "file": str(tmp_path / "walk.csv"), "column": "lat,lon", **REPLAY})
