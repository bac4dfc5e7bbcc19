"""`fugu plan model --grid`: places become cells, cells a chain on the largest set that communicates."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.classifiers import classifier_of
from tests.support.command import Fugu

STEP = 500 / 111_320  # degrees of latitude, and of longitude at the equator


def place(column: int, row: int) -> str:
    """A point inside a cell of the lattice at the equator."""
    return f"{(row + 0.4) * STEP!r},{(column + 0.6) * STEP!r}"


@pytest.fixture
def walks(tmp_path: Path) -> Path:
    """1: A B A C; 2: A B A E; 3: D A; 4: B A. C and E are never left, D is never entered: A and B are what remains."""
    a, b, c, d, e = (0, 0), (1, 0), (0, 1), (5, 5), (9, 9)
    rows = [("1", a), ("2", a), ("1", b), ("2", b), ("1", a), ("2", a), ("1", c), ("2", e)]
    rows += [("3", d), ("3", a), ("4", b), ("4", a)]
    text = "\n".join(f"{trace},{place(*cell)}" for trace, cell in rows)
    file = tmp_path / "walks.csv"
    file.write_text(f"trace,lat,lon\n{text}\n")
    return file


def fitted(fugu: Fugu, *words: object) -> Any:
    done = fugu("plan", "model", *words, "--grid", "--json")
    assert done.code == 0, done.err
    return done.json()


def test_counts_by_hand(fugu: Fugu, walks: Path) -> None:
    document = fitted(fugu, walks)
    assert document["coordinates"] == [[0, 0], [1, 0]]
    assert document["counts"] == [[0, 1, 2], [1, 0, 3]]
    assert document["transition"] == [[0, 1], [1, 0]]
    assert document["initial"] == [0.5, 0.5]
    assert document["names"] == ["x0y0", "x1y0"]
    assert (document["resolution"], document["period_seconds"], document["source"]) == (500, None, "walks.csv")
    assert (document["rows"], document["missing"], document["visited"]) == (12, 0, 5)
    assert (document["outside"], document["visits"], document["transitions"]) == (3, [6, 3], 5)


def test_the_device_puts_places_into_the_same_cells(fugu: Fugu, tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    steps = generator.normal(0, 0.002, size=(3000, 2))
    walk = np.array([48.13, 11.57]) + 0.02 * np.sin(np.cumsum(steps, axis=0) / 0.02)
    file = tmp_path / "walk.csv.gz"
    lines = [f"{latitude!r},{longitude!r}" for latitude, longitude in walk.tolist()]
    file.write_bytes(gzip.compress(("latitude,lng\n" + "\n".join(lines)).encode()))
    document = fitted(fugu, file)
    cells = document["coordinates"]
    names = document["names"]
    device = classifier_of({"kind": "cells", **document["grid"], "cells": cells, "states": names, "missing": None})
    seen = [device.observe(tick, line) for tick, line in enumerate(lines)]
    visits = np.bincount(seen, minlength=len(cells))
    assert np.all(visits >= document["visits"])
    assert visits.sum() - sum(document["visits"]) == document["outside"]
    assert device.unusable == 0
    assert min(x for x, _ in cells) == min(y for _, y in cells) == 0
    height, width = document["grid"]["step"]
    assert (height * 111_320, width * 111_320 * math.cos(math.radians(48))) == pytest.approx((500, 500))
    np.testing.assert_allclose(np.sum(document["transition"], axis=1), 1)
    np.testing.assert_allclose(np.array(document["initial"]) @ document["transition"], document["initial"], atol=1e-12)


def test_a_period_takes_the_newest_place_and_cuts_silences(fugu: Fugu, tmp_path: Path) -> None:
    a, b = place(0, 0), place(1, 0)
    # ticks 0, 10, 20, 30 of the first part: a a b b (8 and 29 are the newest); a new part at 100: b b a
    rows = [(0, a), (8, a), (12, b), (19, b), (29, b), (100, b), (111, b), (119, a), (125, a)]
    file = tmp_path / "walk.csv"
    file.write_text("t,lat,lon\n" + "\n".join(f"{t},{cell}" for t, cell in rows))
    document = fitted(fugu, file, "--period", 10)
    # 0:a 10:a 20:b | 100:b 110:b 120:a
    assert document["counts"] == [[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]]
    assert document["period_seconds"] == 10
    assert fitted(fugu, file)["period_seconds"] == pytest.approx(8)


@pytest.mark.long
def test_where_many_rows_have_no_place_the_most_visited_cell_stands_in_for_them(fugu: Fugu, tmp_path: Path) -> None:
    """A A . B . A over and over: a device with such a policy takes missing places for A as well."""
    a, b = place(0, 0), place(1, 0)
    file = tmp_path / "walk.csv"
    file.write_text("lat,lon\n" + "\n".join([a, a, ",", b, ",", a] * 10) + "\n")
    document = fitted(fugu, file)
    assert (document["rows"], document["missing"], document["visits"]) == (60, 20, [30, 10])
    assert document["grid"]["missing"] == "x0y0"
    assert document["counts"] == [[0, 0, 39], [0, 1, 10], [1, 0, 10]]
    shown = fugu("plan", "model", file, "--grid").out
    assert "20 rows (33.3%) have no place, which is more than 1 %. The most visited cell, x0y0, stands in" in shown
    model, spec, policy = tmp_path / "model.json", tmp_path / "spec.json", tmp_path / "policy.json"
    model.write_text(json.dumps(document))
    header = {"fleet": "home", "device": "watch", "stream": "place", "period": 60}
    spec.write_text(json.dumps({"transition": "model.json", "graph": {"complete": True}, "epsilon": 1, **header}))
    done = fugu("plan", "measure", spec, "--quick", "-o", policy)
    assert done.code == 0, done.err
    device = classifier_of(json.loads(policy.read_text())["discretiser"])
    readings = (b, None, "lost", a)
    assert [device.observe(tick, reading) for tick, reading in enumerate(readings)] == [1, 0, 0, 0]


def test_a_period_takes_missing_rows_for_missing_and_carries_nothing_over_them(fugu: Fugu, tmp_path: Path) -> None:
    """Every 10 s: a a . b a; the row at 12 has no place, and is the newest at 20."""
    a, b = place(0, 0), place(1, 0)
    rows = [(0, a), (8, a), (12, ","), (28, b), (40, a)]
    file = tmp_path / "walk.csv"
    file.write_text("t,lat,lon\n" + "\n".join(f"{t},{cell}" for t, cell in rows))
    document = fitted(fugu, file, "--period", 10)
    # 0:a 10:a 20:missing, for which a stands in 30:b 40:a
    assert document["counts"] == [[0, 0, 2], [0, 1, 1], [1, 0, 1]]
    few = [(10 * i, a if i % 2 else b) for i in range(200)]
    few[100] = (1000, ",")
    file.write_text("t,lat,lon\n" + "\n".join(f"{t},{cell}" for t, cell in few))
    assert sum(count for *_, count in fitted(fugu, file)["counts"]) == 197


def test_for_people_and_the_file(fugu: Fugu, walks: Path, tmp_path: Path) -> None:
    done = fugu("plan", "model", walks, "--grid", "-o", tmp_path / "model.json")
    assert done.code == 0
    for piece in ("Cells of 500 m", "cells of the chain", "2, within 2 columns and 1 rows", "5 (3 places lie outside"):
        assert piece in done.out
    assert "leaks" in done.err
    assert json.loads((tmp_path / "model.json").read_text()) == fitted(fugu, walks)


def test_silences_that_count_as_steps_are_told(fugu: Fugu, tmp_path: Path) -> None:
    times = (0, 60, 120, 180, 9000, 9060, 9180, 9301)
    rows = [f"{moment},{place(number % 2, 0)}" for number, moment in enumerate(times)]
    (tmp_path / "w.csv").write_text("\n".join(["t,lat,lon", *rows, ""]))
    shown = fugu("plan", "model", tmp_path / "w.csv", "--grid").out
    assert "2 silences of more than two periods count as one step each" in shown
    assert "silences" not in fugu("plan", "model", tmp_path / "w.csv", "--grid", "--period", "60").out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "lat,lon\n1,179.999\n1,-179.999\n1,179.999\n",
            "r.csv: places on both sides of the 180th meridian cannot be cells of one grid",
        ),
        ("lat,lon\n1,2\n91,2\n", "r.csv: line 3, column lat is not within -90..90"),
        ("lat,lon\n1,2\n1,-181\n", "r.csv: line 3, column lon is not within -180..180"),
        ("lat,lon\n1,inf\n", "r.csv: line 2, column lon is no finite number"),
        ("lat,lon\n1,east\n", "r.csv: line 2, column lon is no finite number"),
        ("lat,x\n1,2\n", "r.csv has no column 'lon'; it has lat, x"),
        ("lat,lon\n,\n", "r.csv: no row has a place"),
        ("lat,lon\n1,2\n1,2\n", "r.csv: all places lie in one cell of 500 m: take smaller cells"),
        (
            "lat,lon\n1,2\n3,4\n",
            "r.csv: no trace goes from a cell of 500 m to another one and back: there is no chain of two cells to fit",
        ),
    ],
)
def test_what_cannot_be_fitted(fugu: Fugu, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    done = fugu("plan", "model", tmp_path / "r.csv", "--grid")
    assert (done.code, done.out, done.err) == (1, "", f"fugu: {message}\n")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--grid", "--threshold", "mean"), 2, "--threshold: with --grid, places make the states"),
        (("--cell", "100"), 2, "--cell: only with --grid"),
        (("--grid", "--cell", "0"), 1, "cell must be above 0 and finite, got 0"),
        (("--grid", "--cell", ".5"), 1, "a cell is from 1 to 100000 metres wide, got 0.5"),
        (("--grid", "--period", "5"), 1, "walks.csv has no column of times, which --period needs"),
    ],
)
def test_options_that_do_not_fit(fugu: Fugu, walks: Path, words: tuple[str, ...], code: int, message: str) -> None:
    done = fugu("plan", "model", walks, *words)
    assert (done.code, done.out, done.err) == (code, "", f"fugu: {message}\n")
