"""CSV files with a header, plain or gzip: recordings and traces. Errors name rows and columns, never a value."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gateway.planning.errors import PlanningError

__all__ = ["NumberedRows", "column_missing", "csv_rows"]

NumberedRows = Iterator[tuple[int, list[str]]]


@contextmanager
def csv_rows(path: Path) -> Iterator[tuple[list[str], NumberedRows]]:
    """Open a CSV file: its header, and its other rows with their line numbers; empty lines are left out.

    Args:
        path: the file; compressed if its name ends in .gz.

    Raises:
        PlanningError: it is no CSV file, or a row is not as long as the header.
        OSError: it cannot be read.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            header = [cell.strip() for cell in next(rows, [])]
            yield header, _numbered(rows, len(header), path.name)
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PlanningError(f"{path.name} is no CSV file: {type(error).__name__}") from None


def column_missing(file: str, name: str, header: Sequence[str]) -> PlanningError:
    """What to say of a column that is not there; a first row with numbers or times is no header, but readings."""
    named = all(cell[:1].isalpha() for cell in header if cell)
    shown = ", ".join(header)[:200] if named else ""
    return PlanningError(f"{file} has no column {name!r}; it has {shown or 'no header'}")


def _numbered(rows: Iterator[list[str]], width: int, file: str) -> NumberedRows:
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != width:
            raise PlanningError(f"{file}: line {line} has {len(row)} columns, not {width}")
        yield line, row
