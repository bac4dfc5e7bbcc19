"""CSV files with a header, plain or gzip: recordings and traces. Errors name rows and columns, never a value."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from fugu.contract.errors import FuguError, cause

__all__ = ["csv_rows", "moment", "refuse_pipe", "unix_seconds"]

LATEST = 1e11
"""Unix seconds, about 3,000 years from now: a larger number is a time in milliseconds."""


def moment(cell: str) -> float:
    """Read Unix seconds, or ISO 8601 (UTC if it has no zone), as Unix seconds; NaN if the cell is no time."""
    try:
        seconds = float(cell)
    except ValueError:
        try:
            seconds = unix_seconds(cell.strip())
        except (ValueError, OverflowError):
            return math.nan
    return seconds if abs(seconds) < LATEST else math.nan


def unix_seconds(text: str) -> float:
    """Read a time of ISO 8601, of UTC if it has no zone, as Unix seconds. Raises ValueError or OverflowError."""
    date = datetime.fromisoformat(text)
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def refuse_pipe(path: Path, error_type: type[FuguError]) -> None:
    """Raise `error_type` for a pipe: to open one waits for a writer, and what was read is gone."""
    if path.is_fifo():
        raise error_type(f"{path.name} is a pipe: write its contents into a file, and give that")


@contextmanager
def csv_rows(path: Path, error_type: type[FuguError]) -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    """Open a CSV file (gzip if .gz). Give its header and the other rows, without empty lines.

    The separator is a comma if the header has one, else a semicolon, else a tab. Rows may be longer than the header;
    the missing cells of a shorter row are empty. `error_type`: it is no CSV file. OSError: the file cannot be read.
    """
    refuse_pipe(path, error_type)
    open_file = gzip.open if path.suffix == ".gz" else open
    try:
        with open_file(path, "rt", encoding="utf-8-sig", newline="") as file:
            header_line = file.readline()
            separator = next((sign for sign in ",;\t" if sign in header_line), ",")
            rows = csv.reader(chain([header_line], file), delimiter=separator)
            column_names = [cell.strip() for cell in next(rows, [])]
            yield column_names, (row + [""] * (len(column_names) - len(row)) for row in rows if row)
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise error_type(f"{path.name} is no CSV file: {cause(error)}") from None
