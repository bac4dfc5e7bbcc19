"""The table of docs/rows.md: every row of the papers, what shows it, and its verdict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fugu_cli.view.terminal import say, show_table

__all__ = ["VERDICTS", "PublishedRow", "published_rows", "show_rows"]

_PAGE = Path(__file__).parents[1] / "docs" / "rows.md"
VERDICTS = ("yes", "partly", "wrong", "not here")
"""First words of a verdict: it holds, with what is missing, what is printed is false, or it is not shown and why."""


_COLUMNS = ("paper", "row", "about", "shown by", "verdict")


class PublishedRow(NamedTuple):
    """A system, definition, theorem, algorithm, example, figure or table of a paper, with what shows it."""

    paper: str
    name: str
    about: str
    shown_by: str
    verdict: str

    @property
    def kind(self) -> str:
        """The verdict without its reason."""
        return next(kind for kind in VERDICTS if self.verdict.startswith(kind))


def published_rows() -> list[PublishedRow]:
    """Every row, in the order of the page."""
    paper, rows = "", []
    for line in _PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            paper = line.removeprefix("## ")
        elif row := re.fullmatch(r"\| (.+?) \| (.+?) \| `(.+?)` \| (.+?) \|", line):
            rows.append(PublishedRow(paper, *row.groups()))
    return rows


def show_rows(statuses: Mapping[str, Counter[str]]) -> None:
    """Print every row, and how many there are of each verdict.

    Args:
        statuses: by target, how many values agree and differ; only rows of these targets are printed, if there are any.
    """
    rows = published_rows()
    if statuses:
        ran = [(row, statuses[row.shown_by]) for row in rows if row.shown_by in statuses]
        shown = [(*row, f"{counts['agrees']} agree, {counts['differs']} differ") for row, counts in ran]
        show_table("", (*_COLUMNS, "values"), shown)
    else:
        show_table("", _COLUMNS, rows)
    counts = Counter(row.kind for row in rows)
    say(f"{len(rows)} rows: " + ", ".join(f"{counts[kind]} {kind}" for kind in VERDICTS))
