"""Charts as SVG text: two axes, linear or logarithmic, lines and a key below them; nothing from outside."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

from gateway.reproduce.rows import Chart, Line
from gateway.svg import points, svg

__all__ = ["Axis", "frame", "line_chart"]

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
        later = sum(not one.joined for one in lines[number + 1 :])  # whose spots are smaller, so that all are seen
        dash = ' stroke-dasharray="6 3"' if number >= len(_COLOURS) else ""
        parts.append(_drawn(line, xs, ys, colour, dash, 5 + 4 * min(later, 3)))
        parts.append(f'<path d="M{_LEFT} {down - 4}h22" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="{_LEFT + 28}" y="{down}">{escape(line.name)}</text>')
    return svg(chart.title, (_WIDTH, height), parts)


class Axis:
    """From values to places in a picture, with a few round values to mark.

    Args:
        values: that have a place; the axis goes from the least to the largest.
        logarithmic: or linear, out to round values.
        first, last: places of its ends.
    """

    def __init__(self, values: Sequence[float], logarithmic: bool, first: float, last: float) -> None:
        seen = [value for value in values if math.isfinite(value) and (value > 0.0 or not logarithmic)] or [1.0]
        low, high = min(seen), max(seen)
        self._scale = math.log if logarithmic else float
        self.first, self.last = first, last
        if logarithmic:
            self._low, self._high = low, high if high > 1.01 * low else 2.0 * low
            self.marks = _powers(self._low, self._high)
        else:
            step = _round_step((high - low) or abs(high) or 1.0)
            self._low, self._high = math.floor(low / step) * step, math.ceil(high / step) * step
            if self._low == self._high:
                self._high += step
            count = round((self._high - self._low) / step)
            self.marks = [self._low + step * place for place in range(count + 1)]

    def place(self, value: float) -> float:
        """Where a value is, held inside the axis."""
        low, high = self._scale(self._low), self._scale(self._high)
        at = self._scale(min(max(value, self._low), self._high))
        return self.first + (at - low) / (high - low) * (self.last - self.first)


def frame(xs: Axis, ys: Axis, x_axis: str, text: Callable[[float], str] = "{:.4g}".format) -> Iterator[str]:
    """The beginning of a picture: a line and a word for each mark of the upright axis, words for the other.

    Args:
        x_axis: what the level axis shows.
        text: of a mark of the upright axis.
    """
    for value in ys.marks:
        at = ys.place(value)
        yield f'<path d="M{xs.first} {at:.1f}H{xs.last}" stroke="#e4e4e4"/>'
        yield f'<text x="{xs.first - 6}" y="{at + 4:.1f}" text-anchor="end">{text(value)}</text>'
    for value in xs.marks:
        at = xs.place(value)
        yield f'<path d="M{at:.1f} {ys.first}v5" stroke="#888"/>'
        yield f'<text x="{at:.1f}" y="{ys.first + 18}" text-anchor="middle">{value:.4g}</text>'
    middle = (xs.first + xs.last) / 2
    yield f'<text x="{middle:.0f}" y="{ys.first + 33}" text-anchor="middle">{escape(x_axis)}</text>'


def _round_step(span: float) -> float:
    """A step of 1, 2 or 5 times a power of ten, of which four to eight make a span."""
    power = 10.0 ** math.floor(math.log10(span))
    return next(step * power for step in (0.1, 0.2, 0.5, 1.0, 2.0) if span / (step * power) <= 8.0)


def _powers(low: float, high: float) -> list[float]:
    """Round values of a logarithmic axis: powers of ten, and between them 2 and 5 where there is room."""
    between = (1.0, 2.0, 5.0) if high / low < 2e3 else (1.0,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [part * 10.0**power for power in powers for part in between]
    return [value for value in found if low * 0.999 <= value <= high * 1.001][:: max(1, len(found) // 12)]


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
