"""Pictures as SVG text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

__all__ = ["Axis", "frame", "points", "svg"]


def svg(title: str, size: tuple[float, float], parts: Iterable[str], *, style: str = "", shown: str = "") -> str:
    """An element of this width and height, whose title is for screen readers as well.

    One with a style is on white; without, its words have the colour of the text around it.
    """
    width, height = size
    white = f'<rect class="paper" width="{width}" height="{height}" fill="#fff"/>' if style else ""
    shown = shown if style else f'{shown} fill="currentColor"'.strip()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"{shown and " " + shown} role="img">'
        f"<title>{escape(title)}</title>{style}{white}{''.join(parts)}</svg>"
    )


def points(places: Iterable[tuple[float, float]]) -> str:
    """Places one after the other, as in a path or a polyline."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


class Axis:
    """From values to places in a picture, with a few round values to mark.

    Args:
        values: that have a place; the axis goes from the least to the largest.
        logarithmic: or linear, out to round values.
        first, last: places of its ends.
    """

    def __init__(self, values: Sequence[float], logarithmic: bool, first: float, last: float) -> None:
        inside = [value for value in values if math.isfinite(value) and (value > 0.0 or not logarithmic)] or [1.0]
        low, high = min(inside), max(inside)
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
        yield f'<path d="M{xs.first} {at:.1f}H{xs.last}" stroke="#8888" stroke-width=".6"/>'
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
    marks = [part * 10.0**power for power in powers for part in between]
    return [value for value in marks if low * 0.999 <= value <= high * 1.001][:: max(1, len(marks) // 12)]
