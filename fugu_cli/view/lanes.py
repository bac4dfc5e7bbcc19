"""Lanes on one axis of time: what stays, what leaves, what an attacker can say, as numbers and as SVG.

`lanes.js` of the live page draws the same numbers in a browser; a test compares their points.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Literal, NamedTuple, TypeAlias

from fugu.svg import points, svg

__all__ = ["Lane", "Look", "Plot", "Shape", "lanes_document", "lanes_svg", "percent_marks", "room_beside", "time_marks"]

Look: TypeAlias = Literal["stays", "leaves", "attacker"]

LEFT, TOP, FOOT, AXIS_FOOT = 8, 14, 10, 30
"""Margins of a lane: its words are above, marks of time below."""
_LETTER = 7.6
"""Width of a letter of 12 px, in the widest of the usual fonts."""


class Shape(NamedTuple):
    """Shape of numbers, in the units of its lane.

    Attributes:
        kind: "line" and "dots" of points (x, y); "range" and "band" of (x, low, high); "bars" of (begin, end, low,
            high); "level" of one (y,), with words; "zone" of one (low, high).
        look: a class of the style.
        points: in the order of time.
        words: of a level.
    """

    kind: Literal["line", "range", "band", "dots", "bars", "level", "zone"]
    look: str
    points: Sequence[tuple[float, ...]]
    words: str = ""


class Lane(NamedTuple):
    """A strip of a picture, with its words beside it.

    Attributes:
        look: what it is about.
        title, number, words: beside it: the largest of them is the number.
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
        | {"number": _whole(lane.number), "words": _whole(lane.words), "head": _whole(lane.head)}
        | {"shapes": [{**one._asdict(), "points": [*map(rounded, one.points)]} for one in lane.shapes]}
        for lane in lanes
    ]


def _whole(words: str) -> str:
    """Words whose numbers stay with their per cent."""
    return words.replace(" %", "\N{NO-BREAK SPACE}%")


def percent_marks(shares: Sequence[float]) -> list[tuple[float, str]]:
    """Shares, in percent."""
    return [(share, f"{100 * share:g} %") for share in shares]


_STEPS = (
    (1 / 60, "min", 60.0),
    (0.25, "min", 60.0),
    (1.0, "h", 1.0),
    (6.0, "h", 1.0),
    (24.0, "d", 1 / 24),
    (168.0, "d", 1 / 24),
)


def time_marks(hours: float) -> list[tuple[float, str]]:
    """Words along an axis of time that begins at 0: as many as the widest picture has room for."""
    step, unit, per_hour = next((one for one in _STEPS[::-1] if hours >= 4 * one[0]), _STEPS[0])
    step *= max(1, math.ceil(hours / step / 16))
    return [(step * at, f"{step * at * per_hour:g} {unit}") for at in range(1, int(hours / step + 1e-9) + 1)]


def room_beside(lanes: Sequence[Lane]) -> float:
    """Pixels that the words of all levels of some lanes need."""
    return 14 + _LETTER * max((len(words) for lane in lanes for _, words in lane.levels), default=0)


class Plot:
    """Places of the numbers of a lane in a picture of some width.

    Args:
        lane: what is drawn.
        width: in pixels.
        beside: of them, for the words of levels; of all lanes of a picture the same, as time is.
    """

    def __init__(self, lane: Lane, width: float, beside: float) -> None:
        self.lane = lane
        self.right = width - beside
        foot = AXIS_FOOT if lane.marks else FOOT
        self.height = lane.height or self.right - LEFT + TOP + foot
        self.bottom = self.height - foot

    def x(self, at: float) -> float:
        """Place on the level axis."""
        first, last = self.lane.span
        return LEFT + (at - first) / (last - first) * (self.right - LEFT)

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
                    f"{'L' if at else 'M'}{points([(x(a), y(b))])}" for at, (a, b) in enumerate(shape.points)
                )
            case "dots":
                return "".join(f"M{points([(x(a), y(b))])}h0" for a, b in shape.points)
            case "range":
                return "".join(
                    f"{'L' if at else 'M'}{points([(x(a), y(low)), (x(a), y(high))])}"
                    for at, (a, low, high) in enumerate(shape.points)
                )
            case "band":
                ends = [(x(a), y(high)) for a, _, high in shape.points], [(x(a), y(low)) for a, low, _ in shape.points]
                return f"M{points([*ends[0], *ends[1][::-1]])}Z" if shape.points else ""
            case "bars":
                return "".join(
                    f"M{points([(x(a), y(low)), (x(a), y(high)), (x(b), y(high)), (x(b), y(low))])}Z"
                    for a, b, low, high in shape.points
                )
            case "level":
                [(value,)] = shape.points
                return f"M{points([(LEFT, y(value)), (self.right, y(value))])}"
            case "zone":
                [(low, high)] = shape.points
                return f"M{points([(LEFT, y(low)), (LEFT, y(high)), (self.right, y(high)), (self.right, y(low))])}Z"

    def shown_marks(self) -> list[tuple[float, str]]:
        """Every so many of the words along the level axis, so that none is on another."""
        marks = self.lane.marks
        room = _LETTER * max((len(words) for _, words in marks), default=0) + 12
        every = max(1, math.ceil(room * len(marks) / (self.right - LEFT)))
        begin = (every - 1) // 2 if self.lane.middles else every - 1
        shown = [(self.x(at), words) for at, words in marks[begin::every]]
        return [(x, words) for x, words in shown if x >= 0.5 * _LETTER * len(words)]

    def drawing(self) -> Iterator[str]:
        """Everything of the lane, as SVG."""
        for value, words in self.lane.levels:
            yield f'<path class="grid" d="M{points([(LEFT, self.y(value)), (self.right, self.y(value))])}"/>'
            yield _text(self.right + 8, self.y(value) + 4, words)
        for x, words in self.shown_marks():
            yield _text(x, self.height - 8, words, "mark")
        for shape in self.lane.shapes:
            yield f'<path class="shape {shape.look}" d="{self.path(shape)}"/>'
        for shape in self.lane.shapes:
            if shape.words:
                y = self.y(shape.points[0][0])
                yield _text(LEFT + 4, y - 6 if y > TOP + 16 else y + 17, shape.words, f"words {shape.look}")


_COLOURS = (
    (
        "--card:#fff;--ink:#17201c;--mute:#5c6962;--line:#e1e5e1;--in:#eef0f2;--raw:#4b5563;",
        "#0b7a5b",
        "#6d4bc3",
        "#c2410c",
    ),
    (
        "--card:#171d1a;--ink:#e8eeea;--mute:#9aa8a0;--line:#29332e;--in:#1d242a;--raw:#a9b4c0;",
        "#4fd1a5",
        "#b79cff",
        "#ff9166",
    ),
)
_STYLE = """<style>
svg{{{base}--go:{go};--eye:{eye};--bad:{bad}}}
text{{font:12px system-ui,"DejaVu Sans",sans-serif;fill:var(--mute)}}.mark{{text-anchor:middle}}
.title{{font-size:15px;font-weight:700}}.number{{font-size:28px;font-weight:700}}
g.stays .title,g.stays .number{{fill:var(--raw)}}g.leaves .title,g.leaves .number{{fill:var(--go)}}
g.attacker .title,g.attacker .number{{fill:var(--eye)}}
.card{{fill:var(--card);stroke:var(--line)}}.inside{{fill:var(--in)}}
path{{fill:none}}.grid{{stroke:var(--line)}}{shapes}
.edge{{stroke:var(--go);stroke-width:2;stroke-dasharray:6 4}}
@media (prefers-reduced-motion:no-preference){{.sweep{{animation:sweep 14s linear infinite}}}}
@keyframes sweep{{0%{{clip-path:inset(0 100% 0 0)}}80%,100%{{clip-path:inset(0 0 0 0)}}}}
</style>"""
_SHAPES = (
    ".raw{stroke:var(--raw);stroke-width:.9}.later{stroke:var(--raw);stroke-width:.8;opacity:.28}"
    ".within{fill:var(--go);fill-opacity:.18}.got{stroke:var(--go);stroke-width:2}.truth{stroke:var(--ink);"
    "stroke-width:1.2;stroke-dasharray:3 3;opacity:.8}.point{stroke:var(--go);stroke-width:6;stroke-linecap:round}"
    ".bar{fill:var(--go);fill-opacity:.6}.reach{fill:var(--ink)}.allowed{fill:var(--eye);fill-opacity:.12}.promise{stroke:var(--eye);"
    "stroke-width:1.5;stroke-dasharray:6 4}.nobody{stroke:var(--mute);stroke-width:1.5;stroke-dasharray:6 4}"
    ".sure{stroke:var(--eye);stroke-width:3.4;stroke-linecap:round;opacity:.75}.beyond{stroke:var(--bad);"
    "stroke-width:3.4;stroke-linecap:round;opacity:.75}.most{fill:var(--eye);fill-opacity:.75}.bare{fill:var(--bad);"
    "fill-opacity:.75}.cell{stroke:var(--line)}.ran{fill:var(--raw)}.here{stroke:var(--raw);stroke-width:9;stroke-linecap:round}"
    ".guess{stroke:var(--eye);stroke-width:1.5}text.words{font-weight:650;paint-order:stroke;stroke:var(--card);stroke-width:4px;opacity:1}"
    "text.promise{fill:var(--eye)}text.nobody{fill:var(--mute)}"
)
_BESIDE, _WIDTH, _HEAD = 190, 860, 20


def lanes_svg(title: str, lanes: Sequence[Lane], *, dark: bool = False) -> str:
    """A picture of lanes, whose shapes appear from left to right where motion is not unwanted."""
    base, go, eye, bad = _COLOURS[dark]
    style = _STYLE.format(base=base, go=go, eye=eye, bad=bad, shapes=_SHAPES)
    parts, top, maps = list[str](), 0.0, not lanes[0].height
    column = _WIDTH / len(lanes) if maps else _WIDTH
    for at, lane in enumerate(lanes):
        left, beside = (at * column, 0.0) if maps else (0.0, _BESIDE)
        plot = Plot(lane, column - (beside or 2 * LEFT), room_beside(lanes))
        head = 156 if maps else _HEAD
        high = plot.height + head
        inside = f'<rect class="inside" x="1" y="1" width="{column - 2:.0f}" height="{high - 1:.0f}" rx="13"/>'
        words = [
            _text(18, 84 + 16 * at, line) for at, line in enumerate(_lines(lane.words, column if maps else _BESIDE))
        ]
        words += [_text(18, 28, lane.title, "title"), _text(18, 62, lane.number, "number")]
        heads = _lines(lane.head, column) if maps else [lane.head]
        words += [
            _text(beside + (18 if maps else LEFT), head - 4 - 16 * at, line) for at, line in enumerate(heads[::-1])
        ]
        drawing = "".join(plot.drawing())
        parts += [
            f'<g class="{lane.look}" transform="translate({left:.0f} {top:.0f})">',
            *(inside if lane.look == "stays" else "", *words),
            f'<g transform="translate({beside or LEFT} {head})">{drawing if maps else _swept(drawing)}</g></g>',
        ]
        if maps and at:
            edge = "edge" if at == 1 else "grid"
            parts.append(f'<path class="{edge}" d="M{left:.0f} 1V{high:.0f}"/>')
        elif not maps:
            top += high
            edge = "edge" if lane.look == "stays" else "grid"
            parts.append(f'<path class="{edge}" d="M1 {top:.0f}H{_WIDTH - 1}"/>' if lane is not lanes[-1] else "")
    bottom = high if maps else top
    card = f'<rect class="card" x=".5" y=".5" width="{_WIDTH - 1}" height="{bottom - 1:.0f}" rx="14"/>'
    size = f'width="{_WIDTH}" height="{bottom:.0f}"'
    return svg(title, (_WIDTH, round(bottom)), [style, card, *parts], shown=size) + "\n"


def _swept(drawing: str) -> str:
    """The same, with all shapes that come in the course of time in a group of their own."""
    return re.sub(
        r'((?:<path class="shape (?!promise|nobody|allowed|later)[^>]*/>)+)', r'<g class="sweep">\1</g>', drawing
    )


def _lines(words: str, room: float) -> list[str]:
    """Words in lines of so many pixels."""
    return textwrap.wrap(_whole(words), int((room - 22) / _LETTER) + 2)


def _text(x: float, y: float, words: str, look: str = "") -> str:
    return f'<text{look and f" class={look!r}"} x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
