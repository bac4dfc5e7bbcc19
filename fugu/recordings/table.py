"""A table of text: what every form of a recording becomes before anybody asks what its columns mean."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from fugu.contract.errors import FuguError
from fugu.recordings.file import File

__all__ = [
    "MOST_COLUMNS",
    "MOST_ROWS",
    "Block",
    "Form",
    "RowFilter",
    "Table",
    "begins",
    "chunks",
    "in_blocks",
    "table_of",
    "without_collection",
]

MOST_ROWS, MOST_COLUMNS = 5_000_000, 1_000
_BLOCK = 20_000
_T = TypeVar("_T")
RowFilter = Mapping[str, str]
"""The rows that are wanted, as a value for each of some columns."""


class Table(NamedTuple):
    """Rows of text by the name of their column, all of one length, in the order of the file; empty where missing.

    `lines` are where each row is, as `where` calls it ("line 7", "message 7"). A form that knows it says which column
    is the `time`, which the `value`, which are the `keys` that tell series apart, and whether rows are `changes`.
    """

    form: str
    columns: dict[str, list[str]]
    lines: Sequence[int]
    where: str = "line"
    time: str | None = None
    value: str | None = None
    keys: tuple[str, ...] = ()
    changes: bool | None = None
    plain: bool = False
    """True if an agent can replay the file as it is."""
    notes: tuple[str, ...] = ()

    def at(self, rows: Sequence[int]) -> Table:
        """The rows at these places."""
        columns = {name: [cells[row] for row in rows] for name, cells in self.columns.items()}
        return self._replace(columns=columns, lines=[self.lines[row] for row in rows])


class Form(NamedTuple):
    """A form of recordings, such as a delimited table.

    `sniff` tells whether a file is of this form, by its first bytes. `read` makes a table of it, and may skip rows that
    are not `only` those wanted. Its FuguError is one line that names the form, what is wrong, and what to do.
    """

    sniff: Callable[[File], bool]
    read: Callable[[File, RowFilter], Table]


def begins(pattern: bytes) -> Callable[[File], bool]:
    """Tell whether the first bytes of a file match a pattern."""
    return lambda file: re.match(pattern, file.head, re.DOTALL) is not None


Block = tuple[Sequence[int], Mapping[str, Sequence[str]]]
"""The lines of some rows, and their cells by column."""


def chunks(elements: Iterable[_T]) -> Iterator[list[_T]]:
    """Lists of items, as many as are worked on together."""
    remaining = iter(elements)
    while chunk := [*islice(remaining, _BLOCK)]:
        yield chunk


def in_blocks(records: Iterable[tuple[int, Mapping[str, str]]]) -> Iterator[Block]:
    """Make blocks of numbered records; a column that is absent is empty."""
    for chunk in chunks(records):
        header = dict.fromkeys(chain.from_iterable(record for _, record in chunk))
        yield [line for line, _ in chunk], {name: [record.get(name, "") for _, record in chunk] for name in header}


@contextmanager
def without_collection() -> Iterator[None]:
    """Look for no cycles: text and arrays form none, and looking takes half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def table_of(form: str, file: File, blocks: Iterable[Block], **table_fields: object) -> Table:
    """Make a table of blocks of rows; `table_fields` are further fields of the table.

    Raises:
        FuguError: there are no rows, too many, or too many columns.
    """
    lines: list[int] = []
    columns: dict[str, list[str]] = {}
    for numbers, block in blocks:
        for name in dict.fromkeys((*columns, *block)):
            columns.setdefault(name, [""] * len(lines)).extend(block.get(name) or [""] * len(numbers))
        lines += numbers
        if len(lines) > MOST_ROWS:
            raise FuguError(f"{file.name} has more than {MOST_ROWS} rows: give a part of it")
        if len(columns) > MOST_COLUMNS:
            raise FuguError(f"{file.name} has more than {MOST_COLUMNS} columns: give a part of it")
    if not lines:
        raise FuguError(f"{file.name} has no rows")
    return Table(form, columns, lines, **table_fields)  # type: ignore[arg-type]
