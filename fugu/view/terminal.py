"""Printing for people: one console, plain tables, sentences under them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

__all__ = ["console", "say", "show_table", "table", "warn", "working"]

_PIPE_WIDTH = 120


def console() -> Console:
    """The console of the present standard output; a pipe gets plain text of a fixed width."""
    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def table(title: str, columns: Sequence[str], caption: str | None = None) -> Table:
    """A table without rows: the first column to the left, the others to the right."""
    made = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=box.SIMPLE_HEAD if any(columns) else None,
        show_header=any(columns),
        pad_edge=False,
    )
    for index, column in enumerate(columns):
        made.add_column(Text(column), justify="left" if index == 0 else "right")
    return made


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table, as `table` makes it."""
    made = table(title, columns)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    console().print(made)


def say(text: str, style: str = "") -> None:
    """Print a sentence."""
    console().print(Text(text, style=style))


def warn(text: str) -> None:
    """Print a warning on stderr, on one line."""
    print(f"fugu: warning: {text}", file=sys.stderr)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal's stderr that work goes on, and for how long; elsewhere nothing is shown.

    Args:
        what: is being done.

    Yields:
        What to call with the part of the work that has begun.
    """
    if not sys.stderr.isatty():
        yield lambda part: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda part: progress.update(task, description=f"{what}: {part}")


@contextmanager
def advancing(what: str) -> Iterator[Callable[[str, float], None]]:
    """Show on a terminal's stderr how much of a work is done; elsewhere nothing is shown.

    Args:
        what: is being done.

    Yields:
        What to call with the part of the work that has begun, and the share of all that is done before it.
    """
    if not sys.stderr.isatty():
        yield lambda part, share: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=1.0)
        yield lambda part, share: progress.update(task, description=f"{what}: {part}", completed=share)
