"""Delimited tables: commas, semicolons, tabs or bars; with Excel's `sep=`, or a header in a later line."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from itertools import accumulate, chain, islice
from typing import TextIO

import numpy as np

from fugu.contract.errors import cause
from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.table import BLOCK, Block, Only, Table, table_of_blocks

__all__ = ["DELIMITED", "Delimited", "UnevenError", "is_data"]

_SIGNS = ",;\t|"
_CHUNK = 1 << 22
_LOOKED_AT = 60
"""Lines that are looked at for a header."""
_NUMBER = re.compile(r"\s*[-+]?[\d.,]*\d[\d.,]*(e[-+]?\d+)?\s*", re.IGNORECASE)
_TIME = re.compile(r"\s*\d{1,4}[-/.]\d{1,2}([-/.]\d{1,4})?([ T].*)?\s*|\s*\d{1,2}:\d{2}(:\d{2}.*)?\s*")


class UnevenError(RecordingError):
    """Rows have other lengths than their header."""


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
            try:
                head = csv.reader(lines[at:], delimiter=sign)
                header, body = [cell.strip() for cell in next(head, [])], [row for row in head if row]
                if len(header) == 1 and _is_line(header[0]) and 2 * sum(_is_line(row[0]) for row in body) > len(body):
                    raise RecordingError(
                        f"{file.name} has no comma, semicolon, tab or bar between cells: write it as CSV, with a header"
                    )
                if {len(row) for row in body} == {len(header) + 1} and not any(row[-1].strip() for row in body):
                    header.append("")  # a sign behind the last cell
                if is_data(header, body):
                    raise RecordingError(f"{file.name} has no header: write the names of its columns in a first line")
                notes = list[str]()
                blocks = _blocks(text, lines, at, sign, header, file.name, notes)
                table = table_of_blocks("a delimited table", file, _names(header), blocks)
            except csv.Error as error:
                raise RecordingError(f"{file.name} is no CSV file: {cause(error)}") from None
        signed = next((known for known in ",;\t" if known in lines[at]), ",")
        # As fugu.host.csv_file reads it, which an agent does.
        plain = at == 0 and sign == signed and file.zipped == (file.path.suffix == ".gz") and file.in_utf8
        return table._replace(plain=plain and not notes, notes=tuple(notes))


DELIMITED = Delimited()


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


def _is_line(cell: str) -> bool:
    """True of several words, or of a key and its value."""
    return " " in cell.strip() or "=" in cell


def _shape(cell: str) -> str:
    """A cell with all its numbers alike."""
    return re.sub(r"\d+(\.\d+)?", "0", cell.strip())


def is_data(header: list[str], body: list[list[str]]) -> bool:
    """Return whether a first row is a reading: it has amounts, or words that its columns have again below."""
    if any(_is_amount(cell) for cell in header) or not any(header):
        return True
    shapes = [{_shape(row[place]) for row in body if place < len(row)} for place in range(len(header))]
    if any(_shape(cell) != cell and _shape(cell) in some for cell, some in zip(header, shapes, strict=True)):
        return True
    below = [{row[place].strip() for row in body if place < len(row)} for place in range(len(header))]
    return any(cell and cell in cells for cell, cells in zip(header, below, strict=True))


def _names(header: list[str]) -> list[str]:
    """Names of columns, which are all different: an empty one, or one that comes again, gets its number."""
    names: list[str] = []
    for place, name in enumerate(header, 1):
        names.append(name if name and name not in names else f"{name or 'column'}_{place}")
    return names


def _blocks(
    text: TextIO, lines: list[str], at: int, sign: str, header: list[str], file: str, notes: list[str]
) -> Iterator[Block]:
    """Blocks of the rows below the header, which is `at` a place of the first lines."""
    line, chunk, width = at + 2, "".join(lines[at + 1 :]), len(header)
    while True:
        chunk += text.read(_CHUNK) + text.readline()
        if not chunk:
            return
        if lines[at] in chunk or (cells := _cells_of(chunk, sign, width)) is None:
            break
        rows = len(cells) // width
        yield range(line, line + rows), (cells[place::width] for place in range(width))
        line, chunk = line + rows, ""
    rest = chain(StringIO(chunk, newline=""), text)
    yield from _read_blocks(rest, sign, header, line - 1, file, notes)


def _cells_of(chunk: str, sign: str, width: int) -> list[str] | None:
    """All cells of lines without quotes, of which each has the same number; None of others."""
    chunk = chunk.replace("\r\n", "\n")
    if '"' in chunk or "\r" in chunk:
        return None
    chunk = chunk if chunk.endswith("\n") else f"{chunk}\n"
    signs = np.frombuffer(chunk.encode(), dtype=np.uint8)
    signs = signs[(signs == ord("\n")) | (signs == ord(sign))]
    row = [ord(sign)] * (width - 1) + [ord("\n")]
    if len(signs) % width or (signs.reshape(-1, width) != row).any() or (width == 1 and "\n\n" in chunk):
        return None
    return chunk[:-1].replace("\n", sign).split(sign)


def _read_blocks(
    text: Iterable[str], sign: str, header: list[str], before: int, file: str, notes: list[str]
) -> Iterator[Block]:
    """Rows of any shape; headers that come again, and a last line that breaks off, are left out and told."""
    width, newest, repeated = len(header), "", 0

    def remembered(line: str) -> str:
        nonlocal newest
        newest = line
        return line

    rows = csv.reader(map(remembered, text), delimiter=sign)
    while True:
        first = rows.line_num
        block = list(islice(rows, BLOCK))
        if not block:
            break
        lines: Sequence[int] = range(before + first + 1, before + rows.line_num + 1)
        if len(lines) != len(block):  # of cells with several lines
            ends = accumulate((1 + sum(cell.count("\n") for cell in row) for row in block), initial=before + first)
            lines = [*islice(ends, 1, None)]
        uneven = [(line, row) for line, row in zip(lines, block, strict=True) if len(row) != width or row == header]
        for line, row in uneven:
            if row == header:
                repeated += 1
            elif row and (len(row) > width or row is not block[-1] or newest.endswith(("\n", "\r"))):
                raise UnevenError(f"{file}: line {line} has {len(row)} columns, not {width}")
            elif row:
                notes.append(f"line {line}, the last, breaks off: left out")
        if uneven:
            others = [place for place, row in enumerate(block) if len(row) == width and row != header]
            lines, block = [lines[place] for place in others], [block[place] for place in others]
        if block:
            yield lines, zip(*block, strict=True)
    if repeated:
        notes.append(f"the header comes again {repeated} times: left out")
