"""The demo's two pictures, as SVG text that a phone shows as well: what a subscriber gets, and what an attacker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from fugu.chains.arrays import Floats
from fugu.cli.demo.evaluation import BEATS, EPSILON, PROMISE, Night, summary
from fugu.svg import points, svg

__all__ = ["html_report", "private_picture", "useful_picture"]


WIDTH, HEIGHT = 560, 470
LEFT, RIGHT = 62, 545
MOST_DOTS = 1500
FACTORS = (1, 2, 5, 10, 20, 50, 100, 1000)
_STYLE = """<style>
text{font:18px system-ui,sans-serif;fill:#222;stroke:#fff;stroke-width:4px;paint-order:stroke}
.head{font-weight:700;font-size:20px}.strong{font-weight:700}.small{font-size:16px;fill:#555}
.good{fill:#0a7d5a}.bad{fill:#b83227}.end{text-anchor:end}.middle{text-anchor:middle}
path{fill:none;stroke:#222;stroke-width:1.5}path.axis{stroke:#999;stroke-width:1}
path.band{fill:#0a7d5a;fill-opacity:.16;stroke:none}path.got{stroke:#0a7d5a;stroke-width:2.6}
path.bar{stroke-width:9}path.tip{fill:#222;stroke:none}path.promise{stroke-dasharray:6 4;stroke-width:2}
path.dots{stroke-width:3.4;stroke-linecap:round;stroke-opacity:.4;stroke:#b83227}path.dots.good{stroke:#0a7d5a}
.learner{fill:#8a5a00}path.dots.learner{stroke:#8a5a00}
</style>"""


def useful_picture(night: Night, whole: float | None = None) -> str:
    """The true and the released shares over a night, and below them how far noise of the same promise reaches.

    Args:
        whole: hours of the axis; until the last share if there are none.
    """
    top, bottom = 110, 318
    last = float(night.hours[-1]) if whole is None else whole

    def line(shares: Floats, hours: Floats = night.hours) -> str:
        across = LEFT + (RIGHT - LEFT) * hours / last
        down = bottom - (bottom - top) * np.clip(shares, 0.0, 1.0)
        return points(zip(across.tolist(), down.tolist(), strict=True))

    got, truth = line(night.released), line(night.truth)
    both = line(
        np.append(night.released + night.band, (night.released - night.band)[::-1]),
        np.append(night.hours, night.hours[::-1]),
    )
    parts = [
        '<path class="band" d="M8 60h40v18h-40z"/><path class="got" d="M8 69h40"/><path d="M8 92h40"/>',
        _text(56, 75, "what a subscriber gets, with its 95 % band", "good"),
        _text(56, 98, "the truth, which stays on the wrist"),
        *(f'<path class="axis" d="M{LEFT} {at}H{RIGHT}"/>' for at in (top, (top + bottom) // 2, bottom)),
        *(_text(LEFT - 6, bottom + 6 - (bottom - top) * at / 100, f"{at} %", "small end") for at in (0, 50, 100)),
        *(
            _text(LEFT + (RIGHT - LEFT) * h / last, bottom + 21, f"{h} h", "small middle")
            for h in range(1, int(last) + 1)
        ),
        f'<path class="band" d="M{both}Z"/><path class="got" d="M{got}"/><path d="M{truth}"/>',
        _text(8, 374, "How far off a value is (95 %), under the same promise:", "small"),
    ]
    reaches = (("Fugu Edge", night.band), ("Markov quilts", night.quilts), ("group privacy", night.group))
    for row, (name, reach) in enumerate(reaches):
        at, end = 402 + 28 * row, 146 + 290 * min(reach, 1.0)
        kind = "bar" if row else "bar got"
        parts.append(_text(8, at, name, "" if row else "good") + f'<path class="{kind}" d="M146 {at - 6}H{end:.1f}"/>')
        if reach > 1.0:  # it does not fit
            parts.append(f'<path class="tip" d="M{end:.1f} {at - 14}l13 8l-13 8z"/>')
        parts.append(_text(end + 18, at, f"&#177; {100 * reach:.0f} %", "" if row else "good"))
    return _picture(("Useful: share of 300 heartbeats above", "the sleeper's own baseline, in one night"), parts)


def private_picture(night: Night) -> str:
    """By how much odds change on each heartbeat, on a log axis, against the promise."""
    rows = [
        ("Ordinary randomised response, habits known", night.ordinary, "bad"),
        ("Fugu Edge, attacker knows the habits", night.ours, "good"),
    ]
    if night.learner is not None:
        rows.append(("Fugu Edge, attacker learns the habits (no promise)", night.learner, "learner"))
    most = max(40.0, 1.2 * math.exp(max(float(changes.max()) for _, changes, _ in rows)))
    unit = (RIGHT - 20) / math.log(most)
    marks = [(20 + unit * math.log(factor), factor) for factor in FACTORS if factor <= most]
    promised = 20 + unit * math.log(PROMISE)
    parts = [
        f'<path class="promise" d="M{promised:.1f} 68V410"/><path class="axis" d="M20 410H{RIGHT}"/>',
        _text(promised + 8, 84, f"the promise, habits known: at most &#215; {PROMISE:.1f}"),
        *(f'<path class="axis" d="M{x:.1f} 410v7"/>' + _text(x, 436, f"&#215; {f}", "small middle") for x, f in marks),
        _text(20, 460, "A dot is a heartbeat. &#215; 1: nothing was learned.", "small"),
    ]
    for row, (name, changes, kind) in enumerate(rows):
        top = 114 + 100 * row
        beyond, most = float((changes > EPSILON).mean()), math.exp(changes.max())
        said = f"{100 * beyond:.0f} % of heartbeats" if beyond else "no heartbeat"
        said += (
            f" beyond &#215; {PROMISE:.1f}, {'up to' if beyond else 'at most'} &#215; {most:.{0 if most >= 10 else 1}f}"
        )
        parts += [_text(20, top, f"{name}:", f"{kind} strong"), _text(20, top + 24, said, kind)]
        parts.append(_dots(20 + unit * changes, top + 32, kind))
    return _picture(("Private: by how much an attacker's", "odds on each heartbeat change"), parts)


def _dots(places: Floats, top: int, kind: str) -> str:
    """A dot for each heartbeat, or for every so many, at its place; their heights mean nothing."""
    shown = np.sort(places)[:: -(-places.size // MOST_DOTS)]
    heights = np.random.default_rng(1).uniform(top, top + 34, shown.size)
    path = "".join(f"M{x:.1f} {y:.0f}h0" for x, y in zip(shown.tolist(), heights.tolist(), strict=True))
    return f'<path class="dots {kind}" d="{path}"/>'


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{text}</text>'


def _picture(head: tuple[str, str], parts: list[str]) -> str:
    """Under a head of two lines."""
    lines = [_text(8, 24 + 24 * number, line, "head") for number, line in enumerate(head)]
    shown = f'width="{WIDTH}" height="{HEIGHT}"'
    return svg(" ".join(head), (WIDTH, HEIGHT), [*lines, *parts], style=_STYLE, shown=shown) + "\n"


_CSS = """
body{font:17px/1.5 system-ui,sans-serif;max-width:1160px;margin:1em auto;padding:0 1em;color:#222}h1{font-size:1.5em}
.two{display:grid;grid-template-columns:1fr 1fr;gap:1.5em}figure{margin:0}figcaption{margin:.5em;font-size:.9em}
svg{width:100%;height:auto;display:block}
p,ul{max-width:46em}@media(max-width:760px){.two{grid-template-columns:1fr}}
"""


def html_report(nights: Sequence[Night], broker: str, seconds: float, missing: Sequence[str] = ()) -> str:
    """The whole report.

    Args:
        nights: what the run showed, the one to begin with first.
        broker: its name.
        seconds: how long the devices ran.
        missing: sentences that say what did not come.
    """
    first, *others = nights
    windows, expected = (sum(values) for values in zip(*((len(n.hours), n.expected) for n in nights), strict=True))
    return "\n".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Fugu Edge demo</title>',
            f'<meta name="viewport" content="width=device-width"><style>{_CSS}</style>',
            f"<h1>A night of heartbeats, useful and private</h1>{_night(first)}",
            *(f"<h2>Another sleeper, {escape(night.name)}</h2>{_night(night)}" for night in others),
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


def _night(night: Night) -> str:
    useful, private, *attackers = map(escape, summary(night))
    return (
        f'<div class="two"><figure>{useful_picture(night)}<figcaption>{useful}</figcaption></figure>'
        f"<figure>{private_picture(night)}<figcaption>{private} {' '.join(attackers)}</figcaption></figure></div>"
    )
