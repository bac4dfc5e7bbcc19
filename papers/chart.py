"""Charts as lanes, with a key below them: two axes, linear or logarithmic, and lines or dots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Literal

from fugu.lanes import Lane, Shape, lanes_svg
from papers.rows import Chart, Line

__all__ = ["CHART_STYLE", "chart_lane", "line_chart"]

_COLOURS = [
    "#0d9268",
    "#d24a3c",
    "#3f7fd0",
    "#c9742b",
    "#8f6cc9",
    "#7d8a91",
    "#1a8f99",
    "#b0567a",
    "#a67c00",
    "#6f8f2f",
]
CHART_STYLE = "".join(
    [
        ".fugu .own{stroke:var(--own);stroke-width:1.8}.fugu .dot{stroke-linecap:round}.fugu .later{opacity:1}",
        "li.own{list-style:none}li.own::before{content:'';display:inline-block;width:1.5em;margin-right:.6em;",
        "border-top:3px solid var(--own);vertical-align:middle}",
        *(f".own.c{number}{{--own:{colour}}}" for number, colour in enumerate(_COLOURS)),
        *(f".fugu .dot.later{later}{{stroke-width:{5 + 4 * later}}}" for later in range(4)),
    ]
)
"""Rules for the page that has charts."""
_MOST_POINTS = 400


def line_chart(chart: Chart) -> str:
    """The chart as HTML: a picture, and a key."""
    keys = "".join(
        f'<li class="own c{at % len(_COLOURS)}">{escape(line.name)}</li>' for at, line in enumerate(chart.lines)
    )
    return f"{lanes_svg(chart.title, [chart_lane(chart)], narrow=True)}<ul>{keys}</ul>"


def chart_lane(chart: Chart) -> Lane:
    """The chart as a lane without words beside it; logarithmic axes are those of decimal logarithms."""
    lines = [_shown(line, chart) for line in chart.lines]
    span, marks = _axis([x for line in lines for x, _ in line], chart.log_x)
    heights, levels = _axis([y for line in lines for _, y in line], chart.log_y)
    shapes = list[Shape]()
    for number, (line, points) in enumerate(zip(chart.lines, lines, strict=True)):
        later = sum(not other.joined for other in chart.lines[number + 1 :])  # their dots are smaller: all are seen
        kind: Literal["line", "dots"] = "line" if line.joined and len(points) > 1 else "dots"
        look = f"own c{number % len(_COLOURS)}" + f" dot later{min(later, 3)}" * (kind == "dots")
        shapes.append(Shape(kind, look, points))
    head = f"{chart.y_axis}, by {chart.x_axis}"
    return Lane("leaves", "", "", "", head, 300, span, marks, heights, levels, shapes)


def _shown(line: Line, chart: Chart) -> list[tuple[float, float]]:
    """Finite points on the chart's axes: at most some hundred, evenly taken, the last one included."""
    every = -(-len(line.x) // _MOST_POINTS)
    points = [*zip(line.x, line.y, strict=True)]
    if every > 1:
        points = [*points[::every], points[-1]]
    on_axes = [(_place(x, chart.log_x), _place(y, chart.log_y)) for x, y in points]
    return [(x, y) for x, y in on_axes if math.isfinite(x) and math.isfinite(y)]


def _place(value: float, logarithmic: bool) -> float:
    if not logarithmic:
        return value
    return math.log10(value) if 0.0 < value < math.inf else math.nan


def _axis(places: Sequence[float], logarithmic: bool) -> tuple[tuple[float, float], list[tuple[float, str]]]:
    """Ends of an axis, and words at round values; a linear one goes out to round values."""
    low, high = min(places, default=0.0), max(places, default=0.0)
    if logarithmic:
        high = max(high, low + 0.3)
        return (low, high), _powers(10.0**low, 10.0**high)
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span))
    step = next(step * power for step in (0.1, 0.2, 0.5, 1.0, 2.0) if span / (step * power) <= 8.0)
    first = math.floor(low / step)
    last = max(math.ceil(high / step), first + 1)
    marks = [(step * at, f"{step * at:.4g}") for at in range(first, last + 1)]
    return (step * first, step * last), marks


def _powers(low: float, high: float) -> list[tuple[float, str]]:
    """Round values between two positive ones, at the places of their decimal logarithms."""
    digits = (1, 2, 5) if high / low < 2e3 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [digit * 10.0**power for power in powers for digit in digits]
    return [(math.log10(value), f"{value:.4g}") for value in values if low * 0.999 <= value <= high * 1.001]
