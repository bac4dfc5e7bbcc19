"""The pictures of docs/guarantee.md, drawn from computed numbers: `python docs/site/pictures.py`."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np

from fugu.contract.chains import BoundedChains
from fugu.contract.guarantee import StreamOutputs
from fugu.contract.sentences import largest_posterior
from fugu.lanes import Lane, Look, Shape, lanes_svg, percent_marks, share_scale, share_shapes
from fugu.planning.candidates import wanted_window
from fugu.planning.window_plan import joint_plan

PICTURES = Path(__file__).parents[1] / "pictures"
STAY, ODDS, EPSILON, LENGTH = 0.95, 160.0, 1.0, 300
TICKS, HIDDEN = 40, 20


def states(stay: float, seed: int) -> list[int]:
    """A recording of a symmetric chain."""
    rng, recorded = np.random.default_rng(seed), [0]
    while len(recorded) < TICKS:
        recorded.append(recorded[-1] if rng.random() < stay else 1 - recorded[-1])
    return recorded


def _guessed(title: str, look: Look, stay: float, seed: int, words: str) -> Lane:
    """Readings, one of them hidden, and how often it is guessed from two equal neighbours."""
    right = stay**2 / (stay**2 + (1 - stay) ** 2)
    at = [k for k, state in enumerate(states(stay, seed)) if state and k != HIDDEN]
    ran = Shape("bars", "ran", [(k + 0.1, k + 0.9, 0.0, 1.0) for k in at])
    off = Shape("bars", "cell", [(k + 0.1, k + 0.9, 0.0, 1.0) for k in range(TICKS)])
    hidden = Shape("bars", "allowed", [(HIDDEN + 0.1, HIDDEN + 0.9, 0.0, 1.0)])
    head = f"{TICKS} readings, on or off; one is hidden"
    return Lane(
        look, title, f"{100 * right:.3g} %", words, head, 110, (0.0, TICKS), (), (0.0, 1.2), (),
        [off, ran, hidden, Shape("dots", "guess", [(HIDDEN - 0.1, 0.3)], "?")],
    )  # fmt: skip


def sticky() -> list[Lane]:
    """Neighbours tell of a hidden state."""
    return [
        _guessed("Independent", "stays", 0.5, 3, "right about the hidden one: its neighbours tell nothing"),
        _guessed("Sticky", "attacker", STAY, 17, "right about the hidden one, between two equal neighbours"),
    ]


def odds() -> list[Lane]:
    """How sure an attacker gets at most, by epsilon."""
    epsilons = 0.5, 1.0, 2.0, 3.0, 5.0
    bars = [(at + 0.2, at + 0.8, 0.5, largest_posterior(epsilon)) for at, epsilon in enumerate(epsilons)]
    tops = [
        Shape("dots", "sure", [(at + 0.4, largest_posterior(epsilon))], f"{100 * largest_posterior(epsilon):.0f} %")
        for at, epsilon in enumerate(epsilons)
    ]
    marks = [(at + 0.5, f"{epsilon:g}") for at, epsilon in enumerate(epsilons)]
    words = "at most sure at epsilon 1, whoever was 50 % sure before"
    return [
        Lane(
            *(
                "attacker",
                "Attacker",
                f"{100 * largest_posterior(EPSILON):.0f} %",
                words,
                "by epsilon · 50 %: a coin flip",
                220,
            ),
            *((0.0, float(len(epsilons))), marks, (0.5, 1.05), percent_marks((0.5, 0.75, 1.0))),
            [Shape("bars", "most", bars), *tops],
            middles=True,
        )
    ]


def chains() -> list[Lane]:
    """Stretches of a recording as points, and the class that covers all of them."""
    rng = np.random.default_rng(4)
    dots = np.clip(rng.normal((0.9, 0.86), (0.025, 0.04), (40, 2)), 0.5, 0.995)
    (left, low), (right, high) = dots.min(axis=0).tolist(), dots.max(axis=0).tolist()
    marks = percent_marks((0.75, 0.8, 0.85, 0.9, 0.95))
    words = (
        "stretches of a recording; the promise holds for all of the shaded box, and for chains that move about in it"
    )
    head = "across: how often off stays off · up: how often on stays on"
    shapes = [
        Shape("bars", "allowed", [(left, right, low, high)]),
        Shape("dots", "point", [*map(tuple, dots.tolist())]),
    ]
    return [Lane("leaves", "A class of chains", "40", words, head, 0, (0.7, 1.0), marks, (0.7, 1.0), marks, shapes)]


def outputs() -> StreamOutputs:
    """Windows that keep epsilon 1 about a tick, for chains with steps of some odds ratio."""
    class_of_chains = BoundedChains(states=2, odds_ratio=ODDS)
    plan = joint_plan(class_of_chains, EPSILON, "universal", [wanted_window(LENGTH, ((1,),))])
    return StreamOutputs(None, plan.windows)


def windows() -> list[Lane]:
    """True counts of windows, and what leaves the device."""
    (window,) = outputs().windows
    rng, scale = np.random.default_rng(6), float(Fraction(window.scale))
    truth = 150 + 90 * np.sin(np.arange(20) / 3.0)
    released = (truth + rng.laplace(0.0, scale, 20)) / LENGTH
    shares = (truth / LENGTH).tolist()
    at = [k + 0.5 for k in range(20)]
    bars = [(k + 0.1, k + 0.9, 0.0, share) for k, share in enumerate(shares)]
    axes = (0.0, 20.0), (), (0.0, 1.0), percent_marks((0.0, 0.5, 1.0))
    noise, top = scale * math.log(20), share_scale([1.0])
    shapes = share_shapes(at, released.tolist(), shares, noise / LENGTH, top)
    words = f"noisy counts: noise of {scale:.0f} ticks, {scale / LENGTH:.1%} of a window".replace("%", " %")
    return [
        Lane(*("stays", "Stays", "20", f"true counts of {LENGTH} ticks", "share of ticks, on", 150), *axes,
             [Shape("bars", "ran", bars)]),
        Lane(*("leaves", "Leaves", "20", words, "band: 95 % · dashes: truth", 150), *axes, shapes),
    ]  # fmt: skip


def stretches() -> list[Lane]:
    """Losses of longer stretches under a promise about a tick."""
    released = outputs()
    class_of_chains = BoundedChains(states=2, odds_ratio=ODDS)
    lost = class_of_chains.ratio_loss(*released.ratios, "universal").epsilon
    bound = released.bound(class_of_chains, "universal", lost)
    losses = [(math.log10(ticks), bound.epsilon(ticks)) for ticks in (1, 3, 10, 30, 100, 300, 1000)]
    dots = [Shape("dots", "point", [place], f"{place[1]:.2g}") for place in losses]
    most = 10 * math.ceil(losses[-1][1] / 10)
    levels = [(float(epsilon), f"{epsilon}") for epsilon in range(0, most + 1, most // 2)]
    words = f"is epsilon about {LENGTH} ticks, where it is 1 about each of them"
    head = "epsilon about a stretch, by its ticks"
    return [
        Lane(
            *("leaves", "Stretches", f"{dict(losses)[math.log10(LENGTH)]:.2g}", words, head, 240, (-0.1, 3.3)),
            *(
                [(float(power), f"{10**power}") for power in range(4)],
                (0.0, most),
                levels,
                [Shape("line", "got", losses), *dots],
            ),
        )
    ]


DRAWINGS = {
    "sticky": (sticky, "Neighbours of a sticky reading tell it"),
    "odds": (odds, "How sure an attacker gets at most, by epsilon"),
    "chains": (chains, "A class of chains covers every stretch of a recording"),
    "windows": (windows, "Counts of windows: true ones and released ones"),
    "stretches": (stretches, "Epsilon of longer stretches under a promise about a tick"),
}


def drawn() -> dict[str, str]:
    """All pictures, by the names of their files."""
    return {f"{name}.svg": lanes_svg(title, draw(), narrow=True) for name, (draw, title) in DRAWINGS.items()}


if __name__ == "__main__":
    for file, picture in drawn().items():
        (PICTURES / file).write_text(picture, encoding="utf-8")
