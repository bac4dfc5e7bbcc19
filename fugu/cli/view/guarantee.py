"""A guarantee in words: its subject, and its losses about stretches of time, the same wherever an epsilon is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fugu.cli.view.terminal import show_table
from fugu.contract.sentences import loss_words
from fugu.contract.stretches import Stretch

__all__ = [
    "SEGMENTS",
    "STRETCH_COLUMNS",
    "STRETCH_TITLE",
    "show_stretches",
    "stretch_cells",
    "stretch_documents",
    "stretch_lines",
]

SEGMENTS = (
    "this holds only where readings come in segments of at most so many ticks that are independent of one another. No "
    "device can check that: it is a comparison, and goes into no policy."
)

STRETCH_TITLE = "What is lost about a stretch of ticks, being one way or another"
STRETCH_COLUMNS = ("epsilon", "if all else is as it was")


def show_stretches(stretches: Sequence[Stretch], of: str = "") -> None:
    """Print them as a table."""
    rows = [(stretch.name, str(stretch.ticks), *stretch_cells(stretch)) for stretch in stretches]
    show_table(STRETCH_TITLE + of, ("stretch", "ticks", *STRETCH_COLUMNS), rows)


def stretch_cells(stretch: Stretch) -> tuple[str, str]:
    """The promise, and the floor that needs no class of chains, for people: rounded up."""
    return loss_words(stretch.epsilon, ""), loss_words(stretch.floor, "")


def stretch_lines(stretches: Sequence[Stretch]) -> list[str]:
    """The same as lines of text below an epsilon; none where there are no stretches."""
    if not stretches:
        return []
    lines = []
    for stretch in stretches:
        epsilon, floor = stretch_cells(stretch)
        ticks = f"{stretch.ticks} tick{'s' * (stretch.ticks > 1)}"
        lines.append(f"  {stretch.name} ({ticks}): {epsilon}; {floor} if all else is as it was")
    return ["of a whole stretch, being one way or another:", *lines]


def stretch_documents(stretches: Sequence[Stretch]) -> list[dict[str, Any]]:
    """The same for JSON; an epsilon without a bound is null."""
    return [
        {
            "stretch": stretch.name,
            "ticks": stretch.ticks,
            "epsilon": stretch.epsilon if math.isfinite(stretch.epsilon) else None,
            "floor": stretch.floor,
            "protected": stretch.protected,
        }
        for stretch in stretches
    ]
