"""InfluxDB: annotated CSV as its web page downloads it, and line protocol."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from fugu.contract.errors import FuguError
from fugu.recordings.file import File
from fugu.recordings.table import Block, Form, RowFilter, Table, begins, chunks, in_blocks, names_of, table_of

__all__ = ["ANNOTATED_CSV", "LINE_PROTOCOL"]

_NOT_READINGS = ("", "result", "table", "_start", "_stop")
_TIME, _VALUE = "_time", "_value"
_LINE = re.compile(r"((?:[^ \\]++|\\.)++) ((?:[^ \"\\]++|\\.|\"(?:[^\"\\]++|\\.)*+\")++)(?: (-?\d{9,19}))?\s*")
"""A line: its series, its fields, and its time if it has one."""
_PART = re.compile(r"(?<![^,])((?:[^,=\\]++|\\.)++)=(\"(?:[^\"\\]++|\\.)*+\"|(?:[^,\\]++|\\.)*+)(?:,|$)")
_NAME = re.compile(r"((?:[^,\\]++|\\.)++),?")
_FEWEST, _LOOKED_AT = 0.8, 40
_TRUTH = {"t": "true", "T": "true", "f": "false", "F": "false"}


def _read_annotated(file: File, row_filter: RowFilter) -> Table:
    """Read the rows of all tables of a file; each table has a header, and tags tell series apart."""
    header_names: dict[str, None] = {}

    def records() -> Iterator[tuple[int, dict[str, str]]]:
        with file.open_text() as text:
            csv_rows = csv.reader(text)
            header, defaults, is_header_next = list[str](), list[str](), True
            for row in csv_rows:
                if not any(row) or row[0].startswith("#"):
                    defaults, is_header_next = row if row and row[0] == "#default" else defaults, True
                elif is_header_next:
                    header, is_header_next = [cell.strip() for cell in row], False
                    header_names.update(dict.fromkeys(header))
                elif len(row) != len(header):
                    raise FuguError(f"{file.name}: line {csv_rows.line_num} has {len(row)} columns, not {len(header)}")
                else:
                    cells = zip(header, row, [*defaults, *[""] * len(header)], strict=False)
                    record = {name: cell.strip() or preset for name, cell, preset in cells if name not in _NOT_READINGS}
                    if all(record.get(name) == wanted_cell for name, wanted_cell in row_filter.items()):
                        yield csv_rows.line_num, record

    try:
        table = table_of("InfluxDB's annotated CSV", file, in_blocks(records()))
    except csv.Error:
        raise FuguError(f"{file.name} is no annotated CSV that can be read") from None
    tags = [key for key in header_names if key not in (*_NOT_READINGS, _TIME, _VALUE)]
    return _series_table(table, _TIME, tags)._replace(value=_VALUE if _VALUE in table.columns else None)


ANNOTATED_CSV = Form(begins(rb"[\r\n]*#(datatype|group|default)"), _read_annotated)


def _is_line_protocol(file: File) -> bool:
    """Return whether at least 80 % of the first lines have fields and a time."""
    lines = [line for line in file.first_lines[:_LOOKED_AT] if line[0] != "#"]
    matches = [_LINE.fullmatch(line) for line in lines[:-1] or lines]
    fitting_lines = sum(bool(match and "=" in match[2] and match[3]) for match in matches)
    return bool(matches) and fitting_lines >= _FEWEST * len(matches)


def _read_lines(file: File, row_filter: RowFilter) -> Table:
    """Read a row from each line: fields are columns, the measurement and tags tell series apart."""
    tag_names: dict[str, None] = {"measurement": None}

    def blocks() -> Iterator[Block]:
        with file.open_text() as text:
            lines = ((n, line.rstrip("\r\n")) for n, line in enumerate(text, 1) if line.strip() and line[0] != "#")
            for numbered_lines in chunks(lines):
                line_numbers: Sequence[int] = [line_number for line_number, _ in numbered_lines]
                line_parts = [_line_parts(line) for _, line in numbered_lines]
                if None in line_parts:
                    raise FuguError(f"{file.name}: line {line_numbers[line_parts.index(None)]} is no line protocol")
                series, field_texts, times = zip(*line_parts, strict=True)
                tags = {key: _series_tags(key) for key in dict.fromkeys(series)}
                names = names_of(tags.values())
                tag_names.update(dict.fromkeys(names))
                columns = {"time": times} | {name: [tags[key].get(name, "") for key in series] for name in names}
                columns |= _field_columns(field_texts)
                if row_filter:
                    passing_rows = [row for row in range(len(line_numbers)) if _passes_filter(columns, row, row_filter)]
                    line_numbers = [line_numbers[row] for row in passing_rows]
                    columns = {name: [cells[row] for row in passing_rows] for name, cells in columns.items()}
                yield line_numbers, columns

    return _series_table(table_of("InfluxDB's line protocol", file, blocks()), "time", [*tag_names])


LINE_PROTOCOL = Form(_is_line_protocol, _read_lines)


def _passes_filter(columns: dict[str, Sequence[str]], row: int, row_filter: RowFilter) -> bool:
    return all(name in columns and columns[name][row] == wanted_cell for name, wanted_cell in row_filter.items())


def _series_table(table: Table, time_column: str, tags: Sequence[str]) -> Table:
    """Set the keys of a table to the tags among its columns; drop a column of times without any time."""
    has_times = any(table.columns.get(time_column, ()))
    columns = {name: cells for name, cells in table.columns.items() if has_times or name != time_column}
    keys = tuple(tag for tag in tags if tag in columns)
    return table._replace(columns=columns, time=time_column if has_times else None, keys=keys)


def _line_parts(line: str) -> tuple[str, str, str] | None:
    """Split a line into its series, fields and time ('' without one); None if it is no line protocol."""
    if '"' not in line and "\\" not in line:
        parts = line.split(" ")
        if len(parts) == 3 and parts[2].isdigit() and 9 <= len(parts[2]) <= 19 and all(parts):
            return parts[0], parts[1], parts[2]
    match = _LINE.fullmatch(line)
    return None if match is None else (match[1], match[2], match[3] or "")


@lru_cache(maxsize=1024)
def _series_tags(series_text: str) -> dict[str, str]:
    """Return the measurement and the tags of a series, by their names."""
    match = _NAME.match(series_text)
    tags = _PART.findall(series_text, 0 if match is None else match.end())
    return {"measurement": _plain(match[1] if match else "")} | {_plain(key): _plain(value) for key, value in tags}


def _field_columns(lines: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the values of fields by name, with a value for each line; lines with equal fields are split together."""
    names = [field.partition("=")[0] for field in lines[0].split(",")]
    pieces = ",".join(lines).split(",")
    columns = [pieces[column :: len(names)] for column in range(len(names))]
    is_uniform = len(pieces) == len(names) * len(lines) and not any('"' in text or "\\" in text for text in lines)
    named_columns = [*zip(names, columns, strict=True)]
    if is_uniform and all(cell.startswith(f"{name}=") for name, cells in named_columns for cell in cells):
        return {name: _texts_of_field([cell[len(name) + 1 :] for cell in cells]) for name, cells in named_columns}
    line_fields = [{_plain(key): value for key, value in _PART.findall(text)} for text in lines]
    return {name: _texts_of_field([fields.get(name, "") for fields in line_fields]) for name in names_of(line_fields)}


def _plain(escaped_text: str) -> str:
    """Return a text without the backslashes that escape other characters."""
    return re.sub(r"\\(.)", r"\1", escaped_text) if "\\" in escaped_text else escaped_text


def _texts_of_field(cells: list[str]) -> list[str]:
    """Return a field's values without quotes, whole numbers without their letter, truth values in words."""
    return cells if {cell[-1:] for cell in cells} <= {*"0123456789"} else [*map(_text_of_field, cells)]


def _text_of_field(field_text: str) -> str:
    if field_text.startswith('"'):
        return _plain(field_text[1:-1])
    if field_text[-1:] in ("i", "u") and field_text[:-1].lstrip("-").isdigit():
        return field_text[:-1]
    return _TRUTH.get(field_text, field_text)
