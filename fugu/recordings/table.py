"""A table of text, into which every form of recording is read before its columns are interpreted."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
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
    "names_of",
    "refuse_columns",
    "table_of",
    "without_collection",
]

MOST_ROWS, MOST_COLUMNS = 5_000_000, 1_000
_BLOCK = 20_000
_T = TypeVar("_T")
RowFilter = Mapping[str, str]
"""Cells by column: only rows with these cells are wanted."""


class Table(NamedTuple):
    """Cells of rows by column, in the order of the file; all columns have one length, and missing cells are empty.

    `file` is the name in errors. `lines` are the numbers of the rows in the file, `where` the word before such a number
    ("line", "message"). If the form of the file shows them, `time` and `value` are the columns of times and readings,
    and `keys` the columns that tell series apart. `changes` says whether rows are changes, None if the form does not
    show it.
    """

    file: str
    form: str
    columns: dict[str, list[str]]
    lines: Sequence[int]
    where: str = "line"
    time: str | None = None
    value: str | None = None
    keys: tuple[str, ...] = ()
    changes: bool | None = None
    plain: bool = False
    """True if an agent can replay the file without conversion."""
    notes: tuple[str, ...] = ()
    has_times: bool = True
    """False if only the period gives the time between rows."""

    def with_rows(self, rows: Sequence[int]) -> Table:
        """Return a table of the rows with these indices."""
        columns = {name: [cells[row] for row in rows] for name, cells in self.columns.items()}
        return self._replace(columns=columns, lines=[self.lines[row] for row in rows])

    def place(self, row: int, column: str) -> str:
        """Describe the place of a cell; an error about the cell begins with these words."""
        return f"{self.file}: {self.where} {self.lines[row]}, column {column}"

    def without_rows(self, rows: Container[int]) -> Table:
        """Return a table without the rows with these indices."""
        return self.with_rows([row for row in range(len(self.lines)) if row not in rows])


class Form(NamedTuple):
    """A form of recordings, such as a delimited table.

    `sniff` tells by the first bytes whether a file has this form. `read` makes a table of the file, and may leave out
    rows that the filter does not want. Its FuguError is one line that names the form, the fault, and what to do.
    """

    sniff: Callable[[File], bool]
    read: Callable[[File, RowFilter], Table]


def begins(pattern: bytes) -> Callable[[File], bool]:
    """Make a function that tests whether the first bytes of a file match a pattern."""
    return lambda file: re.match(pattern, file.head, re.DOTALL) is not None


Block = tuple[Sequence[int], Mapping[str, Sequence[str]]]
"""The line numbers of some rows, and their cells by column."""


def chunks(elements: Iterable[_T]) -> Iterator[list[_T]]:
    """Split elements into lists of up to 20,000."""
    remaining = iter(elements)
    while chunk := [*islice(remaining, _BLOCK)]:
        yield chunk


def names_of(name_rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the different names in rows of names, at most one more than `MOST_COLUMNS`, which `table_of` refuses."""
    return [*dict.fromkeys(chain.from_iterable(name_rows))][: MOST_COLUMNS + 1]


def refuse_columns(file: File, column_count: int) -> None:
    """Raise FuguError if a file has more columns than a table can have."""
    if column_count > MOST_COLUMNS:
        raise FuguError(f"{file.name} has more than {MOST_COLUMNS} columns: give a part of it")


def in_blocks(records: Iterable[tuple[int, Mapping[str, str]]]) -> Iterator[Block]:
    """Make blocks of numbered records, with an empty cell where a record lacks a column."""
    for chunk in chunks(records):
        header = names_of(record for _, record in chunk)
        yield [line for line, _ in chunk], {name: [record.get(name, "") for _, record in chunk] for name in header}


@contextmanager
def without_collection() -> Iterator[None]:
    """Switch garbage collection off: text and arrays form no cycles, and to search for cycles takes half the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def table_of(form: str, file: File, blocks: Iterable[Block], **table_fields: object) -> Table:
    """Join blocks of rows into a table; `table_fields` are further fields of the table.

    Raises:
        FuguError: there are no rows, too many, or too many columns.
    """
    lines: list[int] = []
    columns: dict[str, list[str]] = {}
    for line_numbers, block in blocks:
        for name in dict.fromkeys((*columns, *block)):
            columns.setdefault(name, [""] * len(lines)).extend(block.get(name) or [""] * len(line_numbers))
        lines += line_numbers
        if len(lines) > MOST_ROWS:
            raise FuguError(f"{file.name} has more than {MOST_ROWS} rows: give a part of it")
        refuse_columns(file, len(columns))
    if not lines:
        raise FuguError(f"{file.name} has no rows")
    return Table(file.name, form, columns, lines, **table_fields)  # type: ignore[arg-type]
