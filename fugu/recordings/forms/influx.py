"""InfluxDB: annotated CSV as its page downloads it, and line protocol."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from functools import lru_cache

from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.table import Only, Record, Table, table_of_records

__all__ = ["AnnotatedCsv", "LineProtocol"]

_ANNOTATIONS = (b"#datatype", b"#group", b"#default")
_NOT_READINGS = ("", "result", "table", "_start", "_stop")
_TIME, _VALUE = "_time", "_value"
_LINE = re.compile(
    r"(?P<series>(?:[^ \\]++|\\.)++) (?P<fields>(?:[^ \"\\]++|\\.|\"(?:[^\"\\]++|\\.)*+\")++)"
    r"(?: (?P<time>-?\d{9,19}))?\s*"
)
_PART = re.compile(r"((?:[^,=\\]++|\\.)++)=(\"(?:[^\"\\]++|\\.)*+\"|(?:[^,\\]++|\\.)*+)(?:,|$)")
_NAME = re.compile(r"((?:[^,\\]++|\\.)++),?")
_FEWEST = 0.8
_TRUTH = {"t": "true", "T": "true", "f": "false", "F": "false"}


class AnnotatedCsv:
    """Tables one after another, each with lines that begin with # and a header of its own."""

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether it begins with an annotation."""
        return head.lstrip(b"\r\n").startswith(_ANNOTATIONS)

    def read(self, file: File, only: Only) -> Table:
        """Read the rows of all tables; their tags tell series apart."""
        keys: dict[str, None] = {}

        def records() -> Iterator[tuple[int, Record]]:
            with file.text() as text:
                rows = csv.reader(text)
                header, defaults, begins = list[str](), list[str](), True
                for row in rows:
                    if not any(row):
                        begins = True
                    elif row[0].startswith("#"):
                        defaults = row if row[0] == "#default" else defaults
                        begins = True
                    elif begins:
                        header, begins = [cell.strip() for cell in row], False
                        keys.update(
                            dict.fromkeys(name for name in header if name not in (*_NOT_READINGS, _TIME, _VALUE))
                        )
                    elif len(row) != len(header):
                        raise RecordingError(
                            f"{file.name}: line {rows.line_num} has {len(row)} columns, not {len(header)}"
                        )
                    else:
                        cells = zip(header, row, [*defaults, *[""] * len(header)], strict=False)
                        record = {
                            name: cell.strip() or usual for name, cell, usual in cells if name not in _NOT_READINGS
                        }
                        if all(record.get(name) == value for name, value in only.items()):
                            yield rows.line_num, record

        try:
            table = table_of_records("InfluxDB's annotated CSV", file, records())
        except csv.Error:
            raise RecordingError(f"{file.name} is no annotated CSV that can be read") from None
        return _of_series(table, _TIME, keys)._replace(value=_VALUE if _VALUE in table.columns else None)


class LineProtocol:
    """Lines of a measurement with tags, fields and a time."""

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether nearly all lines have fields, and a time or tags."""
        lines = [line for line in head.decode(errors="replace").splitlines()[:40] if line.strip() and line[0] != "#"]
        matches = [_LINE.fullmatch(line) for line in lines[:-1] or lines]
        fitting = sum(bool(match and "=" in match["fields"] and match["time"]) for match in matches)
        return bool(matches) and fitting >= _FEWEST * len(matches)

    def read(self, file: File, only: Only) -> Table:
        """Read a row a line: its fields are columns, its measurement and tags tell series apart."""
        keys: dict[str, None] = {"measurement": None}

        def records() -> Iterator[tuple[int, Record]]:
            with file.text() as text:
                for number, line in enumerate(text, 1):
                    if not line.strip() or line.startswith("#"):
                        continue
                    if (parts := _parts(line.rstrip("\r\n"))) is None:
                        raise RecordingError(f"{file.name}: line {number} is no line protocol")
                    words, fields, time = parts
                    if (series := _series(words)).keys() - keys.keys():
                        keys.update(dict.fromkeys(series))
                    record = {"time": time or "", **series} | _fields(fields)
                    if not only or all(record.get(key) == value for key, value in only.items()):
                        yield number, record

        return _of_series(table_of_records("InfluxDB's line protocol", file, records()), "time", keys)


def _of_series(table: Table, time: str, keys: dict[str, None]) -> Table:
    """A table whose keys are those tags that it has; without times if it has none."""
    timed = any(table.columns.get(time, ()))
    columns = {name: cells for name, cells in table.columns.items() if timed or name != time}
    return table._replace(
        columns=columns, time=time if timed else None, keys=tuple(key for key in keys if key in columns)
    )


def _parts(line: str) -> tuple[str, str, str | None] | None:
    """The series, fields and time of a line."""
    if '"' not in line and "\\" not in line:
        parts = line.split(" ")
        if len(parts) == 3 and parts[2].isdigit() and 9 <= len(parts[2]) <= 19 and all(parts):
            return parts[0], parts[1], parts[2]
    match = _LINE.fullmatch(line)
    return None if match is None else (match["series"], match["fields"], match["time"])


@lru_cache(maxsize=1024)
def _series(text: str) -> Record:
    """The measurement and the tags of a line."""
    name = _NAME.match(text)
    tags = _PART.findall(text, 0 if name is None else name.end())
    return {"measurement": _plain(name[1] if name else "")} | {_plain(key): _plain(value) for key, value in tags}


def _fields(text: str) -> Record:
    if '"' in text or "\\" in text:
        return {_plain(key): _field(value) for key, value in _PART.findall(text)}
    return {key: _field(value) for key, _, value in (part.partition("=") for part in text.split(",")) if value}


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text) if "\\" in text else text


def _field(text: str) -> str:
    """A field's value: texts without quotes, whole numbers without their letter, truth values in words."""
    if text.startswith('"'):
        return _plain(text[1:-1])
    if text[-1:] in ("i", "u") and text[:-1].lstrip("-").isdigit():
        return text[:-1]
    return _TRUTH.get(text, text)
