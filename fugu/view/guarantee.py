"""What a guarantee is about, and what is lost about whole stretches of time: the same wherever an epsilon is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from contract.discretisers import Baseline, Discretiser, Thresholds
from contract.stretches import Stretch
from fugu.view.terminal import show_table

__all__ = [
    "SEGMENTS",
    "STRETCH_TITLE",
    "protected_sentence",
    "show_stretches",
    "stretch_documents",
    "stretch_lines",
    "worth",
]

SEGMENTS = (
    "this holds only where readings come in segments of at most so many ticks that are independent of one another. No "
    "device can check that: it is a comparison, and goes into no policy."
)

STRETCH_TITLE = "What is protected: single ticks; a stretch of them, being one way or another, is less so"
_MOST_NAMES = 6
_DIGITS = Context(prec=6, rounding=ROUND_CEILING)


def show_stretches(stretches: Sequence[Stretch], of: str = "") -> None:
    """Print them as a table."""
    rows = [(stretch.name, str(stretch.ticks), worth(stretch)) for stretch in stretches]
    show_table(STRETCH_TITLE + of, ("stretch", "ticks", "epsilon"), rows)


def stretch_lines(stretches: Sequence[Stretch]) -> list[str]:
    """The same as lines of text below an epsilon; none where there are no stretches."""
    if not stretches:
        return []
    longer = [
        f"  {stretch.name} ({stretch.ticks} tick{'s' * (stretch.ticks > 1)}): {worth(stretch)}"
        for stretch in stretches[1:]
    ]
    return ["which is for a single tick; for a whole stretch, being one way or another:", *longer]


def stretch_documents(stretches: Sequence[Stretch]) -> list[dict[str, Any]]:
    """The same for JSON; an epsilon without a bound is null."""
    return [
        {
            "stretch": stretch.name,
            "ticks": stretch.ticks,
            "epsilon": stretch.epsilon if math.isfinite(stretch.epsilon) else None,
            "protected": stretch.protected,
        }
        for stretch in stretches
    ]


def worth(stretch: Stretch) -> str:
    """Its epsilon for people, rounded up."""
    if not math.isfinite(stretch.epsilon):
        return "no bound: not protected"
    shown = _DIGITS.create_decimal(Decimal(stretch.epsilon))  # upward, as all that is promised
    return f"{shown.normalize():f}" + ("" if stretch.protected else ": not protected")


def protected_sentence(discretiser: Discretiser | None) -> str:
    """What of a tick is protected: which state its reading has, and not the reading itself.

    Args:
        discretiser: what makes the states; none if only their chains are known.
    """
    if discretiser is None:
        return "protected is which state of its chain a tick is in"
    names, tail = discretiser.states, ""
    states = ", ".join(names) if len(names) <= _MOST_NAMES else f"{len(names)} states"
    if isinstance(discretiser, Thresholds):
        tail = f" ({_numbered(discretiser.edges)})"
    if isinstance(discretiser, Baseline):
        mean = f"one's own running mean of {discretiser.baseline_ticks} ticks"
        start = f"; the first {discretiser.baseline_ticks} ticks after every start have no state"
        if discretiser.edges == (0.0,) and discretiser.compare == "difference":
            return f"protected is being above {mean} at a tick, not the reading{start}"
        tail = f" ({discretiser.compare} of {mean}: {_numbered(discretiser.edges)}), not the reading{start}"
        tail = tail.replace("difference of", "difference from")
    return f"protected is which of {states} a tick is in{tail}"


def _numbered(edges: tuple[float, ...]) -> str:
    if len(edges) > _MOST_NAMES:
        return f"{len(edges)} edges from {edges[0]:g} to {edges[-1]:g}"
    return ("edge " if len(edges) == 1 else "edges ") + ", ".join(f"{edge:g}" for edge in edges)
