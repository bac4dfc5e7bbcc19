"""The pictures of a replay, as SVG text that a phone shows as well: the recording, what leaves, what attackers get."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

import numpy as np

from fugu.chains.arrays import Floats
from fugu.svg import points, svg
from fugu_cli.demo.evaluation import BEATS, EPSILON, Results, summary

__all__ = ["html_report", "private_picture", "reading_picture", "useful_picture"]


WIDTH, HEIGHT = 560, 470
_LEFT, _RIGHT = 62, 545
_TOP, _BOTTOM = 110, 318
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
    top, bottom = _TOP, HEIGHT - 45
    height = (bottom - top) / ((high - low) or 1.0)
    columns = min(numbers.size, 600)
    edges = np.linspace(0, numbers.size, columns + 1).astype(np.int64)
    places = []
    for begin, end in pairwise(edges.tolist()):
        span = numbers[begin:end][~np.isnan(numbers[begin:end])]
        if span.size:
            x = _LEFT + (_RIGHT - _LEFT) * begin / numbers.size
            places.append(
                (int(begin), [(x, bottom - height * (float(value) - low)) for value in (span.min(), span.max())])
            )
    read = [spot for begin, spots in places if begin < done for spot in spots]
    later = [spot for begin, spots in places if begin >= done for spot in spots]
    marks = [(name, float(level)) for level, name in enumerate(names)] or [
        (f"{value:.4g}", value) for value in (low, high)
    ]
    parts = [
        _text(8, 75, "these readings never leave the device", "small"),
        *_hours_axis(numbers.size * hours, bottom),
        *(f'<path class="axis" d="M{_LEFT} {at}H{_RIGHT}"/>' for at in (top, bottom)),
        *(_text(_LEFT - 6, bottom + 6 - height * (at - low), escape(name[:7]), "small end") for name, at in marks[:8]),
        *(f'<path class="{kind}" d="M{points(line)}"/>' for kind, line in (("later", later), ("read", read)) if line),
    ]
    return _picture(("Recorded:", escape(of[:44])), parts)


def _hours_axis(last: float, bottom: float) -> list[str]:
    """Marks of an axis of time that ends after so many hours."""
    step = next((step for step in _STEPS if last <= 7 * step), _STEPS[-1])
    size, unit = next((size, unit) for size, unit in ((24.0, "d"), (1.0, "h"), (1 / 60, "min")) if step >= 0.999 * size)
    times = step * np.arange(1, int(last / step + 1e-9) + 1)
    scale = (_RIGHT - _LEFT) / last
    return [_text(_LEFT + scale * at, bottom + 21, f"{at / size:.4g} {unit}", "small middle") for at in times.tolist()]


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    """Words at a place."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{text}</text>'


def _picture(head: tuple[str, str], parts: list[str]) -> str:
    """Under a head of two lines."""
    lines = [_text(8, 24 + 24 * number, line, "head") for number, line in enumerate(head)]
    shown = f'width="{WIDTH}" height="{HEIGHT}"'
    return svg(" ".join(head), (WIDTH, HEIGHT), [*lines, *parts], style=_STYLE, shown=shown) + "\n"


MOST_DOTS = 1500
FACTORS = (1, 2, 5, 10, 20, 50, 100, 1000)
_SCALES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def useful_picture(results: Results, whole: float | None = None) -> str:
    """The true and the released shares over time, and below them how far noise of the same promise reaches.

    Args:
        results: at least one window of a replay.
        whole: hours of the axis; until the last share if there are none.
    """
    last = float(results.hours[-1]) if whole is None else whole
    got_words, true_words = results.legend
    most = max(float(results.truth.max()), float(results.released.max()))
    most = next(scale for scale in _SCALES if most <= scale)

    def line(shares: Floats, hours: Floats = results.hours) -> str:
        across = _LEFT + (_RIGHT - _LEFT) * hours / last
        down = _BOTTOM - (_BOTTOM - _TOP) * np.clip(shares / most, 0.0, 1.0)
        return points(zip(across.tolist(), down.tolist(), strict=True))

    got, truth = line(results.released), line(results.truth)
    both = line(
        np.append(results.released + results.band, (results.released - results.band)[::-1]),
        np.append(results.hours, results.hours[::-1]),
    )
    marks = [(0.0, "0 %"), (0.5, f"{50 * most:g} %"), (1.0, f"{100 * most:g} %")]
    parts = [
        '<path class="band" d="M8 60h40v18h-40z"/><path class="got" d="M8 69h40"/><path d="M8 92h40"/>',
        _text(56, 75, got_words, "good"),
        _text(56, 98, true_words),
        *(f'<path class="axis" d="M{_LEFT} {at}H{_RIGHT}"/>' for at in (_TOP, (_TOP + _BOTTOM) // 2, _BOTTOM)),
        *(_text(_LEFT - 6, _BOTTOM + 6 - (_BOTTOM - _TOP) * at, name, "small end") for at, name in marks),
        *_hours_axis(last, _BOTTOM),
        f'<path class="band" d="M{both}Z"/><path class="got" d="M{got}"/><path d="M{truth}"/>',
    ]
    if results.reaches:
        parts.append(_text(8, 374, "How far off a value is (95 %), under the same promise:", "small"))
    for row, (name, reach) in enumerate(results.reaches):
        if reach is None:
            continue
        at, end = 402 + 28 * row, 146 + 290 * min(reach, 1.0)
        kind = "bar" if row else "bar got"
        parts.append(_text(8, at, name, "" if row else "good") + f'<path class="{kind}" d="M146 {at - 6}H{end:.1f}"/>')
        if reach > 1.0:  # it does not fit
            parts.append(f'<path class="tip" d="M{end:.1f} {at - 14}l13 8l-13 8z"/>')
        parts.append(_text(end + 18, at, f"&#177; {100 * reach:.0f} %", "" if row else "good"))
    return _picture((results.head, escape(results.replay.of[:48])), parts)


def private_picture(results: Results) -> str:
    """By how much odds change on each tick, on a log axis, against the promise."""
    tick, promise = results.replay.tick, results.replay.promise
    rows = [
        ("Ordinary randomised response, habits known", results.ordinary, "bad"),
        ("Fugu Edge, attacker knows the habits", results.ours, "good"),
        ("Fugu Edge, attacker learns the habits (no promise)", results.learner, "learner"),
    ]
    shown = [(name, changes, kind) for name, changes, kind in rows if changes is not None]
    most = max(40.0, 1.2 * math.exp(max((float(changes.max()) for _, changes, _ in shown), default=0.0)))
    unit = (_RIGHT - 20) / math.log(most)
    marks = [(20 + unit * math.log(factor), factor) for factor in FACTORS if factor <= most]
    promised = min(20 + unit * math.log(promise), _RIGHT)
    aside = f'x="{promised + 8:.1f}"' if promised < 250 else f'x="{promised - 8:.1f}" text-anchor="end"'
    parts = [
        f'<path class="promise" d="M{promised:.1f} 68V410"/><path class="axis" d="M20 410H{_RIGHT}"/>',
        f'<text {aside} y="84.0">the promise, habits known: at most &#215; {promise:.1f}</text>',
        *(f'<path class="axis" d="M{x:.1f} 410v7"/>' + _text(x, 436, f"&#215; {f}", "small middle") for x, f in marks),
        _text(20, 460, f"A dot is a {tick}. &#215; 1: nothing was learned.", "small"),
    ]
    for row, (name, changes, kind) in enumerate(shown):
        top = 114 + 100 * row
        beyond, most = results.beyond(changes), math.exp(changes.max())
        said = f"{100 * beyond:.0f} % of {tick}s" if beyond else f"no {tick}"
        said += (
            f" beyond &#215; {promise:.1f}, {'up to' if beyond else 'at most'} &#215; {most:.{0 if most >= 10 else 1}f}"
        )
        parts += [_text(20, top, f"{name}:", f"{kind} strong"), _text(20, top + 24, said, kind)]
        parts.append(_dots(20 + unit * changes, top + 32, kind))
    return _picture(("Private: by how much an attacker's", f"odds on each {tick} change"), parts)


def _dots(places: Floats, top: int, kind: str) -> str:
    """A dot for each heartbeat, or for every so many, at its place; their heights mean nothing."""
    shown = np.sort(places)[:: -(-places.size // MOST_DOTS)]
    heights = np.random.default_rng(1).uniform(top, top + 34, shown.size)
    path = "".join(f"M{x:.1f} {y:.0f}h0" for x, y in zip(shown.tolist(), heights.tolist(), strict=True))
    return f'<path class="dots {kind}" d="{path}"/>'


_CSS = """
body{font:17px/1.5 system-ui,sans-serif;max-width:1160px;margin:1em auto;padding:0 1em;color-scheme:light dark}
h1{font-size:1.5em}
.two{display:grid;grid-template-columns:1fr 1fr;gap:1.5em}figure{margin:0}figcaption{margin:.5em;font-size:.9em}
svg{width:100%;max-width:40rem;height:auto;display:block;margin:auto}
p,ul{max-width:46em}@media(max-width:760px){.two{grid-template-columns:1fr}}
"""


def html_report(nights: Sequence[Results], broker: str, seconds: float, missing: Sequence[str] = ()) -> str:
    """The whole report.

    Args:
        nights: what the run showed, the one to begin with first.
        broker: its name.
        seconds: how long the devices ran.
        missing: sentences that say what did not come.
    """
    first, *others = nights
    windows, expected = (sum(values) for values in zip(*((n.live, len(n.replay.windows)) for n in nights), strict=True))
    return "\n".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Fugu Edge demo</title>',
            f'<meta name="viewport" content="width=device-width"><style>{_CSS}</style>',
            f"<h1>A night of heartbeats, useful and private</h1>{_night(first)}",
            *(f"<h2>{escape(night.replay.name)}</h2>{_night(night)}" for night in others),
            "<h2>What was done</h2><ul>",
            *(f"<li>Missing: {escape(sentence)}.</li>" for sentence in missing),
            f"<li>{len(nights)} devices replayed recorded nights in {seconds:.0f} s and sent a noisy count of every "
            f"{BEATS} heartbeats over a real MQTT broker ({escape(broker)}), and nothing else that depends on a "
            f"reading; a gateway kept the counts, and a subscriber received {windows} of {expected}.</li>",
            f"<li>The promise is &epsilon; = {EPSILON:g}: the odds on a heartbeat change by at most "
            "e<sup>&epsilon;</sup> for an attacker who already knows the sleeper's habits, whatever else he knows of "
            "other heartbeats, and also if the habits change. It is proven for a class of chains, here one that is "
            "wide enough for all but 2 % of the night's stretches of each length. Habits themselves are not protected: "
            "an attacker who learns them learns about each heartbeat.</li>",
            "<li>The attacker who knows the habits uses everything that was sent (forward-backward) and believes the "
            "average chain of the class. The one who learns them is, of the others, the one whose odds moved furthest. "
            "Ordinary randomised response sends a symbol a heartbeat at the same &epsilon;. A recording is no chain: "
            "the sentence below the pictures names the strongest of all attackers.</li>",
            "<li>Markov quilts: for transitions where those of the class are, if they never change, against someone "
            "without other knowledge. Group privacy protects all heartbeats of a window as one.</li>",
            "<li>The classes were fitted to these recordings, which are public. For other people, fit on other data: "
            "what is fitted on the data that is released leaks.</li></ul></html>",
        ]
    )


def _night(night: Results) -> str:
    useful, private, *attackers = map(escape, summary(night))
    return (
        f'<div class="two"><figure>{useful_picture(night)}<figcaption>{useful}</figcaption></figure>'
        f"<figure>{private_picture(night)}<figcaption>{private} {' '.join(attackers)}</figcaption></figure></div>"
    )
