"""Pictures of a replay as SVG text: the frame of all of them, and the recording."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

import numpy as np

from fugu.chains.arrays import Floats
from fugu.svg import points, svg

__all__ = ["BOTTOM", "LEFT", "RIGHT", "TOP", "hours_axis", "picture", "reading_picture", "text"]

WIDTH, HEIGHT = 560, 470
LEFT, RIGHT = 62, 545
TOP, BOTTOM = 110, 318
_STEPS = (1 / 60, 1 / 12, 0.25, 0.5, 1, 2, 3, 6, 12, 24, 48, 168, 336, 720)
"""Hours from one mark of an axis of time to the next."""
_STYLE = """<style>
svg{--ink:#222;--paper:#fff;--quiet:#555;--good:#0a7d5a;--bad:#b83227;--learner:#8a5a00;--axis:#999}
@media screen and (prefers-color-scheme:dark){svg{--ink:#e6ebe8;--paper:#1a1f1d;--quiet:#a3aea8;--good:#63c9b9;
--bad:#ff9a83;--learner:#e3b260;--axis:#6b756f}}
.paper{fill:var(--paper)}
text{font:18px system-ui,sans-serif;fill:var(--ink);stroke:var(--paper);stroke-width:4px;paint-order:stroke}
.head{font-weight:700;font-size:20px}.strong{font-weight:700}.small{font-size:16px;fill:var(--quiet)}
.good{fill:var(--good)}.bad{fill:var(--bad)}.end{text-anchor:end}.middle{text-anchor:middle}
path{fill:none;stroke:var(--ink);stroke-width:1.5}path.axis{stroke:var(--axis);stroke-width:1}
path.band{fill:var(--good);fill-opacity:.16;stroke:none}path.got{stroke:var(--good);stroke-width:2.6}
path.bar{stroke-width:9}path.tip{fill:var(--ink);stroke:none}path.promise{stroke-dasharray:6 4;stroke-width:2}
path.dots{stroke-width:3.4;stroke-linecap:round;stroke-opacity:.4;stroke:var(--bad)}path.dots.good{stroke:var(--good)}
path.later{stroke-opacity:.35}.learner{fill:var(--learner)}path.dots.learner{stroke:var(--learner)}
</style>"""


def reading_picture(values: Floats | Sequence[str | None], hours: float, done: int, of: str) -> str:
    """Readings over time, of which the first `done` have been read; names are levels, from the lowest line on.

    Args:
        values: (n,) numbers, NaN where there is none; or names.
        hours: from one to the next.
        of: what is recorded, in the head.
    """
    if isinstance(values, np.ndarray):
        numbers, names = values, list[str]()
    else:
        names = sorted({value for value in values if value is not None})
        numbers = np.array([np.nan if value is None else names.index(value) for value in values])
    low, high = (float(end) for end in (np.nanmin(numbers), np.nanmax(numbers)))
    top, bottom = TOP, HEIGHT - 45
    height = (bottom - top) / ((high - low) or 1.0)
    columns = min(numbers.size, 600)
    edges = np.linspace(0, numbers.size, columns + 1).astype(np.int64)
    places = []
    for begin, end in pairwise(edges.tolist()):
        span = numbers[begin:end][~np.isnan(numbers[begin:end])]
        if span.size:
            x = LEFT + (RIGHT - LEFT) * begin / numbers.size
            places.append(
                (int(begin), [(x, bottom - height * (float(value) - low)) for value in (span.min(), span.max())])
            )
    read = [spot for begin, spots in places if begin < done for spot in spots]
    later = [spot for begin, spots in places if begin >= done for spot in spots]
    marks = [(name, float(level)) for level, name in enumerate(names)] or [
        (f"{value:.4g}", value) for value in (low, high)
    ]
    parts = [
        text(8, 75, "these readings never leave the device", "small"),
        *hours_axis(numbers.size * hours, bottom),
        *(f'<path class="axis" d="M{LEFT} {at}H{RIGHT}"/>' for at in (top, bottom)),
        *(text(LEFT - 6, bottom + 6 - height * (at - low), escape(name[:7]), "small end") for name, at in marks[:8]),
        *(f'<path class="{kind}" d="M{points(line)}"/>' for kind, line in (("later", later), ("read", read)) if line),
    ]
    return picture(("Recorded:", escape(of[:44])), parts)


def hours_axis(last: float, bottom: float) -> list[str]:
    """Marks of an axis of time that ends after so many hours."""
    step = next((step for step in _STEPS if last <= 7 * step), _STEPS[-1])
    size, unit = next((size, unit) for size, unit in ((24.0, "d"), (1.0, "h"), (1 / 60, "min")) if step >= 0.999 * size)
    times = step * np.arange(1, int(last / step + 1e-9) + 1)
    scale = (RIGHT - LEFT) / last
    return [text(LEFT + scale * at, bottom + 21, f"{at / size:.4g} {unit}", "small middle") for at in times.tolist()]


def text(x: float, y: float, text: str, kind: str = "") -> str:
    """Words at a place."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{text}</text>'


def picture(head: tuple[str, str], parts: list[str]) -> str:
    """Under a head of two lines."""
    lines = [text(8, 24 + 24 * number, line, "head") for number, line in enumerate(head)]
    shown = f'width="{WIDTH}" height="{HEIGHT}"'
    return svg(" ".join(head), (WIDTH, HEIGHT), [*lines, *parts], style=_STYLE, shown=shown) + "\n"
