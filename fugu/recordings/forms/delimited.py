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

from fugu.contract.errors import FuguError
from fugu.recordings.file import File
from fugu.recordings.table import Block, Form, Table, chunks, refuse_columns, table_of

__all__ = ["DELIMITED", "read_delimited"]

_SEPARATORS = ",;\t|"
_CHUNK = 1 << 22
_LOOKED_AT = 60
"""The number of first lines among which the header is looked for."""
_NUMBER = re.compile(r"\s*+[-+]?[.,]*+\d[\d.,]*+(e[-+]?\d+)?\s*", re.IGNORECASE)
_TIME = re.compile(r"\s*\d{1,4}[-/.]\d{1,2}([-/.]\d{1,4})?([ T].*+)?\s*|\s*\d{1,2}:\d{2}(:\d{2}.*+)?\s*")


def read_delimited(file: File, min_cells: int | None = None) -> Table:
    """Read the rows below the header; rows of `min_cells` cells or more are cut or filled to the header's length.

    Raises:
        FuguError: the file is no such table.
    """
    with file.open_text() as text:
        lines = list(islice(text, _LOOKED_AT))
        sep, head_line = _layout(lines)
        try:
            parsed_rows = csv.reader(lines[head_line:], delimiter=sep)
            header, body = [cell.strip() for cell in next(parsed_rows, [])], [row for row in parsed_rows if row]
            refuse_columns(file, len(header))
            if len(header) == 1 and _is_text(header[0]) and 2 * sum(_is_text(row[0]) for row in body) > len(body):
                raise FuguError(
                    f"{file.name} has no comma, semicolon, tab or bar between cells: write it as CSV, with a header"
                )
            if {len(row) for row in body} == {len(header) + 1} and not any(row[-1].strip() for row in body):
                header.append("")  # a separator behind the last cell
            unit_rows = _rows_of_units(body)
            body = body[unit_rows:]
            if lacks_header(header, body):
                raise FuguError(f"{file.name} has no header: write the names of its columns in a first line")
            notes = [f"{unit_rows} rows below the header have no numbers, as rows of units: left out"] * bool(unit_rows)
            filled_lines = [index for index in range(head_line + 1, len(lines)) if lines[index].strip()]
            first_index = filled_lines[unit_rows - 1] + 1 if unit_rows else head_line + 1
            table_body = _Body(file, sep, header, min_cells, notes)
            table = table_of("a delimited table", file, table_body.blocks(text, lines, head_line, first_index))
        except csv.Error:
            raise FuguError(
                f"{file.name} is no CSV file: a quote is not closed, or a cell is longer than {csv.field_size_limit()}"
            ) from None
    usual_sep = next((candidate for candidate in ",;\t" if candidate in lines[head_line]), ",")
    # As fugu.host.csv_file reads it, which an agent does.
    is_plain = head_line == 0 and sep == usual_sep and file.zipped == (file.path.suffix == ".gz") and file.in_utf8
    return table._replace(plain=is_plain and not notes, notes=tuple(notes))


DELIMITED = Form(lambda file: b"\0" not in file.head, lambda file, only: read_delimited(file))
"""Any table of text with a header."""


def _layout(lines: list[str]) -> tuple[str, int]:
    """Return the separator of cells, and the index of the header among the first lines of a file."""
    first_index = 0
    if lines and (match := re.fullmatch(r"\s*\"?sep=(.)\"?\s*", lines[0], re.IGNORECASE)):
        sep, first_index = match[1], 1
    else:
        sep = max(_SEPARATORS, key=lambda candidate: _regularity(lines, candidate))
    cells = {index: _cells(line, sep) for index, line in enumerate(lines) if index >= first_index and line.strip()}
    if not cells:
        return sep, first_index
    width = _usual_width([len(row) for row in cells.values()])
    body = [index for index, row in cells.items() if len(row) == width]
    first_index, previous = next(iter(cells)), body[0] - 1
    if len(cells.get(previous, ())) == width - 1 > 0 and _is_header(cells[previous]) and not _is_header(cells[body[0]]):
        return sep, previous  # each row has a separator behind its last cell
    return sep, body[0] if _is_header(cells[body[0]]) or not _is_header(cells[first_index]) else first_index


def _regularity(lines: list[str], sep: str) -> tuple[float, int]:
    """Return the rank of a separator: the share of lines with the usual number of cells, and the usual order."""
    widths = [len(_cells(line, sep)) for line in lines if line.strip()]
    width = _usual_width(widths) if widths else 1
    if width == 1:
        return 0.0, 0
    return widths.count(width) / len(widths), -_SEPARATORS.index(sep)


def _usual_width(widths: list[int]) -> int:
    """Return the most frequent width; of equally frequent widths, the last."""
    return Counter(reversed(widths)).most_common(1)[0][0]


def _cells(line: str, sep: str) -> list[str]:
    try:
        return next(csv.reader(StringIO(line), delimiter=sep), [])
    except csv.Error:
        return [line]


def _is_header(row: list[str]) -> bool:
    return all(cell.strip() and not _is_amount(cell) for cell in row)


def _is_amount(cell: str) -> bool:
    """Return whether a cell is a number or a time."""
    return bool(_NUMBER.fullmatch(cell) or _TIME.fullmatch(cell))


def _is_text(cell: str) -> bool:
    """Return whether a cell is several words, or a key and its value."""
    return " " in cell.strip() or "=" in cell


def _shape(cell: str) -> str:
    """Return a cell with each of its numbers replaced by 0."""
    return re.sub(r"\d+(\.\d+)?", "0", cell.strip())


def lacks_header(header: list[str], rows_below: list[list[str]]) -> bool:
    """Return whether the first row is no header: it holds amounts, or cells like the rows below."""
    if any(_is_amount(cell) for cell in header) or not any(header):
        return True
    for column, name in enumerate(header):
        cells = {row[column].strip() for row in rows_below if column < len(row)}
        if (name and name in cells) or ((shape := _shape(name)) != name and shape in map(_shape, cells)):
            return True
    return False


def _rows_of_units(body: list[list[str]]) -> int:
    """Return how many of the first two rows lack amounts in columns where nearly all other rows have amounts."""
    columns = [
        column
        for column in range(min(map(len, body), default=0))
        if sum(_is_amount(row[column]) for row in body[2:]) > 0.9 * len(body[2:])
    ]
    unit_rows = 0
    while unit_rows < 2 < len(body) and columns and not any(_is_amount(body[unit_rows][column]) for column in columns):
        unit_rows += 1
    return unit_rows


def _names(header: list[str]) -> list[str]:
    """Make names of columns unique: an empty or repeated name gets the column's number."""
    names: list[str] = []
    for column_number, name in enumerate(header, 1):
        while not name or name in names:
            name = f"{name or 'column'}_{column_number}"
        names.append(name)
    return names


class _Body(NamedTuple):
    """The rows below the header of a file. `notes` are added to as rows are read, and say what was left out.

    With `min_cells`, rows of at least so many cells are cut or filled to the header's length, and others left out.
    """

    file: File
    sep: str
    header: list[str]
    min_cells: int | None
    notes: list[str]

    def blocks(self, text: TextIO, lines: list[str], head_line: int, first_index: int) -> Iterator[Block]:
        """Return the rows in blocks. The header is at index `head_line` of `lines`, the first row at `first_index`."""
        line_number, names, width = first_index + 1, _names(self.header), len(self.header)
        chunk = "".join(lines[first_index:])
        while True:
            chunk += text.read(_CHUNK) + text.readline()
            if not chunk:
                return
            if lines[head_line] in chunk or (cells := _cells_of(chunk, self.sep, width)) is None:
                break
            row_count = len(cells) // width
            first_number, line_number = line_number, line_number + row_count
            yield range(first_number, line_number), {name: cells[column::width] for column, name in enumerate(names)}
            chunk = ""
        for line_numbers, block in self._rows(chain(StringIO(chunk, newline=""), text), line_number - 1):
            yield line_numbers, dict(zip(names, zip(*block, strict=True), strict=True))

    def _rows(self, text: Iterable[str], offset: int) -> Iterator[tuple[Sequence[int], list[list[str]]]]:
        """Return lists of line numbers and rows, without repeated headers or a last line that breaks off."""
        header, min_cells, width, last_line, counts = self.header, self.min_cells, len(self.header), "", Counter[str]()

        def remember_line(line: str) -> str:
            nonlocal last_line
            last_line = line
            return line

        parsed_rows = csv.reader(map(remember_line, text), delimiter=self.sep)
        lines_before = offset
        for block in chunks(parsed_rows):
            lines: Sequence[int] = range(lines_before + 1, offset + parsed_rows.line_num + 1)
            if len(lines) != len(block):  # of cells with several lines
                line_ends = accumulate((1 + "".join(row).count("\n") for row in block), initial=lines_before)
                lines = [*islice(line_ends, 1, None)]
            lines_before = offset + parsed_rows.line_num
            for index, row in enumerate(block):
                if len(row) == width and row != header:
                    continue
                if row == header:
                    counts["the header comes again {} times: left out"] += 1
                elif min_cells is not None and len(row) >= min_cells:
                    counts["{} rows are longer or shorter than the header: only its columns are read"] += 1
                    block[index] = row[:width] + [""] * (width - len(row))
                    continue
                elif row and min_cells is not None:
                    counts["{} rows without a time were left out"] += 1
                elif row and (len(row) > width or row is not block[-1] or last_line.endswith(("\n", "\r"))):
                    raise FuguError(f"{self.file.name}: line {lines[index]} has {len(row)} columns, not {width}")
                elif row:
                    self.notes.append(f"line {lines[index]}, the last, breaks off: left out")
                block[index] = []
            if not all(block):
                lines, block = [line for line, row in zip(lines, block, strict=True) if row], [*filter(None, block)]
            if block:
                yield lines, block
        self.notes.extend(note.format(count) for note, count in counts.items())


def _cells_of(chunk: str, sep: str, width: int) -> list[str] | None:
    """Return all cells of lines, row by row; None if a line has quotes or another number of cells."""
    chunk = chunk.replace("\r\n", "\n")
    if '"' in chunk or "\r" in chunk:
        return None
    chunk = chunk if chunk.endswith("\n") else f"{chunk}\n"
    seps = np.frombuffer(chunk.encode(), dtype=np.uint8)
    seps = seps[(seps == ord("\n")) | (seps == ord(sep))]
    row_seps = [ord(sep)] * (width - 1) + [ord("\n")]
    if len(seps) % width or (seps.reshape(-1, width) != row_seps).any() or (width == 1 and "\n\n" in f"\n{chunk}"):
        return None
    return chunk[:-1].replace("\n", sep).split(sep)
