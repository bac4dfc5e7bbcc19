"""Charts: every point and mark inside the picture, round marks, nothing from outside."""

from __future__ import annotations

import math
import re

import pytest

from fugu.svg import Axis
from papers.chart import line_chart
from papers.rows import Chart, Line


@pytest.mark.parametrize(
    ("values", "logarithmic", "marks"),
    [
        ([0.0, 1.0], False, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ([3.0, 41.0], False, [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 45.0]),
        ([0.5, 0.5], False, [0.5, 0.6]),
        ([0.01, 1.0], True, [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]),
        ([1.0, 1e6], True, [10.0**power for power in range(7)]),
    ],
)
def test_marks_are_round_and_hold_the_values(values: list[float], logarithmic: bool, marks: list[float]) -> None:
    axis = Axis(values, logarithmic, 100.0, 20.0)
    assert axis.marks == pytest.approx(marks)
    assert all(20.0 <= axis.place(value) <= 100.0 for value in [*values, *axis.marks])
    assert axis.place(min(values)) >= axis.place(max(values))


def test_a_logarithmic_axis_is_one() -> None:
    axis = Axis([1.0, 100.0], True, 0.0, 10.0)
    assert [axis.place(value) for value in (1.0, 10.0, 100.0, 1e9, 1e-9)] == pytest.approx([0.0, 5.0, 10.0, 10.0, 0.0])


def test_a_chart_holds_its_lines_and_escapes_words() -> None:
    many = tuple(float(at) for at in range(3000))
    lines = (
        Line("a < b", (1.0, 2.0, 3.0), (1.0, math.nan, 4.0)),
        Line.through("dots & more", [(1.0, 2.0), (2.0, 3.0)], joined=False),
        Line("long", many, many),
    )
    drawn = line_chart(Chart("T", "x", "y", lines))
    assert "a &lt; b" in drawn
    assert "dots &amp; more" in drawn
    assert "nan" not in drawn
    assert len(drawn) < 20_000
    _, _, width, height = (float(size) for size in re.findall(r'viewBox="([\d. ]+)"', drawn)[0].split())
    for points in re.findall(r'points="([^"]*)"', drawn):
        for point in points.split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height
