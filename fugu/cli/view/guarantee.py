"""A guarantee in words: its subject, and its losses about stretches of time, the same wherever an epsilon is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from fugu.cli.view.terminal import show_table
from fugu.contract.stretches import Stretch

__all__ = [
    "SEGMENTS",
    "STRETCH_TITLE",
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
