"""Print results for people: plain tables and sentences."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console, Group
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable
from rich.text import Text

from fugu.contract.errors import printable
from fugu.host.terminal import print_lines
from fugu.library.report import Report, Result, Table

__all__ = ["render", "say", "say_waiting", "show", "show_report", "show_table", "warn", "working"]

_BETWEEN = 2
"""The characters between columns of a table."""
_SHORT = 8
_PIPE_WIDTH = 10_000
"""The width in a pipe, where each row and each sentence is one line."""


def console() -> Console:
    """Return the console of the present standard output, with a fixed width for pipes and files."""
    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def grid(columns: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> RichTable:
    """Make a table of at most `width` characters; the first column is aligned left, the others right."""
    cells = [tuple(map(printable, row)) for row in rows]
    rich_table = RichTable(
        box=box.SIMPLE_HEAD if any(columns) else None,
        show_header=any(columns),
        pad_edge=False,
        padding=(0, 1 if any(columns) else _BETWEEN, 0, 0),
    )
    widths = _widths([*zip(columns, *cells, strict=True)], width)
    for index, (column, max_width) in enumerate(zip(columns, widths, strict=True)):
        rich_table.add_column(Text(column), justify="right" if index else "left", overflow="fold", width=max_width)
    for row in cells:
        rich_table.add_row(*map(Text, row))
    return rich_table


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a title, and a table as `grid` makes it."""
    say(title, style="bold")
    screen = console()
    screen.print(grid(columns, rows, screen.width))


def _widths(columns: Sequence[Sequence[str]], available_width: int) -> list[int]:
    """Return the widths of columns of cells, which are broken only if necessary, and between words."""
    widths = [max(map(len, cells)) for cells in columns]
    min_widths = [max([*map(_part_width, cells), *map(len, header.split())], default=0) for header, *cells in columns]
    while sum(widths) + _BETWEEN * len(widths) > available_width and widths != min_widths:
        slack = [width - min_width for width, min_width in zip(widths, min_widths, strict=True)]
        widths[slack.index(max(slack))] -= 1
    return [max(width, 1) for width in widths]


def _part_width(cell: str) -> int:
    """Return the length of the longest part that must not be broken: a word, or a short cell (number and unit)."""
    return len(cell) if len(cell) <= _SHORT else max(map(len, cell.split()), default=0)


def say(text: str, style: str = "") -> None:
    """Print a text, in a style of the terminal."""
    console().print(Text("\n".join(map(printable, text.split("\n"))), style=style))


def render(report: Report) -> Group:
    """Return a report's lines and tables as one object that a terminal can redraw."""
    renderables: list[RichTable | Text] = []
    for part in report:
        if isinstance(part, Table):
            renderables += [Text(part.title, style="bold"), grid(part.columns, part.rows, console().width)]
        else:
            renderables.append(Text(printable(part.text), style="bold" if part.bold else ""))
    return Group(*renderables)


def show_report(report: Report) -> None:
    """Print lines and tables."""
    for part in report:
        if isinstance(part, Table):
            show_table(*part)
        else:
            say(part.text, style="bold") if part.bold else print_lines("\n".join(map(printable, part.text.split("\n"))))


def show(result: Result, *, as_json: bool = False) -> int:
    """Print a result and its warnings. Return the exit code, or raise the error of the result."""
    if as_json:
        json_document = result.document() if callable(result.document) else result.document
        print(json_document.rstrip("\n") if isinstance(json_document, str) else json.dumps(json_document, indent=2))
    else:
        show_report(result.report)
    for warning in result.warnings:
        warn(warning)
    if result.error is not None:
        raise result.error
    return result.code


def warn(text: str) -> None:
    """Print a warning on stderr, on one line."""
    print(f"fugu: warning: {printable(text)}", file=sys.stderr)


def say_waiting(reason: str) -> None:
    """Print on stderr, on one line, the reason for a wait."""
    print(f"fugu: {' '.join(reason.split())}", file=sys.stderr, flush=True)


@contextmanager
def working(task_words: str, *, measured: bool = False) -> Iterator[Callable[..., None]]:
    """Show the progress and duration of some work on stderr, if stderr is a terminal.

    Give a function to call with the part of the work that begins and, if `measured`, the finished share.
    """
    if not sys.stderr.isatty():
        yield lambda part, share=0.0: None
        return
    indicator = BarColumn() if measured else SpinnerColumn()
    columns = (indicator, TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(task_words, total=1.0 if measured else None)
        yield lambda part, share=0.0: progress.update(task, description=f"{task_words}: {part}", completed=share)
