"""Charts as SVG text: two axes, linear or logarithmic, lines and a key below them; nothing from outside."""

from __future__ import annotations

import math
from html import escape

from fugu.svg import Axis, frame, points, svg
from papers.rows import Chart, Line

__all__ = ["line_chart"]

_COLOURS = (
    "#0a7d5a",
    "#b83227",
    "#2b5c9e",
    "#c9742b",
    "#6b4c9a",
    "#222222",
    "#4fae88",
    "#d98880",
    "#7f8c8d",
    "#a67c00",
)
_WIDTH, _LEFT, _RIGHT, _TOP, _PLOT = 560, 62, 14, 14, 260
_MOST_POINTS = 400
_ROW = 17


def line_chart(chart: Chart) -> str:
    """The chart as one `svg` element."""
    lines = [_thinned(line) for line in chart.lines]
    xs = Axis([value for line in lines for value in line.x], chart.log_x, _LEFT, _WIDTH - _RIGHT)
    ys = Axis([value for line in lines for value in line.y], chart.log_y, _PLOT, _TOP)
    bottom = _PLOT + 38
    height = bottom + _ROW * len(lines) + 6
    turned = (_TOP + _PLOT) / 2
    parts = [
        *frame(xs, ys, chart.x_axis),
        f'<path d="M{_LEFT} {_TOP}V{_PLOT}H{_WIDTH - _RIGHT}" fill="none" stroke="#888"/>',
        f'<text transform="translate(13 {turned:.0f}) rotate(-90)" text-anchor="middle">{escape(chart.y_axis)}</text>',
    ]
    for number, line in enumerate(lines):
        colour, down = _COLOURS[number % len(_COLOURS)], bottom + _ROW * (number + 1) - 5
        later = sum(not other.joined for other in lines[number + 1 :])  # whose spots are smaller, so that all are seen
        dash = ' stroke-dasharray="6 3"' if number >= len(_COLOURS) else ""
        parts.append(_drawn(line, xs, ys, colour, dash, 5 + 4 * min(later, 3)))
        parts.append(f'<path d="M{_LEFT} {down - 4}h22" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="{_LEFT + 28}" y="{down}">{escape(line.name)}</text>')
    return svg(chart.title, (_WIDTH, height), parts)


def _thinned(line: Line) -> Line:
    """At most some hundred points, evenly taken, the last one included."""
    every = -(-len(line.x) // _MOST_POINTS)
    if every <= 1:
        return line
    chosen = [*range(0, len(line.x), every), len(line.x) - 1]
    return line._replace(x=tuple(line.x[at] for at in chosen), y=tuple(line.y[at] for at in chosen))


def _drawn(line: Line, xs: Axis, ys: Axis, colour: str, dash: str, wide: int) -> str:
    shown = [(x, y) for x, y in zip(line.x, line.y, strict=True) if math.isfinite(x) and math.isfinite(y)]
    places = [(xs.place(x), ys.place(y)) for x, y in shown]
    if line.joined and len(places) > 1:
        return f'<polyline points="{points(places)}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>'
    spots = "".join(f"M{x:.1f},{y:.1f}h0" for x, y in places)
    return f'<path d="{spots}" stroke="{colour}" stroke-width="{wide}" stroke-linecap="round"/>'
