"""Places become cells of a grid: by the cell they lie in, or the nearest one; what is no place is missing."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from contract.discretisers import Cells
from edge_agent.config import ConfigError
from edge_agent.discretiser import Discretiser
from edge_agent.reading import Reading
from edge_agent.sensors import open_sensor

SQUARE = {
    "kind": "cells",
    "origin": [48.0, 11.0],
    "step": [0.5, 0.25],
    "cells": [[0, 0], [2, 0], [0, 2], [2, 2], [9, 9]],
    "states": ["a", "b", "c", "d", "far"],
    "default": 3,
}


def state(reading: float | str) -> int:
    return Discretiser(SQUARE).observe(Reading(reading))


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("48.0,11.0", 0),  # south and west sides belong to the cell
        ("48.499999,11.249999", 0),
        (" 48.1 , 11.6 ", 1),
        ("49.2 11.1", 2),
        ("49.2\t11.7", 3),
        ("52.6,13.3", 4),
    ],
)
def test_a_place_in_a_cell(place: str, expected: int) -> None:
    assert state(place) == expected


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("47.9,11.1", 0),  # one row south of cell (0, 0)
        ("48.1,11.3", 0),  # column 1 is as near to (0, 0) as to (2, 0): the lowest index
        ("48.6,11.3", 0),  # the middle of all four
        ("48.6,11.6", 1),
        ("-90,-180", 0),
        ("90,180", 4),
    ],
)
def test_a_place_outside_all_cells_belongs_to_the_nearest(place: str, expected: int) -> None:
    assert state(place) == expected


def test_the_nearest_cell_is_that_of_exhaustive_search() -> None:
    cells = SQUARE["cells"]
    assert isinstance(cells, list)
    for row in range(-3, 12):
        for column in range(-3, 12):
            place = f"{48.0 + 0.5 * row + 0.2},{11.0 + 0.25 * column + 0.1}"
            distances = [math.hypot(column - x, row - y) for x, y in cells]
            nearest = min(range(len(cells)), key=lambda index: (round(distances[index], 9), index))
            assert state(place) == nearest


@pytest.mark.parametrize(
    "reading",
    ["", ",", "48.1", "48.1,", "48.1,11.1,3", "nan,11.1", "48.1,inf", "-inf 1", "n/a,1", "90.001,11", "48,180.5", 4.5],
)  # fmt: skip
def test_what_is_no_place_is_missing_and_repeats_the_last_state(reading: float | str) -> None:
    discretiser = Discretiser(SQUARE)
    assert discretiser.observe(Reading(reading)) == 3
    assert discretiser.observe(Reading("52.6,13.3")) == 4
    assert discretiser.observe(Reading(reading)) == 4
    assert discretiser.observe(None) == 4
    assert discretiser.unusable == 2


def test_steps_too_small_for_numbers_stop_no_device() -> None:
    tiny = Discretiser({**SQUARE, "step": [5e-324, 5e-324]})
    assert tiny.observe(Reading("52.6,13.3")) == 3
    assert tiny.unusable == 1


def test_the_policy_form_is_what_the_device_runs() -> None:
    document = {**SQUARE, "origin": (48.0, 11.0), "step": (0.5, 0.25), "cells": ((0, 0), (1, 0)), "states": ("a", "b")}
    cells = Cells.model_validate({**document, "default": 0})
    assert Discretiser(cells.model_dump(mode="json")).observe(Reading("48.1,11.3")) == 1


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
    sensor = open_sensor({"kind": "replay", "file": str(tmp_path / "walk.csv"), "column": column, "loop": False})
    discretiser = Discretiser(SQUARE)
    assert [discretiser.observe(sensor.read(tick)) for tick in range(4)] == [0, 0, 3, 3]
    assert discretiser.unusable == 1
    assert "48" not in f"{sensor.read(0)!r} {sensor.read(0)} {sensor.error}"


def test_a_missing_column_of_several_is_named(tmp_path: Path) -> None:
    (tmp_path / "walk.csv").write_text("lat,long\n48.1,11.1\n")
    with pytest.raises(ConfigError, match="has no column 'lon'"):
        open_sensor({"kind": "replay", "file": str(tmp_path / "walk.csv"), "column": "lat,lon", "loop": False})
