"""A table of text: what every form of a recording becomes before anybody asks what its columns mean."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File

__all__ = [
    "BLOCK",
    "MOST_ROWS",
    "Block",
    "Form",
    "Only",
    "Record",
    "Table",
    "table_of",
    "table_of_blocks",
    "table_of_records",
]

MOST_ROWS = 5_000_000
BLOCK = 20_000
_MOST_COLUMNS = 1_000
Only = Mapping[str, str]
"""The rows that are wanted, as a value for each of some columns."""


Record = dict[str, str]
"""Cells by column; a column that is absent is empty."""


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


class Form(Protocol):
    """A form of recordings, such as a delimited table: known by its first bytes, and read into a table."""

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether a file is of this form, by its first bytes (unpacked, text in UTF-8) and its name."""

    def read(self, file: File, only: Only) -> Table:
        """Read a file. Rows that are not `only` those wanted may be skipped.

        Raises:
            RecordingError: one line that names the form, what is wrong, and what to do.
            OSError: it cannot be read.
        """


Block = tuple[Sequence[int], Iterable[Sequence[str]]]
"""The lines of some rows, and the cells of each column."""


def table_of(
    form: str, file: File, header: Sequence[str], rows: Iterable[tuple[int, Sequence[str]]], **meaning: object
) -> Table:
    """Make a table of numbered rows, each as long as the header; `meaning` are further fields of the table.

    Raises:
        RecordingError: there are no rows, or too many.
    """
    return table_of_blocks(form, file, header, _blocks(rows), **meaning)


def _blocks(rows: Iterable[tuple[int, Sequence[str]]]) -> Iterator[Block]:
    numbered = iter(rows)
    while block := list(islice(numbered, BLOCK)):
        yield [line for line, _ in block], zip(*(row for _, row in block), strict=True)


def table_of_blocks(form: str, file: File, header: Iterable[str], blocks: Iterable[Block], **meaning: object) -> Table:
    """Make a table of blocks of rows. The header may grow while they come; else as `table_of`."""
    lines: list[int] = []
    columns: dict[str, list[str]] = {name: [] for name in header}
    collects = gc.isenabled()
    gc.disable()  # rows of text form no cycles, and looking for them takes half of the time
    try:
        for numbers, block in blocks:
            for name in header:
                if name not in columns:
                    columns[name] = [""] * len(lines)
            lines += numbers
            if len(lines) > MOST_ROWS:
                raise RecordingError(f"{file.name} has more than {MOST_ROWS} rows: give a part of it")
            for column, cells in zip(columns.values(), block, strict=True):
                column += cells
    finally:
        if collects:
            gc.enable()
    if not lines:
        raise RecordingError(f"{file.name} has no rows")
    return Table(form, columns, lines, **meaning)  # type: ignore[arg-type]


def table_of_records(form: str, file: File, records: Iterable[tuple[int, Record]], **meaning: object) -> Table:
    """Make a table of numbered records, whose columns are those that any of them has.

    Raises:
        RecordingError: there are no records, too many, or too many columns.
    """
    header: dict[str, None] = {}

    def blocks() -> Iterator[Block]:
        numbered = iter(records)
        while block := list(islice(numbered, BLOCK)):
            for _, record in block:
                if record.keys() != header.keys():
                    header.update(dict.fromkeys(record))
                    if len(header) > _MOST_COLUMNS:
                        raise RecordingError(f"{file.name} has more than {_MOST_COLUMNS} columns: give a part of it")
            yield [line for line, _ in block], ([record.get(name, "") for _, record in block] for name in header)

    return table_of_blocks(form, file, header, blocks(), **meaning)
