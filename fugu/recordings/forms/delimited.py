"""Delimited tables: commas, semicolons, tabs or bars; with Excel's `sep=`, or a header in a later line."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import chain, islice
from typing import Any

from fugu.contract.errors import cause
from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.table import BLOCK, Numbered, Only, Table, table_of_blocks

__all__ = ["Delimited", "is_data"]

_SIGNS = ",;\t|"
_LOOKED_AT = 60
"""Lines that are looked at for a header."""
_NUMBER = re.compile(r"\s*[-+]?[\d.,]*\d[\d.,]*(e[-+]?\d+)?\s*", re.IGNORECASE)
_TIME = re.compile(r"\s*\d{1,4}[-/.]\d{1,2}([-/.]\d{1,4})?([ T].*)?\s*|\s*\d{1,2}:\d{2}(:\d{2}.*)?\s*")


class Delimited:
    """Any table of text with a header."""

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether it is text."""
        return b"\0" not in head

    def read(self, file: File, only: Only) -> Table:
        """Read the rows below the header."""
        with file.text() as text:
            lines = list(islice(text, _LOOKED_AT))
            sign, at = _layout(lines)
            rows = csv.reader(chain(lines[at:], text), delimiter=sign)
            try:
                header = [cell.strip() for cell in next(rows, [])]
                body = [row for row in csv.reader(lines[at + 1 :], delimiter=sign) if row]
                if is_data(header, body):
                    raise RecordingError(f"{file.name} has no header: write the names of its columns in a first line")
                names = _names(header)
                table = table_of_blocks("a delimited table", file, names, _blocks(rows, len(names), at, file.name))
            except csv.Error as error:
                raise RecordingError(f"{file.name} is no CSV file: {cause(error)}") from None
        signed = next((known for known in ",;\t" if known in lines[at]), ",")
        # As fugu.host.csv_file reads it, which an agent does.
        plain = at == 0 and sign == signed and file.zipped == (file.path.suffix == ".gz") and file.in_utf8
        return table._replace(plain=plain)


def _layout(lines: list[str]) -> tuple[str, int]:
    """The sign between cells, and the place of the header among the first lines of a file."""
    first = 0
    if lines and (told := re.fullmatch(r"\s*\"?sep=(.)\"?\s*", lines[0], re.IGNORECASE)):
        sign, first = told[1], 1
    else:
        sign = max(_SIGNS, key=lambda one: _regular(lines, one))
    cells = {place: _cells(line, sign) for place, line in enumerate(lines) if place >= first and line.strip()}
    if not cells:
        return sign, first
    width = _usual([len(row) for row in cells.values()])
    body = [place for place, row in cells.items() if len(row) == width]
    first = next(iter(cells))
    return sign, body[0] if _is_header(cells[body[0]]) or not _is_header(cells[first]) else first


def _regular(lines: list[str], sign: str) -> tuple[float, int]:
    """How many lines have the usual number of cells, if that is more than one, and how many cells these are."""
    widths = [len(_cells(line, sign)) for line in lines if line.strip()]
    width = _usual(widths) if widths else 1
    if width == 1:
        return 0.0, 0
    return sum(one == width for one in widths) / len(widths), -_SIGNS.index(sign)


def _usual(widths: list[int]) -> int:
    """The most frequent width; of equally frequent ones that which came last."""
    counts = Counter(widths)
    return max(counts, key=lambda width: (counts[width], widths[::-1].index(width) * -1))


def _cells(line: str, sign: str) -> list[str]:
    try:
        return next(csv.reader(StringIO(line), delimiter=sign), [])
    except csv.Error:
        return [line]


def _is_header(row: list[str]) -> bool:
    return all(cell.strip() and not _is_amount(cell) for cell in row)


def _is_amount(cell: str) -> bool:
    """True of a number or a time."""
    return bool(_NUMBER.fullmatch(cell) or _TIME.fullmatch(cell))


def is_data(header: list[str], body: list[list[str]]) -> bool:
    """Return whether a first row is a reading: it has amounts, or words that its columns have again below."""
    if any(_is_amount(cell) for cell in header) or not any(header):
        return True
    below = [{row[place].strip() for row in body if place < len(row)} for place in range(len(header))]
    return any(cell and cell in cells for cell, cells in zip(header, below, strict=True))


def _names(header: list[str]) -> list[str]:
    """Names of columns, which are all different: an empty one, or one that comes again, gets its number."""
    names: list[str] = []
    for place, name in enumerate(header, 1):
        names.append(name if name and name not in names else f"{name or 'column'}_{place}")
    return names


def _blocks(rows: Any, width: int, before: int, file: str) -> Iterator[Numbered]:
    while True:
        first = rows.line_num
        block = list(islice(rows, BLOCK))
        if not block:
            return
        lines: Sequence[int] = range(before + first + 1, before + rows.line_num + 1)
        if len(lines) != len(block) or not all(
            block
        ):  # cells of several lines, and empty lines, are counted one by one
            places, place = [], before + first
            for row in block:
                place += 1 + sum(cell.count("\n") for cell in row)
                places.append(place)
            filled = [(line, row) for line, row in zip(places, block, strict=True) if row]
            lines, block = [line for line, _ in filled], [row for _, row in filled]
        if not block:
            continue
        if set(map(len, block)) - {width}:
            line, row = next((line, row) for line, row in zip(lines, block, strict=True) if len(row) != width)
            raise RecordingError(f"{file}: line {line} has {len(row)} columns, not {width}")
        yield lines, block
