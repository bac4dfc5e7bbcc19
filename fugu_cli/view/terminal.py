"""Printing for people: one console, plain tables, sentences under them."""

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

__all__ = ["rendered", "say", "say_waiting", "show", "show_report", "show_table", "warn", "working"]

_BETWEEN = 2
"""Characters between the columns of a table, and around them."""
_SHORT = 8
_PIPE_WIDTH = 10_000
"""No line that leaves in a pipe is broken or cut: a row is a line there, and so is a sentence."""


def console() -> Console:
    """The console of the present standard output: a terminal of any width, or plain text for a pipe or a file."""
    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def grid(columns: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> RichTable:
    """A table of at most a width, without its title: the first column to the left, the others to the right."""
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
    """Print a table, as `grid` makes it, under its title."""
    say(title, style="bold")
    screen = console()
    screen.print(grid(columns, rows, screen.width))


def _widths(columns: Sequence[Sequence[str]], available: int) -> list[int]:
    """Widths of columns, given by their cells: cells are broken only if they have to be, and then between words."""
    widths = [max(map(len, cells)) for cells in columns]
    least = [max([*map(_unbroken, cells), *map(len, header.split())], default=0) for header, *cells in columns]
    while sum(widths) + _BETWEEN * len(widths) > available and widths != least:
        slack = [width - word for width, word in zip(widths, least, strict=True)]
        widths[slack.index(max(slack))] -= 1
    return [max(width, 1) for width in widths]


def _unbroken(cell: str) -> int:
    """The length of the longest part of a cell that is kept together: a number and its unit are."""
    return len(cell) if len(cell) <= _SHORT else max(map(len, cell.split()), default=0)


def say(text: str, style: str = "") -> None:
    """Print a sentence."""
    console().print(Text("\n".join(map(printable, text.split("\n"))), style=style))


def rendered(report: Report) -> Group:
    """Lines and tables in one piece, which a terminal can show again and again."""
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
    """Print a result and its warnings; returns the exit code, or raises the error that the result ends in."""
    if as_json:
        text = result.document() if callable(result.document) else result.document
        print(text.rstrip("\n") if isinstance(text, str) else json.dumps(text, indent=2))
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


def say_waiting(why: str) -> None:
    """Say on stderr, on one line, what is waited for, because nothing else is to be seen meanwhile."""
    print(f"fugu: {' '.join(why.split())}", file=sys.stderr, flush=True)


@contextmanager
def working(task_words: str, *, measured: bool = False) -> Iterator[Callable[..., None]]:
    """Show on a terminal's stderr that work goes on, and for how long; elsewhere nothing is shown.

    Args:
        task_words: what is being done.
        measured: whether it is known how much of it is done.

    Yields:
        What to call with the part of the work that has begun, and, if that is known, the share that is done before it.
    """
    if not sys.stderr.isatty():
        yield lambda part, share=0.0: None
        return
    indicator = BarColumn() if measured else SpinnerColumn()
    columns = (indicator, TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(task_words, total=1.0 if measured else None)
        yield lambda part, share=0.0: progress.update(task, description=f"{task_words}: {part}", completed=share)
