"""Charts: the points of their lines, on round axes, inside the picture; nothing from outside."""

from __future__ import annotations

import math
import re

import pytest

from fugu.lanes import Plot, levels_width
from papers.chart import chart_lane, line_chart
from papers.rows import Chart, Line


@pytest.mark.parametrize(
    ("values", "logarithmic", "marks"),
    [
        ((0.0, 1.0), False, "0 0.2 0.4 0.6 0.8 1"),
        ((3.0, 41.0), False, "0 5 10 15 20 25 30 35 40 45"),
        ((0.5, 0.5), False, "0.5 0.6"),
        ((0.01, 1.0), True, "0.01 0.02 0.05 0.1 0.2 0.5 1"),
        ((1.0, 1e6), True, "1 10 100 1000 1e+04 1e+05 1e+06"),
    ],
)
def test_marks_are_round_and_hold_the_values(values: tuple[float, ...], logarithmic: bool, marks: str) -> None:
    lane = chart_lane(Chart("T", "x", "y", (Line("a", values, values),), logarithmic, logarithmic))
    assert [words for _, words in lane.marks] == [words for _, words in lane.levels] == marks.split()
    for (low, high), places in ((lane.span, lane.marks), (lane.range, lane.levels)):
        assert all(low <= place <= high for place, _ in places)
        for value in values:
            assert low <= (math.log10(value) if logarithmic else value) <= high


def test_a_chart_draws_its_points_and_escapes_words() -> None:
    many = tuple(float(at) for at in range(3000))
    lines = (
        Line("a < b", (1.0, 2.0, 100.0), (1.0, math.nan, 4.0)),
        Line.through("dots & more", [(1.0, 2.0), (10.0, 3.0)], joined=False),
        Line("long", many, many),
    )
    chart = Chart("T", "x", "y", lines, log_x=True)
    drawn = line_chart(chart)
    assert "a &lt; b" in drawn
    assert "dots &amp; more" in drawn
    assert "nan" not in drawn
    assert len(drawn) < 20_000
    lane = chart_lane(chart)
    assert lane.shapes[0].points == [(0.0, 1.0), (2.0, 4.0)]
    assert lane.shapes[1].points == [(0.0, 2.0), (1.0, 3.0)]
    plot = Plot(lane, 404, levels_width([lane]))
    paths = re.findall(r'class="shape [^"]*" d="([^"]*)"', drawn)
    assert paths == [plot.path(shape) for shape in lane.shapes]
    assert [len(re.findall("[ML]", path)) for path in paths] == [2, 2, 375]
    for x, y in re.findall(r"([\d.]+),([\d.]+)", " ".join(paths)):
        assert 0 <= float(x) <= plot.right
        assert 0 <= float(y) <= plot.height
