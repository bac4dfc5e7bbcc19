"""The result of a command: an object for machines, and for people lines and tables, as text or HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, NamedTuple, TypeAlias

from fugu.contract.errors import FuguError

__all__ = ["NOTHING", "JsonObject", "Line", "Part", "Report", "Result", "Table", "newest_rows", "plain_text"]

_NEWEST = 20
NOTHING = 3
"""Exit code: the answer is no."""


class Line(NamedTuple):
    """One or more sentences; a verdict is `bold`."""

    text: str
    bold: bool = False


class Table(NamedTuple):
    """A table with a title: the first column is aligned to the left, the others to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


Part = Line | Table
Report = Iterable[Part]
JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """The answer of a command: as JSON, as text (`str`) and as HTML, which notebooks show.

    Attributes:
        document: an object for JSON, the text of a JSON file, or a function that makes either when it is needed.
        report: lines and tables.
        code: exit code of the command.
        warnings: sentences for stderr.
        error: raised after the report was shown; `None` if the command succeeded.
    """

    document: object
    report: Report
    code: int = 0
    warnings: Sequence[str] = ()
    error: FuguError | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "report", tuple(self.report))

    def __str__(self) -> str:
        return plain_text(self.report)

    def _repr_html_(self) -> str:
        return "".join(map(_part_html, self.report))

    def with_lines(self, lines: Iterable[str], warnings: Iterable[str] = ()) -> Result:
        """Copy the result, append lines to its report, and replace its warnings."""
        return replace(self, report=(*self.report, *map(Line, lines)), warnings=tuple(warnings))


def newest_rows(table: Table, noun: str = "") -> Report:
    """Yield the last rows of a long table, and a line that says how many of all rows they are."""
    yield table._replace(rows=table.rows[-_NEWEST:])
    if len(table.rows) > _NEWEST:
        yield Line(f"The newest {_NEWEST} of {len(table.rows)}{noun}; --json shows all.")


def plain_text(report: Report) -> str:
    """Write the report as lines of plain text."""
    return "\n".join(line for part in report for line in _part_lines(part))


def _part_lines(part: Part) -> list[str]:
    if isinstance(part, Line):
        return [part.text]
    widths = [max(map(len, cells)) for cells in zip(part.columns, *part.rows, strict=True)]
    lines = [part.title]
    for label, *number_cells in (part.columns, *part.rows):
        cells = (cell.rjust(width) for cell, width in zip(number_cells, widths[1:], strict=True))
        lines.append("  ".join([label.ljust(widths[0]), *cells]).rstrip())
    return lines


def _part_html(part: Part) -> str:
    if isinstance(part, Line):
        return f"<p>{f'<b>{escape(part.text)}</b>' if part.bold else escape(part.text)}</p>"
    header = "".join(f"<th>{escape(column)}</th>" for column in part.columns) if any(part.columns) else ""
    body_rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in part.rows]
    rows = "".join(f"<tr>{row}</tr>" for row in (header, *body_rows))
    return f"<table><caption>{escape(part.title)}</caption>{rows}</table>"
