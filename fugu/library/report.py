"""A result for people: lines and tables, which a terminal shows as it can, and `plain` turns into text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Line", "Report", "Table", "plain"]


class Line(NamedTuple):
    """A sentence or a few; a verdict is `bold`."""

    text: str
    bold: bool = False


class Table(NamedTuple):
    """A table below its title: the first column stands to the left, the others to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


Report = Sequence[Line | Table]


def plain(report: Report) -> str:
    """The report as lines of plain text."""
    return "\n".join(line for part in report for line in _lines(part))


def _lines(part: Line | Table) -> list[str]:
    if isinstance(part, Line):
        return [part.text]
    widths = [max(map(len, cells)) for cells in zip(part.columns, *part.rows, strict=True)]
    lines = [part.title]
    for first, *others in (part.columns, *part.rows):
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines
