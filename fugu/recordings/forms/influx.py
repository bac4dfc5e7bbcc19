"""InfluxDB: annotated CSV as its page downloads it, and line protocol."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from fugu.contract.errors import FuguError
from fugu.recordings.file import File
from fugu.recordings.table import Block, Form, Only, Table, begins, chunks, in_blocks, table_of

__all__ = ["ANNOTATED_CSV", "LINE_PROTOCOL"]

_NOT_READINGS = ("", "result", "table", "_start", "_stop")
_TIME, _VALUE = "_time", "_value"
_LINE = re.compile(r"((?:[^ \\]++|\\.)++) ((?:[^ \"\\]++|\\.|\"(?:[^\"\\]++|\\.)*+\")++)(?: (-?\d{9,19}))?\s*")
"""The series, the fields and the time of a line."""
_PART = re.compile(r"((?:[^,=\\]++|\\.)++)=(\"(?:[^\"\\]++|\\.)*+\"|(?:[^,\\]++|\\.)*+)(?:,|$)")
_NAME = re.compile(r"((?:[^,\\]++|\\.)++),?")
_FEWEST, _LOOKED_AT = 0.8, 40
_TRUTH = {"t": "true", "T": "true", "f": "false", "F": "false"}


def _read_annotated(file: File, only: Only) -> Table:
    """Read the rows of all tables, each with a header of its own; their tags tell series apart."""
    keys: dict[str, None] = {}

    def records() -> Iterator[tuple[int, dict[str, str]]]:
        with file.text() as text:
            rows = csv.reader(text)
            header, defaults, begins = list[str](), list[str](), True
            for row in rows:
                if not any(row) or row[0].startswith("#"):
                    defaults, begins = row if row and row[0] == "#default" else defaults, True
                elif begins:
                    header, begins = [cell.strip() for cell in row], False
                    keys.update(dict.fromkeys(header))
                elif len(row) != len(header):
                    raise FuguError(f"{file.name}: line {rows.line_num} has {len(row)} columns, not {len(header)}")
                else:
                    cells = zip(header, row, [*defaults, *[""] * len(header)], strict=False)
                    record = {name: cell.strip() or usual for name, cell, usual in cells if name not in _NOT_READINGS}
                    if all(record.get(name) == value for name, value in only.items()):
                        yield rows.line_num, record

    try:
        table = table_of("InfluxDB's annotated CSV", file, in_blocks(records()))
    except csv.Error:
        raise FuguError(f"{file.name} is no annotated CSV that can be read") from None
    tags = [key for key in keys if key not in (*_NOT_READINGS, _TIME, _VALUE)]
    return _of_series(table, _TIME, tags)._replace(value=_VALUE if _VALUE in table.columns else None)


ANNOTATED_CSV = Form(begins(rb"[\r\n]*#(datatype|group|default)"), _read_annotated)


def _is_line_protocol(file: File) -> bool:
    """Tell whether nearly all lines have fields and a time."""
    lines = [line for line in file.first_lines[:_LOOKED_AT] if line[0] != "#"]
    matches = [_LINE.fullmatch(line) for line in lines[:-1] or lines]
    fitting = sum(bool(match and "=" in match[2] and match[3]) for match in matches)
    return bool(matches) and fitting >= _FEWEST * len(matches)


def _read_lines(file: File, only: Only) -> Table:
    """Read a row a line: its fields are columns, its measurement and tags tell series apart."""
    keys: dict[str, None] = {"measurement": None}

    def blocks() -> Iterator[Block]:
        with file.text() as text:
            lines = ((n, line.rstrip("\r\n")) for n, line in enumerate(text, 1) if line.strip() and line[0] != "#")
            for chunk in chunks(lines):
                numbers: Sequence[int] = [number for number, _ in chunk]
                parts = [_parts(line) for _, line in chunk]
                if None in parts:
                    raise FuguError(f"{file.name}: line {numbers[parts.index(None)]} is no line protocol")
                series, fields, times = zip(*parts, strict=True)
                tags = {words: _series(words) for words in dict.fromkeys(series)}
                names = dict.fromkeys(name for tags_of_line in tags.values() for name in tags_of_line)
                keys.update(names)
                columns = {"time": times} | {name: [tags[words].get(name, "") for words in series] for name in names}
                columns |= _field_columns(fields)
                if only:
                    places = [place for place in range(len(numbers)) if _is_wanted(columns, place, only)]
                    numbers = [numbers[place] for place in places]
                    columns = {name: [cells[place] for place in places] for name, cells in columns.items()}
                yield numbers, columns

    return _of_series(table_of("InfluxDB's line protocol", file, blocks()), "time", [*keys])


LINE_PROTOCOL = Form(_is_line_protocol, _read_lines)


def _is_wanted(columns: dict[str, Sequence[str]], place: int, only: Only) -> bool:
    return all(name in columns and columns[name][place] == value for name, value in only.items())


def _of_series(table: Table, time: str, tags: Sequence[str]) -> Table:
    """A table whose keys are those tags that it has; without times if it has none."""
    timed = any(table.columns.get(time, ()))
    columns = {name: cells for name, cells in table.columns.items() if timed or name != time}
    return table._replace(
        columns=columns, time=time if timed else None, keys=tuple(key for key in tags if key in columns)
    )


def _parts(line: str) -> tuple[str, str, str] | None:
    """The series, fields and time of a line."""
    if '"' not in line and "\\" not in line:
        parts = line.split(" ")
        if len(parts) == 3 and parts[2].isdigit() and 9 <= len(parts[2]) <= 19 and all(parts):
            return parts[0], parts[1], parts[2]
    match = _LINE.fullmatch(line)
    return None if match is None else (match[1], match[2], match[3] or "")


@lru_cache(maxsize=1024)
def _series(text: str) -> dict[str, str]:
    """The measurement and the tags of a line."""
    name = _NAME.match(text)
    tags = _PART.findall(text, 0 if name is None else name.end())
    return {"measurement": _plain(name[1] if name else "")} | {_plain(key): _plain(value) for key, value in tags}


def _field_columns(texts: Sequence[str]) -> dict[str, Sequence[str]]:
    """Fields of lines by their names; those of lines with the same ones are split at once."""
    names = [part.partition("=")[0] for part in texts[0].split(",")]
    parts = ",".join(texts).split(",")
    columns = [parts[place :: len(names)] for place in range(len(names))]
    alike = len(parts) == len(names) * len(texts) and not any('"' in text or "\\" in text for text in texts)
    if alike and all(cell.startswith(f"{name}=") for name, cells in zip(names, columns, strict=True) for cell in cells):
        pairs = zip(names, columns, strict=True)
        return {name: _values([cell[len(name) + 1 :] for cell in cells]) for name, cells in pairs}
    rows = [{_plain(key): value for key, value in _PART.findall(text)} for text in texts]
    return {
        name: _values([row.get(name, "") for row in rows])
        for name in dict.fromkeys(name for row in rows for name in row)
    }


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text) if "\\" in text else text


def _values(cells: list[str]) -> list[str]:
    """Values of a field: texts without quotes, whole numbers without their letter, truth values in words."""
    return cells if {cell[-1:] for cell in cells} <= {*"0123456789"} else [*map(_value, cells)]


def _value(text: str) -> str:
    if text.startswith('"'):
        return _plain(text[1:-1])
    if text[-1:] in ("i", "u") and text[:-1].lstrip("-").isdigit():
        return text[:-1]
    return _TRUTH.get(text, text)
