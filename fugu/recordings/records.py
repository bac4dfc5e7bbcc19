"""Tables of records: rows of which each names its own columns."""

from __future__ import annotations

from collections.abc import Iterable

from fugu.recordings import table
from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File

__all__ = ["Record", "table_of_records"]

Record = dict[str, str]
"""Cells by column; a column that is absent is empty."""

_BLOCK = 20_000
_MOST_COLUMNS = 1_000


def table_of_records(form: str, file: File, records: Iterable[tuple[int, Record]], **meaning: object) -> table.Table:
    """Make a table of numbered records, whose columns are those that any of them has.

    Raises:
        RecordingError: there are no records, too many, or too many columns.
    """
    lines: list[int] = []
    columns: dict[str, list[str]] = {}
    block: list[list[str]] = []

    def flush() -> None:
        for column, cells in zip(columns.values(), zip(*block, strict=True), strict=False):
            column += cells
        block.clear()
        if len(lines) > table.MOST_ROWS:
            raise RecordingError(f"{file.name} has more than {table.MOST_ROWS} rows: give a part of it")

    for line, record in records:
        if not record.keys() <= columns.keys():
            flush()
            for name in record:
                columns.setdefault(name, [""] * len(lines))
            if len(columns) > _MOST_COLUMNS:
                raise RecordingError(f"{file.name} has more than {_MOST_COLUMNS} columns: give a part of it")
        block.append([record.get(name, "") for name in columns])
        lines.append(line)
        if len(block) >= _BLOCK:
            flush()
    flush()
    if not lines:
        raise RecordingError(f"{file.name} has no rows")
    return table.Table(form, columns, lines, **meaning)  # type: ignore[arg-type]
