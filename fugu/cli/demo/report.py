"""The demo's report: one HTML file that needs nothing else, and begins with two pictures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fugu.cli.demo.evaluation import Night, summary
from fugu.cli.demo.people import BEATS, EPSILON
from fugu.cli.demo.pictures import private_picture, useful_picture

__all__ = ["html_report"]

_CSS = """
body{font:17px/1.5 system-ui,sans-serif;max-width:1160px;margin:1em auto;padding:0 1em;color:#222}h1{font-size:1.5em}
.two{display:grid;grid-template-columns:1fr 1fr;gap:1.5em}figure{margin:0}figcaption{margin:.5em;font-size:.9em}
svg{width:100%;height:auto;display:block}
p,ul{max-width:46em}@media(max-width:760px){.two{grid-template-columns:1fr}}
"""


def html_report(nights: Sequence[Night], broker: str, seconds: float) -> str:
    """The whole report.

    Args:
        nights: what the run showed, the one to begin with first.
        broker: its name.
        seconds: how long the devices ran.
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
