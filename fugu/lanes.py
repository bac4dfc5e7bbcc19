"""Lanes on one axis of time: what stays, what leaves, what an attacker can say, as numbers and as SVG.

`lanes.js` of the live page draws the same numbers in a browser; a test compares their points.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, Literal, NamedTuple, TypeAlias

__all__ = [
    *("Lane", "Look", "Plot", "Shape", "certainty_lane", "lanes_document", "lanes_svg", "part_shapes", "percent_marks"),
    *("room_beside", "share_scale", "share_shapes", "shares_lane", "time_marks"),
]

Look: TypeAlias = Literal["stays", "leaves", "attacker"]

LEFT, TOP, FOOT, AXIS_FOOT = 8, 14, 10, 30
"""Margins of a lane: its words are above, marks of time below."""
_LETTER = 7.6
"""Width of a letter of 12 px, in the widest of the usual fonts."""


class Shape(NamedTuple):
    """Shape of numbers, in the units of its lane.

    Attributes:
        kind: "line" and "dots" have points (x, y), "range" and "band" (x, low, high). "bars" have (begin, end, low,
            high). "level" has one (y,), with words, and "zone" one (low, high).
        look: a class of the style.
        points: in the order of time.
        words: of a level, or of one dot.
    """

    kind: Literal["line", "range", "band", "dots", "bars", "level", "zone"]
    look: str
    points: Sequence[tuple[float, ...]]
    words: str = ""


class Lane(NamedTuple):
    """A strip of a picture, with its words beside it.

    Attributes:
        look: what it is about.
        title, number, words: beside it: the largest of them is the number. All are empty where a caption has them.
        head: what is drawn, above.
        height: in pixels; 0 is a map, as wide as high.
        span, marks: of the level axis, and words below it at some places; without words where another lane has them.
        range, levels: of the upright axis, and words beside it.
        middles: marks are of the middles of parts, so that the first of them has room.
    """

    look: Look
    title: str
    number: str
    words: str
    head: str
    height: int
    span: tuple[float, float]
    marks: Sequence[tuple[float, str]]
    range: tuple[float, float]
    levels: Sequence[tuple[float, str]]
    shapes: Sequence[Shape]
    middles: bool = False


def lanes_document(lanes: Sequence[Lane]) -> list[dict[str, Any]]:
    """Lanes for `lanes.js`, whose numbers have five digits."""

    def rounded(point: Sequence[float]) -> list[float | None]:
        return [float(f"{number:.5g}") if math.isfinite(number) else None for number in point]

    return [
        lane._asdict()
        | {"number": _unbroken(lane.number), "words": _unbroken(lane.words), "head": _unbroken(lane.head)}
        | {"shapes": [{**shape._asdict(), "points": [*map(rounded, shape.points)]} for shape in lane.shapes]}
        for lane in lanes
    ]


def _unbroken(words: str) -> str:
    """Words whose numbers stay with their per cent."""
    return words.replace(" %", "\N{NO-BREAK SPACE}%")


def percent_marks(shares: Sequence[float]) -> list[tuple[float, str]]:
    """Shares, in percent."""
    return [(share, f"{100 * share:g} %") for share in shares]


def _in_percent(lane: Lane) -> Lane:
    """The lane, with the ends and the middle of its upright axis in percent."""
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
    """A lane of what leaves, as shares up to the top."""
    return _in_percent(Lane("leaves", "Leaves", number, words, head, height, span, (), (0.0, top), (), shapes))


def certainty_lane(
    number: str,
    words: str,
    head: str,
    height: int,
    span: tuple[float, float],
    shapes: Sequence[Shape] = (),
    marks: Sequence[tuple[float, str]] = (),
) -> Lane:
    """A lane of how sure an attacker is, from 50 % on."""
    return _in_percent(Lane("attacker", "Attacker", number, words, head, height, span, marks, (0.5, 1.0), (), shapes))


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


def time_marks(hours: float) -> list[tuple[float, str]]:
    """Words along an axis of time that begins at 0: eight at most."""
    step, unit, per_hour = next((step_unit for step_unit in _STEPS[::-1] if hours >= 4 * step_unit[0]), _STEPS[0])
    step *= max(1, math.ceil(hours / step / 8))
    return [(step * n, f"{step * n * per_hour:g} {unit}") for n in range(1, int(hours / step + 1e-9) + 1)]


def share_scale(shares: Iterable[float]) -> float:
    """The end of an axis that has room for shares."""
    largest = min(max(shares, default=0.0), 1.0)
    return next(scale for scale in _SCALES if largest <= scale)


def share_shapes(
    times: Sequence[float], released: Sequence[float], truth: Sequence[float], reach: float, top: float
) -> list[Shape]:
    """Released shares over time, with what 95 % are within, and the truth where it may be drawn."""
    points = [*zip(times, released, strict=True)]
    band = [(x, max(share - reach, 0.0), min(share + reach, top)) for x, share in points]
    return [
        Shape("band", "within", band if reach else ()),
        Shape("line", "truth", [*zip(times, truth, strict=False)]),
        Shape("line", "got", points),
        Shape("dots", "point", points if len(points) <= _MOST_DOTS else ()),
        Shape("dots", "point newest", points[-1:]),
    ]


def part_shapes(released: Sequence[float], truth: Sequence[float], within: float, top: float) -> list[Shape]:
    """Released shares of the parts of a day, a bar for each, and the truth where it may be drawn."""
    bars = [(part + 0.2, part + 0.8, 0.0, share) for part, share in enumerate(released)]
    ranges = [
        (part + 0.475, part + 0.525, max(share - within, 0.0), min(share + within, top))
        for part, share in enumerate(released)
    ]
    rules = [(part + 0.1, part + 0.9, share, share) for part, share in enumerate(truth)]
    return [Shape("bars", "bar", bars), Shape("bars", "reach", ranges), Shape("bars", "truth", rules)]


def room_beside(lanes: Sequence[Lane]) -> float:
    """Pixels that the words of all levels of some lanes need."""
    return 14 + _LETTER * max((len(words) for lane in lanes for _, words in lane.levels), default=0)


class Plot:
    """Places of the numbers of a lane in a picture of some width.

    Args:
        lane: what is drawn.
        width: in pixels.
        label_width: of them, for the words of levels; of all lanes of a picture the same, as time is.
    """

    def __init__(self, lane: Lane, width: float, label_width: float) -> None:
        self.lane = lane
        self.right = width - label_width
        foot_height = AXIS_FOOT if lane.marks else FOOT
        self.height = lane.height or self.right - LEFT + TOP + foot_height
        self.bottom = self.height - foot_height

    def x(self, position: float) -> float:
        """Place on the level axis."""
        first, last = self.lane.span
        return LEFT + (position - first) / (last - first) * (self.right - LEFT)

    def y(self, value: float) -> float:
        """Place on the upright axis, held inside the lane."""
        low, high = self.lane.range
        return self.bottom - (min(max(value, low), high) - low) / (high - low) * (self.bottom - TOP)

    def path(self, shape: Shape) -> str:
        """Path of a shape."""
        x, y = self.x, self.y
        match shape.kind:
            case "line":
                return "".join(
                    f"{'L' if index else 'M'}{_places([(x(a), y(b))])}" for index, (a, b) in enumerate(shape.points)
                )
            case "dots":
                return "".join(f"M{_places([(x(a), y(b))])}h0" for a, b in shape.points)
            case "range":
                return "".join(
                    f"{'L' if index else 'M'}{_places([(x(a), y(low)), (x(a), y(high))])}"
                    for index, (a, low, high) in enumerate(shape.points)
                )
            case "band":
                ends = [(x(a), y(high)) for a, _, high in shape.points], [(x(a), y(low)) for a, low, _ in shape.points]
                return f"M{_places([*ends[0], *ends[1][::-1]])}Z" if shape.points else ""
            case "bars":
                return "".join(
                    f"M{_places([(x(a), y(low)), (x(a), y(high)), (x(b), y(high)), (x(b), y(low))])}Z"
                    for a, b, low, high in shape.points
                )
            case "level":
                [(value,)] = shape.points
                return f"M{_places([(LEFT, y(value)), (self.right, y(value))])}"
            case "zone":
                [(low, high)] = shape.points
                return f"M{_places([(LEFT, y(low)), (LEFT, y(high)), (self.right, y(high)), (self.right, y(low))])}Z"

    def shown_marks(self) -> list[tuple[float, str]]:
        """Every so many of the words along the level axis, so that none is on another."""
        marks = self.lane.marks
        mark_width = _LETTER * max((len(words) for _, words in marks), default=0) + 12
        mark_stride = max(1, math.ceil(mark_width * len(marks) / (self.right - LEFT)))
        first_mark = (mark_stride - 1) // 2 if self.lane.middles else mark_stride - 1
        placed_marks = [(self.x(position), words) for position, words in marks[first_mark::mark_stride]]
        return [(x, words) for x, words in placed_marks if x >= 0.5 * _LETTER * len(words)]

    def drawing(self) -> Iterator[str]:
        """Everything of the lane, as SVG."""
        for value, words in self.lane.levels:
            yield f'<path class="grid" d="M{_places([(LEFT, self.y(value)), (self.right, self.y(value))])}"/>'
            yield _text(self.right + 8, self.y(value) + 4, words)
        for x, words in self.shown_marks():
            yield _text(x, self.height - 8, words, "mark")
        for shape in self.lane.shapes:
            yield f'<path class="shape {shape.look}" d="{self.path(shape)}"/>'
        for shape in self.lane.shapes:
            if shape.words:
                *times, value = shape.points[0]
                x, y = self.x(*times) + 3 if times else LEFT, self.y(value)
                yield _text(x + 4, y - 6 if y > TOP + 16 else y + 17, shape.words, f"words {shape.look}")


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
    """A picture of lanes: below one another with words beside them, or maps side by side.

    Args:
        title: for screen readers.
        lanes: of one picture.
        dark: its colours; by default those that a reader prefers.
        narrow: for a page: words are above, nothing moves, and letters are large enough on a phone.
    """
    maps = not lanes[0].height
    width = _NARROW if narrow else _WIDTH
    column, label_width = (width / len(lanes) if maps else width), (0 if maps or narrow else _BESIDE)
    parts, x, top, bottom = list[str](), 0.0, 0.0, 0.0
    headers = [_HEAD if label_width else _above(lane, column) for lane in lanes]
    for lane, header in zip(lanes, [max(headers)] * len(lanes) if maps else headers, strict=True):
        panel, height = _panel(lane, column, label_width, header, room_beside(lanes))
        drawing = panel if maps or narrow else _swept(panel)
        parts.append(f'<g class="{lane.look}" transform="translate({x:.0f} {top:.0f})">{drawing}</g>')
        bottom = max(bottom, top + height)
        if lane is not lanes[-1]:
            edge = "edge" if lane.look == "stays" else "grid"
            x, top = (x + column, 0.0) if maps else (0.0, bottom)
            line = f"M{x:.0f} 1V{bottom:.0f}" if maps else f"M1 {top:.0f}H{width - 1}"
            parts.append(f'<path class="{edge}" d="{line}"/>')
    card = f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{bottom - 1:.0f}" rx="14"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom:.0f}" class="fugu" width="{width}" '
        f'height="{bottom:.0f}" role="img"><title>{escape(title)}</title>{_style(dark)}{card}{"".join(parts)}</svg>\n'
    )


def _style(dark: bool | None) -> str:
    """Rules that hold within pictures of this module and nowhere else: a page or notebook has others."""
    colours = f".fugu{{{_DARK if dark else _LIGHT}}}"
    if dark is None:
        colours += f"@media (prefers-color-scheme:dark){{.fugu{{{_DARK}}}}}"
    rules = "".join(f".fugu {selector}{{{rule}}}" for selector, rule in _RULES)
    return f"<style>{colours}{rules}{_SWEEP}</style>"


def _above(lane: Lane, width: float) -> float:
    """Pixels that all words of a lane need above it."""
    return (76 if lane.number else 14) + 16 * (len(_lines(lane.words, width)) + len(_lines(lane.head, width)))


def _panel(lane: Lane, width: float, label_width: float, header: float, axis: float) -> tuple[str, float]:
    """A lane with its words, beside or above it, and its height."""
    plot = Plot(lane, width - (label_width or 2 * LEFT), axis)
    height = plot.height + header
    words = [_text(18, 28, lane.title, "title"), _text(18, 62, lane.number, "number")]
    words += [_text(18, 84 + 16 * i, line) for i, line in enumerate(_lines(lane.words, label_width or width))]
    header_lines = [lane.head] if label_width else _lines(lane.head, width)
    words += [
        _text(label_width + LEFT if label_width else 18, header - 4 - 16 * i, line)
        for i, line in enumerate(header_lines[::-1])
    ]
    frame = f'<rect class="inside" x="1" y="1" width="{width - 2:.0f}" height="{height - 1:.0f}" rx="13"/>'
    drawing = f'<g transform="translate({label_width or LEFT} {header})">{"".join(plot.drawing())}</g>'
    return f"{frame if lane.look == 'stays' else ''}{''.join(words)}{drawing}", height


def _swept(drawing: str) -> str:
    """The same, with all shapes that come in the course of time in a group of their own."""
    return re.sub(
        r'((?:<path class="shape (?!promise|nobody|allowed|later)[^>]*/>)+)', r'<g class="sweep">\1</g>', drawing
    )


def _lines(words: str, room: float) -> list[str]:
    """Words in lines of so many pixels."""
    return textwrap.wrap(_unbroken(words), int((room - 22) / _LETTER) + 2)


def _places(places: Iterable[tuple[float, float]]) -> str:
    """Places one after the other, as in a path."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _text(x: float, y: float, words: str, look: str = "") -> str:
    return f'<text{look and f" class={look!r}"} x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
