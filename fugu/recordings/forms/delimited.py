"""Delimited tables: commas, semicolons, tabs or bars; with Excel's `sep=`, or a header in a later line."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from itertools import accumulate, chain, islice
from typing import NamedTuple, TextIO

import numpy as np

from fugu.contract.errors import FuguError, cause
from fugu.recordings.file import File
from fugu.recordings.table import Block, Form, Table, chunks, table_of

__all__ = ["DELIMITED", "read_delimited"]

_SIGNS = ",;\t|"
_CHUNK = 1 << 22
_LOOKED_AT = 60
"""Lines that are looked at for a header."""
_NUMBER = re.compile(r"\s*[-+]?[\d.,]*\d[\d.,]*(e[-+]?\d+)?\s*", re.IGNORECASE)
_TIME = re.compile(r"\s*\d{1,4}[-/.]\d{1,2}([-/.]\d{1,4})?([ T].*)?\s*|\s*\d{1,2}:\d{2}(:\d{2}.*)?\s*")


def read_delimited(file: File, least: int | None = None) -> Table:
    """Read the rows below the header. With `least` they are of any length, but have so many cells.

    Raises:
        FuguError: it is no such table.
    """
    with file.text() as text:
        lines = list(islice(text, _LOOKED_AT))
        sign, at = _layout(lines)
        try:
            head = csv.reader(lines[at:], delimiter=sign)
            header, body = [cell.strip() for cell in next(head, [])], [row for row in head if row]
            if len(header) == 1 and _is_line(header[0]) and 2 * sum(_is_line(row[0]) for row in body) > len(body):
                raise FuguError(
                    f"{file.name} has no comma, semicolon, tab or bar between cells: write it as CSV, with a header"
                )
            if {len(row) for row in body} == {len(header) + 1} and not any(row[-1].strip() for row in body):
                header.append("")  # a sign behind the last cell
            units = _rows_of_units(body)
            body = body[units:]
            if is_data(header, body):
                raise FuguError(f"{file.name} has no header: write the names of its columns in a first line")
            notes = [f"{units} rows below the header have no numbers, as rows of units: left out"] * bool(units)
            filled = [place for place in range(at + 1, len(lines)) if lines[place].strip()]
            begin = filled[units - 1] + 1 if units else at + 1
            below = _Below(file, sign, header, least, notes)
            table = table_of("a delimited table", file, below.blocks(text, lines, at, begin))
        except csv.Error as error:
            raise FuguError(f"{file.name} is no CSV file: {cause(error)}") from None
    signed = next((mark for mark in ",;\t" if mark in lines[at]), ",")
    # As fugu.host.csv_file reads it, which an agent does.
    plain = at == 0 and sign == signed and file.zipped == (file.path.suffix == ".gz") and file.in_utf8
    return table._replace(plain=plain and not notes, notes=tuple(notes))


DELIMITED = Form(lambda file: b"\0" not in file.head, lambda file, only: read_delimited(file))
"""Any table of text with a header."""


def _layout(lines: list[str]) -> tuple[str, int]:
    """The sign between cells, and the place of the header among the first lines of a file."""
    first = 0
    if lines and (match := re.fullmatch(r"\s*\"?sep=(.)\"?\s*", lines[0], re.IGNORECASE)):
        sign, first = match[1], 1
    else:
        sign = max(_SIGNS, key=lambda mark: _regular(lines, mark))
    cells = {place: _cells(line, sign) for place, line in enumerate(lines) if place >= first and line.strip()}
    if not cells:
        return sign, first
    width = _usual([len(row) for row in cells.values()])
    body = [place for place, row in cells.items() if len(row) == width]
    first, before = next(iter(cells)), body[0] - 1
    if len(cells.get(before, ())) == width - 1 > 0 and _is_header(cells[before]) and not _is_header(cells[body[0]]):
        return sign, before  # each row has a sign behind its last cell
    return sign, body[0] if _is_header(cells[body[0]]) or not _is_header(cells[first]) else first


def _regular(lines: list[str], sign: str) -> tuple[float, int]:
    """How many lines have the usual number of cells, if that is more than one, and how many cells these are."""
    widths = [len(_cells(line, sign)) for line in lines if line.strip()]
    width = _usual(widths) if widths else 1
    if width == 1:
        return 0.0, 0
    return sum(fields == width for fields in widths) / len(widths), -_SIGNS.index(sign)


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
    if any(_shape(cell) != cell and _shape(cell) in common for cell, common in zip(header, shapes, strict=True)):
        return True
    below = [{row[place].strip() for row in body if place < len(row)} for place in range(len(header))]
    return any(cell and cell in cells for cell, cells in zip(header, below, strict=True))


def _rows_of_units(body: list[list[str]]) -> int:
    """How many of the first two rows have no amount, and a mark of units, where all others have amounts."""
    columns = [
        place
        for place in range(min(map(len, body), default=0))
        if sum(_is_amount(row[place]) for row in body[2:]) > 0.9 * len(body[2:])
    ]
    rows = 0
    while rows < 2 < len(body) and columns and not any(_is_amount(body[rows][place]) for place in columns):
        rows += 1
    return rows


def _names(header: list[str]) -> list[str]:
    """Names of columns, which are all different: an empty one, or one that comes again, gets its number."""
    names: list[str] = []
    for place, name in enumerate(header, 1):
        names.append(name if name and name not in names else f"{name or 'column'}_{place}")
    return names


class _Below(NamedTuple):
    """Rows below the header of a file; with at `least` so many cells they are cut or filled, and others left out.

    `notes` say what is left out.
    """

    file: File
    sign: str
    header: list[str]
    least: int | None
    notes: list[str]

    def blocks(self, text: TextIO, lines: list[str], at: int, begin: int) -> Iterator[Block]:
        """Blocks of them; the header is `at` a place of the first lines, and they come from the line `begin` on."""
        line, chunk, names, width = begin + 1, "".join(lines[begin:]), _names(self.header), len(self.header)
        while True:
            chunk += text.read(_CHUNK) + text.readline()
            if not chunk:
                return
            if lines[at] in chunk or (cells := _cells_of(chunk, self.sign, width)) is None:
                break
            rows = len(cells) // width
            yield range(line, line + rows), {name: cells[place::width] for place, name in enumerate(names)}
            line, chunk = line + rows, ""
        for numbers, block in self._rows(chain(StringIO(chunk, newline=""), text), line - 1):
            yield numbers, dict(zip(names, zip(*block, strict=True), strict=True))

    def _rows(self, text: Iterable[str], before: int) -> Iterator[tuple[Sequence[int], list[list[str]]]]:
        """Rows of any shape, with their lines, without headers that come again, and a line that breaks off."""
        header, least, width, newest, left_out = self.header, self.least, len(self.header), "", Counter[str]()

        def remembered(line: str) -> str:
            nonlocal newest
            newest = line
            return line

        rows = csv.reader(map(remembered, text), delimiter=self.sign)
        first = 0
        for block in chunks(rows):
            lines: Sequence[int] = range(before + first + 1, before + rows.line_num + 1)
            if len(lines) != len(block):  # of cells with several lines
                ends = accumulate((1 + sum(cell.count("\n") for cell in row) for row in block), initial=before + first)
                lines = [*islice(ends, 1, None)]
            first = rows.line_num
            for place, row in enumerate(block):
                if len(row) == width and row != header:
                    continue
                if row == header:
                    left_out["the header comes again {} times: left out"] += 1
                elif least is not None and len(row) >= least:
                    left_out["{} rows are longer or shorter than the header: only its columns are read"] += 1
                    block[place] = row[:width] + [""] * (width - len(row))
                    continue
                elif row and least is not None:
                    left_out["{} rows without a time were left out"] += 1
                elif row and (len(row) > width or row is not block[-1] or newest.endswith(("\n", "\r"))):
                    raise FuguError(f"{self.file.name}: line {lines[place]} has {len(row)} columns, not {width}")
                elif row:
                    self.notes.append(f"line {lines[place]}, the last, breaks off: left out")
                block[place] = []
            if not all(block):
                lines, block = [line for line, row in zip(lines, block, strict=True) if row], [*filter(None, block)]
            if block:
                yield lines, block
        self.notes.extend(note.format(count) for note, count in left_out.items())


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
