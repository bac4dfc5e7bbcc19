"""A result: an object for machines, and for people lines and tables, which are shown as a terminal or a page can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import NamedTuple

from fugu.contract.errors import FuguError

__all__ = ["NOTHING", "Line", "Part", "Report", "Result", "Table", "newest", "plain"]


NOTHING = 3
"""Exit code: the answer is no."""


class Line(NamedTuple):
    """A sentence or a few; a verdict is `bold`."""

    text: str
    bold: bool = False


class Table(NamedTuple):
    """A table below its title: the first column stands to the left, the others to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


Part = Line | Table
Report = Iterable[Part]


@dataclass(frozen=True)
class Result:
    """Answer of a command: as JSON, as text (`str`) and as HTML, which notebooks show.

    Attributes:
        document: an object for JSON, or the text of a file that is JSON; or what makes it, if it is asked for.
        report: lines and tables.
        code: exit code of the command.
        warnings: sentences for stderr.
        error: the answer to the command, once all else is shown.
    """

    document: object
    report: Iterable[Part]
    code: int = 0
    warnings: Sequence[str] = ()
    error: FuguError | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "report", tuple(self.report))

    def __str__(self) -> str:
        return plain(self.report)

    def _repr_html_(self) -> str:
        return "".join(map(_html, self.report))

    def written(self, lines: Iterable[str], warnings: Iterable[str] = ()) -> Result:
        """The same with lines about files that were written, and with warnings."""
        return replace(self, report=(*self.report, *map(Line, lines)), warnings=tuple(warnings))


def newest(table: Table, most: int, noun: str = "") -> Iterator[Part]:
    """The end of a long table, and how much of it that is."""
    yield table._replace(rows=table.rows[-most:])
    if len(table.rows) > most:
        yield Line(f"The newest {most} of {len(table.rows)}{noun}; --json shows all.")


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


def _html(part: Part) -> str:
    if isinstance(part, Line):
        return f"<p>{f'<b>{escape(part.text)}</b>' if part.bold else escape(part.text)}</p>"
    head = "".join(f"<th>{escape(column)}</th>" for column in part.columns) if any(part.columns) else ""
    rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in part.rows]
    return (
        f"<table><caption>{escape(part.title)}</caption>{''.join(f'<tr>{row}</tr>' for row in (head, *rows))}</table>"
    )
