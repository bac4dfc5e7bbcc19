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

__all__ = ["csv_rows", "moment"]

LATEST = 1e11
"""Seconds since 1970, in 3,000 years: a time beyond is in milliseconds."""

NumberedRows = Iterator[tuple[int, list[str]]]


def moment(cell: str) -> float:
    """Unix time of a cell: seconds, or ISO 8601, in UTC where it has no zone; NaN if it is no time."""
    try:
        seconds = float(cell)
    except ValueError:
        try:
            date = datetime.fromisoformat(cell.strip())
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return math.nan
    return seconds if abs(seconds) < LATEST else math.nan


@contextmanager
def csv_rows(path: Path, refusal: type[FuguError], *, uneven: bool = False) -> Iterator[tuple[list[str], NumberedRows]]:
    """The header of a CSV file (gzip if .gz), and its other rows with line numbers; empty lines are left out.

    Cells are separated by the commas of its header, else its semicolons, else its tabs. `uneven` takes rows of other
    lengths than the header's, missing cells empty; else they are `refusal`, as what is no CSV file. OSError: it cannot
    be read.
    """
    open_file = gzip.open if path.suffix == ".gz" else open
    try:
        with open_file(path, "rt", encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            rows = csv.reader(chain([first], file), delimiter=next((sign for sign in ",;\t" if sign in first), ","))
            header = [cell.strip() for cell in next(rows, [])]
            yield header, _numbered(rows, len(header), path.name, refusal, uneven)
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise refusal(f"{path.name} is no CSV file: {cause(error)}") from None


def _numbered(rows: Iterator[list[str]], width: int, file: str, refusal: type[FuguError], uneven: bool) -> NumberedRows:
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != width and not uneven:
            raise refusal(f"{file}: line {line} has {len(row)} columns, not {width}")
        yield line, row + [""] * (width - len(row))
