"""Draw lanes on one axis of time, as numbers and as SVG: readings that stay, releases that leave, an attacker's odds.

`lanes.js` of the live page draws the same numbers in a browser; a test compares the points of both.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, Literal, NamedTuple, TypeAlias

__all__ = [
    "Lane",
    "Look",
    "Marks",
    "Plot",
    "Shape",
    "certainty_lane",
    "lanes_document",
    "lanes_svg",
    "levels_width",
    "part_shapes",
    "percent_marks",
    "share_scale",
    "share_shapes",
    "shares_lane",
    "time_marks",
]

Look: TypeAlias = Literal["stays", "leaves", "attacker"]
Marks: TypeAlias = Sequence[tuple[float, str]]
"""Labels with their places on an axis."""

LEFT, TOP, FOOT, AXIS_FOOT = 8, 14, 10, 30
"""Margins of a lane in pixels: words are above it, marks of time below."""
_LETTER = 7.6
"""The width of a letter of 12 px in pixels, in the widest of the usual fonts."""


class Shape(NamedTuple):
    """A shape of a lane, in the lane's units.

    Attributes:
        kind: "line" and "dots" have points (x, y), "range" and "band" (x, low, high). "bars" have (begin, end, low,
            high). "level" has one (y,), with words, and "zone" one (low, high).
        look: class of the style sheet.
        points: points in the order of time.
        words: label of a level, or of a single dot.
    """

    kind: Literal["line", "range", "band", "dots", "bars", "level", "zone"]
    look: str
    points: Sequence[tuple[float, ...]]
    words: str = ""


class Lane(NamedTuple):
    """A strip of a picture, with words beside it.

    Attributes:
        look: subject of the lane.
        title, number, words: words beside the lane, the number in large type; all empty if a caption has them.
        head: words above the lane that say what is drawn.
        height: height in pixels; 0 for a map, which is square.
        span, marks: ends of the horizontal axis, and labels below it; no labels if another lane has them.
        range, levels: ends of the vertical axis, and labels beside it.
        shapes: shapes that are drawn.
        middles: marks stand at the middles of parts, so that the first label has room.
    """

    look: Look
    title: str
    number: str
    words: str
    head: str
    height: int
    span: tuple[float, float]
    marks: Marks
    range: tuple[float, float]
    levels: Marks
    shapes: Sequence[Shape]
    middles: bool = False


def lanes_document(lanes: Sequence[Lane]) -> list[dict[str, Any]]:
    """Convert lanes for `lanes.js`; numbers have five digits, and infinite ones are `None`."""

    def rounded_point(point: Sequence[float]) -> list[float | None]:
        return [float(f"{coordinate:.5g}") if math.isfinite(coordinate) else None for coordinate in point]

    return [
        lane._asdict()
        | {"number": _unbroken(lane.number), "words": _unbroken(lane.words), "head": _unbroken(lane.head)}
        | {"shapes": [{**shape._asdict(), "points": [*map(rounded_point, shape.points)]} for shape in lane.shapes]}
        for lane in lanes
    ]


def _unbroken(words: str) -> str:
    """Keep numbers and their per cent sign on one line, by no-break spaces."""
    return words.replace(" %", "\N{NO-BREAK SPACE}%")


def percent_marks(shares: Sequence[float]) -> Marks:
    """Label shares in percent."""
    return [(share, f"{100 * share:g} %") for share in shares]


def _percent_axis(lane: Lane) -> Lane:
    """Label the ends and the middle of a lane's vertical axis in percent."""
    low, high = lane.range
    return lane._replace(levels=percent_marks((low, (low + high) / 2, high)))


def shares_lane(
    number: str,
    words: str,
    head: str,
    height: int,
    span: tuple[float, float],
    shapes: Sequence[Shape] = (),
    top: float = 1.0,
) -> Lane:
    """A lane of released shares from 0 up to `top`."""
    return _percent_axis(Lane("leaves", "Leaves", number, words, head, height, span, (), (0.0, top), (), shapes))


def certainty_lane(
    number: str,
    words: str,
    head: str,
    height: int,
    span: tuple[float, float],
    shapes: Sequence[Shape] = (),
    marks: Marks = (),
) -> Lane:
    """A lane of an attacker's certainty, from 50 % to 100 %."""
    return _percent_axis(Lane("attacker", "Attacker", number, words, head, height, span, marks, (0.5, 1.0), (), shapes))


_SCALES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_MOST_DOTS = 240
_STEPS = (
    (1 / 60, "min", 60.0),
    (0.25, "min", 60.0),
    (1.0, "h", 1.0),
    (6.0, "h", 1.0),
    (24.0, "d", 1 / 24),
    (168.0, "d", 1 / 24),
)


def time_marks(hours: float) -> Marks:
    """At most eight labels along an axis of time from 0 to some hours."""
    step, unit, units_per_hour = next((step_unit for step_unit in _STEPS[::-1] if hours >= 4 * step_unit[0]), _STEPS[0])
    step *= max(1, math.ceil(hours / step / 8))
    return [(step * n, f"{step * n * units_per_hour:g} {unit}") for n in range(1, int(hours / step + 1e-9) + 1)]


def share_scale(shares: Iterable[float]) -> float:
    """The end of an axis of shares: the least of the usual ones that has room for all."""
    largest_share = min(max(shares, default=0.0), 1.0)
    return next(scale for scale in _SCALES if largest_share <= scale)


def share_shapes(
    times: Sequence[float], released: Sequence[float], truth: Sequence[float], half_width: float, top: float
) -> list[Shape]:
    """Draw released shares over time with a band of `half_width`, and the truth, which may be empty."""
    points = [*zip(times, released, strict=True)]
    band = [(x, max(share - half_width, 0.0), min(share + half_width, top)) for x, share in points]
    return [
        Shape("band", "within", band if half_width else ()),
        Shape("line", "truth", [*zip(times, truth, strict=False)]),
        Shape("line", "got", points),
        Shape("dots", "point", points if len(points) <= _MOST_DOTS else ()),
        Shape("dots", "point newest", points[-1:]),
    ]


def part_shapes(released: Sequence[float], truth: Sequence[float], half_width: float, top: float) -> list[Shape]:
    """Draw released shares of the parts of a day as bars with error ranges, and the truth, which may be empty."""
    bars = [(part + 0.2, part + 0.8, 0.0, share) for part, share in enumerate(released)]
    error_ranges = [
        (part + 0.475, part + 0.525, max(share - half_width, 0.0), min(share + half_width, top))
        for part, share in enumerate(released)
    ]
    truth_lines = [(part + 0.1, part + 0.9, share, share) for part, share in enumerate(truth)]
    return [Shape("bars", "bar", bars), Shape("bars", "reach", error_ranges), Shape("bars", "truth", truth_lines)]


def levels_width(lanes: Sequence[Lane]) -> float:
    """The pixels that the labels of all vertical axes need."""
    return 14 + _LETTER * max((len(words) for lane in lanes for _, words in lane.levels), default=0)


class Plot:
    """The pixel positions of a lane's numbers.

    Args:
        lane: lane that is drawn.
        width: width of the picture in pixels.
        label_width: part of the width for labels of levels; equal for all lanes of a picture, like the axis of time.
    """

    def __init__(self, lane: Lane, width: float, label_width: float) -> None:
        self.lane = lane
        self.right = width - label_width
        foot_height = AXIS_FOOT if lane.marks else FOOT
        self.height = lane.height or self.right - LEFT + TOP + foot_height
        self.bottom = self.height - foot_height

    def x(self, position: float) -> float:
        """The pixel of a position on the horizontal axis."""
        begin, end = self.lane.span
        return LEFT + (position - begin) / (end - begin) * (self.right - LEFT)

    def y(self, value: float) -> float:
        """The pixel of a value on the vertical axis, clamped to the lane."""
        low, high = self.lane.range
        return self.bottom - (min(max(value, low), high) - low) / (high - low) * (self.bottom - TOP)

    def path(self, shape: Shape) -> str:
        """The SVG path of a shape."""
        x, y = self.x, self.y
        match shape.kind:
            case "line":
                return "".join(
                    f"{'L' if index else 'M'}{_points([(x(a), y(b))])}" for index, (a, b) in enumerate(shape.points)
                )
            case "dots":
                return "".join(f"M{_points([(x(a), y(b))])}h0" for a, b in shape.points)
            case "range":
                return "".join(
                    f"{'L' if index else 'M'}{_points([(x(a), y(low)), (x(a), y(high))])}"
                    for index, (a, low, high) in enumerate(shape.points)
                )
            case "band":
                edges = [(x(a), y(high)) for a, _, high in shape.points], [(x(a), y(low)) for a, low, _ in shape.points]
                return f"M{_points([*edges[0], *edges[1][::-1]])}Z" if shape.points else ""
            case "bars":
                return "".join(
                    f"M{_points([(x(a), y(low)), (x(a), y(high)), (x(b), y(high)), (x(b), y(low))])}Z"
                    for a, b, low, high in shape.points
                )
            case "level":
                [(value,)] = shape.points
                return f"M{_points([(LEFT, y(value)), (self.right, y(value))])}"
            case "zone":
                [(low, high)] = shape.points
                return f"M{_points([(LEFT, y(low)), (LEFT, y(high)), (self.right, y(high)), (self.right, y(low))])}Z"

    def shown_marks(self) -> Marks:
        """The labels of the horizontal axis with their pixels, thinned out so that none overlap."""
        marks = self.lane.marks
        mark_width = _LETTER * max((len(words) for _, words in marks), default=0) + 12
        mark_stride = max(1, math.ceil(mark_width * len(marks) / (self.right - LEFT)))
        first_mark = (mark_stride - 1) // 2 if self.lane.middles else mark_stride - 1
        placed_marks = [(self.x(position), words) for position, words in marks[first_mark::mark_stride]]
        return [(x, words) for x, words in placed_marks if x >= 0.5 * _LETTER * len(words)]

    def elements(self) -> Iterator[str]:
        """Yield all SVG elements of the lane."""
        for value, words in self.lane.levels:
            yield f'<path class="grid" d="M{_points([(LEFT, self.y(value)), (self.right, self.y(value))])}"/>'
            yield _text_element(self.right + 8, self.y(value) + 4, words)
        for x, words in self.shown_marks():
            yield _text_element(x, self.height - 8, words, "mark")
        for shape in self.lane.shapes:
            yield f'<path class="shape {shape.look}" d="{self.path(shape)}"/>'
        for shape in self.lane.shapes:
            if shape.words:
                *times, value = shape.points[0]
                x, y = self.x(*times) + 3 if times else LEFT, self.y(value)
                yield _text_element(x + 4, y - 6 if y > TOP + 16 else y + 17, shape.words, f"words {shape.look}")


_LIGHT = (
    "--card:#fff;--ink:#17201c;--mute:#5c6962;--line:#e1e5e1;--in:#eef0f2;--raw:#4b5563;--go:#0b7a5b;--eye:#6d4bc3;"
    "--bad:#c2410c"
)
_DARK = (
    "--card:#171d1a;--ink:#e8eeea;--mute:#9aa8a0;--line:#29332e;--in:#1d242a;--raw:#a9b4c0;--go:#4fd1a5;--eye:#b79cff;"
    "--bad:#ff9166"
)
_THICK = "stroke-width:3.4;stroke-linecap:round;opacity:.75"
_DASHED = "stroke-width:1.5;stroke-dasharray:6 4"
_RULES = (
    ("text", 'font:12px system-ui,"DejaVu Sans",sans-serif;fill:var(--mute)'),
    (".mark", "text-anchor:middle"),
    (".title", "font-size:15px;font-weight:700"),
    (".number", "font-size:28px;font-weight:700"),
    (".stays :is(.title,.number)", "fill:var(--raw)"),
    (".leaves :is(.title,.number)", "fill:var(--go)"),
    (".attacker :is(.title,.number)", "fill:var(--eye)"),
    (".card", "fill:var(--card);stroke:var(--line)"),
    (".inside", "fill:var(--in)"),
    ("path", "fill:none"),
    (".grid", "stroke:var(--line)"),
    (".edge", "stroke:var(--go);stroke-width:2;stroke-dasharray:6 4"),
    (".raw", "stroke:var(--raw);stroke-width:.9"),
    (".later", "stroke:var(--raw);stroke-width:.8;opacity:.28"),
    (".within", "fill:var(--go);fill-opacity:.18"),
    (".got", "stroke:var(--go);stroke-width:2"),
    (".truth", "stroke:var(--ink);stroke-width:1.2;stroke-dasharray:3 3;opacity:.8"),
    (".point", "stroke:var(--go);stroke-width:6;stroke-linecap:round"),
    (".bar", "fill:var(--go);fill-opacity:.6"),
    (".reach", "fill:var(--ink)"),
    (".allowed", "fill:var(--eye);fill-opacity:.12"),
    (".promise", f"stroke:var(--eye);{_DASHED}"),
    (".nobody", f"stroke:var(--mute);{_DASHED}"),
    (".sure", f"stroke:var(--eye);{_THICK}"),
    (".beyond", f"stroke:var(--bad);{_THICK}"),
    (".most", "fill:var(--eye);fill-opacity:.75"),
    (".bare", "fill:var(--bad);fill-opacity:.75"),
    (".cell", "stroke:var(--line)"),
    (".ran", "fill:var(--raw)"),
    (".here", "stroke:var(--raw);stroke-width:9;stroke-linecap:round"),
    (".exposed", "stroke:var(--bad);stroke-width:9;stroke-linecap:round"),
    (".guess", "stroke:var(--eye);stroke-width:1.5"),
    ("text.words", "font-weight:650;paint-order:stroke;stroke:var(--card);stroke-width:4px;opacity:1"),
    ("text.promise", "fill:var(--eye)"),
    ("text.nobody", "fill:var(--mute)"),
)
_SWEEP = (
    "@media (prefers-reduced-motion:no-preference){.fugu .sweep{animation:sweep 14s linear infinite}}"
    "@keyframes sweep{0%{clip-path:inset(0 100% 0 0)}80%,100%{clip-path:inset(0 0 0 0)}}"
)
_BESIDE, _WIDTH, _NARROW, _HEAD = 190, 860, 420, 20


def lanes_svg(title: str, lanes: Sequence[Lane], *, dark: bool | None = None, narrow: bool = False) -> str:
    """Draw a picture of lanes one below another with words beside them, or of maps side by side.

    Args:
        title: title for screen readers.
        lanes: lanes of the picture; either all or none are maps.
        dark: dark or light colours; by default those that the reader prefers.
        narrow: for a page on a phone: words are above the lanes, nothing moves, and letters are larger.
    """
    are_maps = not lanes[0].height
    width = _NARROW if narrow else _WIDTH
    column_width, label_width = (width / len(lanes) if are_maps else width), (0 if are_maps or narrow else _BESIDE)
    parts, x, top, bottom = list[str](), 0.0, 0.0, 0.0
    heights = [_HEAD if label_width else _header_height(lane, column_width) for lane in lanes]
    for lane, header_height in zip(lanes, [max(heights)] * len(lanes) if are_maps else heights, strict=True):
        panel, height = _panel(lane, column_width, label_width, header_height, levels_width(lanes))
        drawing = panel if are_maps or narrow else _with_sweep(panel)
        parts.append(f'<g class="{lane.look}" transform="translate({x:.0f} {top:.0f})">{drawing}</g>')
        bottom = max(bottom, top + height)
        if lane is not lanes[-1]:
            edge_look = "edge" if lane.look == "stays" else "grid"
            x, top = (x + column_width, 0.0) if are_maps else (0.0, bottom)
            edge_path = f"M{x:.0f} 1V{bottom:.0f}" if are_maps else f"M1 {top:.0f}H{width - 1}"
            parts.append(f'<path class="{edge_look}" d="{edge_path}"/>')
    card = f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{bottom - 1:.0f}" rx="14"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom:.0f}" class="fugu" width="{width}" '
        f'height="{bottom:.0f}" role="img"><title>{escape(title)}</title>{_style(dark)}{card}{"".join(parts)}</svg>\n'
    )


def _style(dark: bool | None) -> str:
    """The style sheet; its rules apply only within pictures of this module, not to the page around them."""
    colours = f".fugu{{{_DARK if dark else _LIGHT}}}"
    if dark is None:
        colours += f"@media (prefers-color-scheme:dark){{.fugu{{{_DARK}}}}}"
    rules = "".join(f".fugu {selector}{{{rule}}}" for selector, rule in _RULES)
    return f"<style>{colours}{rules}{_SWEEP}</style>"


def _header_height(lane: Lane, width: float) -> float:
    """The pixels that a lane needs above it for all its words."""
    return (76 if lane.number else 14) + 16 * (len(_lines(lane.words, width)) + len(_lines(lane.head, width)))


def _panel(lane: Lane, width: float, label_width: float, header_height: float, axis_width: float) -> tuple[str, float]:
    """Draw a lane with its words beside or above it. Return the SVG and its height."""
    plot = Plot(lane, width - (label_width or 2 * LEFT), axis_width)
    height = plot.height + header_height
    texts = [_text_element(18, 28, lane.title, "title"), _text_element(18, 62, lane.number, "number")]
    texts += [_text_element(18, 84 + 16 * i, line) for i, line in enumerate(_lines(lane.words, label_width or width))]
    header_lines = [lane.head] if label_width else _lines(lane.head, width)
    texts += [
        _text_element(label_width + LEFT if label_width else 18, header_height - 4 - 16 * i, line)
        for i, line in enumerate(header_lines[::-1])
    ]
    frame = f'<rect class="inside" x="1" y="1" width="{width - 2:.0f}" height="{height - 1:.0f}" rx="13"/>'
    drawing = f'<g transform="translate({label_width or LEFT} {header_height})">{"".join(plot.elements())}</g>'
    return f"{frame if lane.look == 'stays' else ''}{''.join(texts)}{drawing}", height


def _with_sweep(drawing: str) -> str:
    """Put all shapes that depend on time into groups that an animation reveals."""
    return re.sub(
        r'((?:<path class="shape (?!promise|nobody|allowed|later)[^>]*/>)+)', r'<g class="sweep">\1</g>', drawing
    )


def _lines(words: str, width: float) -> list[str]:
    """Break words into lines of `width` pixels."""
    return textwrap.wrap(_unbroken(words), int((width - 22) / _LETTER) + 2)


def _points(points: Iterable[tuple[float, float]]) -> str:
    """Write pixel positions as in an SVG path."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _text_element(x: float, y: float, words: str, look: str = "") -> str:
    return f'<text{look and f" class={look!r}"} x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
