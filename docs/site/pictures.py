"""The six pictures of docs/guarantee.md, drawn from computed numbers: `python docs/site/pictures.py`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from fugu.contract.chains import BoundedChains
from fugu.contract.guarantee import StreamOutputs
from fugu.contract.sentences import epsilon_to_odds
from fugu.planning.candidates import wanted_window
from fugu.planning.window_plan import joint_plan
from fugu.svg import points, svg

PICTURES = Path(__file__).parents[1] / "pictures"
WIDTH = 640
STYLE = (
    "<style>svg{--ink:#222;--paper:#fff;--green:#0a7d5a;--pale:#bfe3d4;--red:#b5442e}"
    "@media (prefers-color-scheme:dark)"
    "{svg{--ink:#e8eeea;--paper:#171d1a;--green:#4fd1a5;--pale:#22503f;--red:#ff9166}}"
    "text{font-family:system-ui,sans-serif}.paper{fill:var(--paper)}</style>"
)
INK, PAPER, GREEN, PALE, RED = "var(--ink)", "var(--paper)", "var(--green)", "var(--pale)", "var(--red)"
STAY, ODDS, EPSILON, LENGTH = 0.95, 160.0, 1.0, 300


def text(x: float, y: float, words: str, anchor: str = "start", colour: str = INK) -> str:
    """Words of a picture."""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="14" fill="{colour}">{words}</text>'


def boxes(states: list[int], y: float, hidden: int) -> Iterator[str]:
    """A row of states, one of them hidden."""
    for k, state in enumerate(states):
        fill = PAPER if k == hidden else GREEN if state else PALE
        yield f'<rect x="{10 + 15.5 * k:.1f}" y="{y}" width="14" height="26" fill="{fill}" stroke="{INK}"/>'
    yield text(17 + 15.5 * hidden, y + 19, "?", "middle")


def states(stay: float, seed: int, ticks: int = 40) -> list[int]:
    """A recording of a symmetric chain."""
    rng, found = np.random.default_rng(seed), [0]
    while len(found) < ticks:
        found.append(found[-1] if rng.random() < stay else 1 - found[-1])
    return found


def sticky() -> list[str]:
    """Neighbours tell of a hidden state."""
    known = STAY**2 / (STAY**2 + (1 - STAY) ** 2)
    return [
        text(10, 24, f"independent readings: neighbours tell nothing, a guess is right {0.5:.0%} of the time"),
        *boxes(states(0.5, 3), 34, 20),
        text(10, 94, f"sticky readings: between two equal neighbours a guess is right {known:.1%} of the time"),
        *boxes(states(STAY, 8), 104, 20),
    ]


def odds() -> list[str]:
    """The largest change of odds, and what becomes of even odds."""
    parts = []
    for row, epsilon in enumerate((0.5, 1.0, 2.0, 3.0, 5.0)):
        factor, y = epsilon_to_odds(epsilon), 20 + 30 * row
        sure = factor / (1 + factor)
        parts += [
            text(10, y + 15, f"epsilon {epsilon:g}"),
            f'<rect x="100" y="{y}" width="{(sure - 0.5) * 540:.1f}" height="20" fill="{GREEN}"/>',
            text(110 + (sure - 0.5) * 540, y + 15, f"x {factor:.3g}: from 50 % to at most {sure:.0%}"),
        ]
    return parts


def chains() -> list[str]:
    """Stretches of a recording as points, and the class that covers all of them."""
    rng = np.random.default_rng(4)
    dots = np.clip(rng.normal((0.9, 0.86), (0.025, 0.04), (40, 2)), 0.5, 0.995)
    (left, low), (right, high) = dots.min(axis=0), dots.max(axis=0)

    def x(value: float) -> float:
        return 60 + (value - 0.7) / 0.3 * 300

    def y(value: float) -> float:
        return 220 - (value - 0.7) / 0.3 * 200

    shape = f'x="{x(left):.1f}" y="{y(high):.1f}" width="{x(right) - x(left):.1f}" height="{y(low) - y(high):.1f}"'
    return [
        f'<path d="M60 20V220H360" fill="none" stroke="{INK}"/>',
        f'<rect {shape} fill="{PALE}" stroke="{GREEN}"/>',
        *(f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{INK}"/>' for a, b in dots.tolist()),
        text(210, 242, "how often off stays off", "middle"),
        f'<g transform="translate(24 120) rotate(-90)">{text(0, 0, "how often on stays on", "middle")}</g>',
        text(380, 60, "a point: one stretch of the recording"),
        text(380, 84, "the box: the class of chains", colour=GREEN),
        text(380, 108, "the promise holds for all of the box,"),
        text(380, 132, "and for chains that move about in it"),
    ]


def outputs() -> StreamOutputs:
    """Windows that keep epsilon 1 about a tick, for chains with steps of some odds ratio."""
    class_of_chains = BoundedChains(states=2, odds_ratio=ODDS)
    plan = joint_plan(class_of_chains, EPSILON, "universal", [wanted_window(LENGTH, ((1,),))])
    return StreamOutputs(None, plan.windows)


def windows() -> list[str]:
    """True counts of windows, and what leaves the device."""
    (window,) = outputs().windows
    rng, scale = np.random.default_rng(6), float(Fraction(window.scale))
    truth = 150 + 90 * np.sin(np.arange(20) / 3.0)
    told, parts = truth + rng.laplace(0.0, scale, 20), []
    for k, (true, released) in enumerate(zip(truth.tolist(), told.tolist(), strict=True)):
        x = 20 + 30 * k
        parts.append(f'<rect x="{x}" y="{200 - 0.55 * true:.1f}" width="26" height="{0.55 * true:.1f}" fill="{PALE}"/>')
        parts.append(f'<circle cx="{x + 13}" cy="{200 - 0.55 * released:.1f}" r="5" fill="{GREEN}"/>')
    return [
        *parts,
        f'<path d="M10 200H630" stroke="{INK}"/>',
        text(10, 222, f"bars stay on the device: true counts of {LENGTH} ticks"),
        text(10, 244, f"dots leave it: noise of {scale:.0f} ticks, {scale / LENGTH:.1%} of a window", colour=GREEN),
    ]


def stretches() -> list[str]:
    """Losses of longer stretches under a promise about a tick."""
    released = outputs()
    class_of_chains = BoundedChains(states=2, odds_ratio=ODDS)
    lost = class_of_chains.ratio_loss(*released.ratios, "universal").epsilon
    bound = released.bound(class_of_chains, "universal", lost)
    ticks = [1, 3, 10, 30, 100, 300, 1000]
    losses = [bound.epsilon(one) for one in ticks]
    most = max(losses)
    both = [*zip(ticks, losses, strict=True)]
    places = [(70 + 530 * math.log10(one) / 3, 190 - 160 * loss / most) for one, loss in both]
    marks = [text(x, 210, str(one), "middle") for one, (x, _) in zip(ticks, places, strict=True)]
    said = [text(x - 6, y - 8, f"{loss:.2g}", "end") for loss, (x, y) in zip(losses, places, strict=True)]
    return [
        f'<path d="M70 20V190H620" fill="none" stroke="{INK}"/>',
        f'<polyline points="{points(places)}" fill="none" stroke="{RED}" stroke-width="2.5"/>',
        *marks,
        *said,
        text(345, 234, "ticks of the stretch; above: epsilon about all of it", "middle"),
    ]


def audiences() -> list[str]:
    """Who is told what, and what is charged for it."""

    def box(x: float, y: float, first: str, second: str) -> Iterator[str]:
        yield f'<rect x="{x}" y="{y}" width="150" height="52" rx="6" fill="{PAPER}" stroke="{INK}"/>'
        yield text(x + 75, y + 22, first, "middle")
        yield text(x + 75, y + 42, second, "middle", GREEN)

    arrow = f'fill="none" stroke="{INK}" stroke-width="1.5"'
    return [
        *box(10, 84, "device", "noise is added"),
        *box(240, 84, "gateway", "ledger of charges"),
        *box(470, 14, "family", "an hour, epsilon 2"),
        *box(470, 84, "landlord", "a week, epsilon 0.5"),
        *box(470, 154, "everybody", "nothing"),
        f'<path d="M160 110H240M390 110H470M390 104L470 44" {arrow}/>',
        f'<path d="M390 116L470 178" {arrow} stroke-dasharray="4 4"/>',
    ]


TITLES = {
    "sticky": (sticky, "Neighbours of a sticky reading tell it", 145),
    "odds": (odds, "How far odds may change for an epsilon", 170),
    "chains": (chains, "A class of chains covers every stretch of a recording", 255),
    "windows": (windows, "Counts of windows: true ones and released ones", 255),
    "stretches": (stretches, "Epsilon of longer stretches under a promise about a tick", 245),
    "audiences": (audiences, "Audiences are told different things, each with its charge", 220),
}


def drawn() -> dict[str, str]:
    """All pictures, by the names of their files."""
    found = {}
    for name, (draw, title, high) in TITLES.items():
        found[f"{name}.svg"] = svg(title, (WIDTH, high), draw(), style=STYLE) + "\n"
    return found


if __name__ == "__main__":
    for file, picture in drawn().items():
        (PICTURES / file).write_text(picture, encoding="utf-8")
