"""JSON: lists and lines of objects, and documents of services: Fitbit, Google, OwnTracks, Home Assistant.

A column is named like the `path` of a sensor: keys joined by dots, in quotes where needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from types import NoneType
from typing import Any, TextIO

from fugu.contract.errors import FuguError
from fugu.host.payload import quoted_key
from fugu.recordings.file import File
from fugu.recordings.table import Block, Form, RowFilter, Table, begins, chunks, refuse_columns, table_of

__all__ = [
    "JSON_DOCUMENTS",
    "JSON_LINES",
    "JSON_LIST",
    "cell",
    "columns_of",
    "parse_text",
    "parse_texts",
    "table_of_items",
]

_BLOCK = 1 << 16
_MOST_ITEM, _MOST_DEPTH, _MOST_CELLS, _MOST_OBJECTS = 1 << 22, 32, 500, 20
"""Limits: characters of an item of a list, depth of a document, and cells or objects of one value in a row."""
_MOST_DAY = 1 << 24
"""The most characters that are read of a document of one day."""
_E7 = 1e7
_SPACE, _BRACKETS = re.compile(r"[\s,]*"), re.compile(r"[\s,\[\]]*")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def parse_text(text: str) -> Any:
    """Parse a JSON document, with numbers as texts as they are written; None if it is no JSON."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def parse_texts(texts: list[str]) -> list[Any]:
    """Parse each text as `parse_text` does; if all are objects, decode them at once."""
    if all(text[:1] == "{" and text[-1:] == "}" for text in texts):
        documents = parse_text(f"[{','.join(texts)}]")
        if isinstance(documents, list) and len(documents) == len(texts):
            return documents
    return [parse_text(text) for text in texts]


def cell(value: Any) -> str:
    """Return a single JSON value as text; '' for null, lists and objects."""
    if isinstance(value, str):  # as numbers are
        return value.strip()
    return json.dumps(value) if isinstance(value, bool) else ""


def columns_of(documents: Sequence[Any], file: File) -> dict[str, list[str]]:
    """Return columns by path, with a cell for each document; elements of lists are numbered in the path.

    Raises:
        FuguError: there are too many columns, or documents are nested too deep.
    """
    columns: dict[str, list[str]] = {}

    def add_columns(values: Sequence[Any], path_prefix: str, depth: int) -> None:
        objects = [value if isinstance(value, dict) else dict(_numbered(value)) for value in values]
        object_keys = dict.fromkeys(chain.from_iterable(objects))
        if depth > _MOST_DEPTH:
            raise FuguError(
                f"{file.name} is nested deeper than {_MOST_DEPTH}: write an object a line, as by jq -c '.[]'"
            )
        refuse_columns(file, len(columns) + len(object_keys))
        for key in object_keys:
            cells: list[Any] = [value.get(key) for value in objects]
            kinds = {*map(type, cells)}
            path = path_prefix + _quoted(key)
            if kinds & {dict, list}:
                add_columns(cells, f"{path}.", depth + 1)
            if kinds == {NoneType} or kinds - {dict, list, NoneType}:
                columns[path] = [*map(cell, cells)]

    add_columns(documents, "", 0)
    return columns


def _numbered(value: Any) -> Iterable[tuple[int, Any]]:
    return enumerate(value) if isinstance(value, list) else ()


@lru_cache(maxsize=4096)
def _quoted(key: str | int) -> str:
    return quoted_key(str(key))


def _list_items(text: TextIO, list_key: str, *, is_nested: bool) -> Iterator[Any]:
    """Return the items of a document's first list, or of the list under a key, one by one.

    With `is_nested`, return the items of the lists in that list.

    Raises:
        ValueError: the text is no such JSON, or an item is too long.
    """
    buffer, offset, is_file_end, is_closed, separator = "", None, False, False, _BRACKETS if is_nested else _SPACE
    opening_pattern = re.compile(rf'"{re.escape(list_key)}"\s*:\s*\[' if list_key else r"\[")
    while True:
        if offset is None and (match := opening_pattern.search(buffer)):
            offset = match.end()
        while offset is not None:
            match = separator.match(buffer, offset)
            assert match is not None
            offset = match.end()
            is_closed = match[0].rstrip().endswith("]") if match[0].strip() else is_closed
            if buffer[offset : offset + 1] == "]" or (is_closed and is_file_end and offset == len(buffer)):
                return
            try:
                document, end_offset = _DECODER.raw_decode(buffer, offset)
            except (ValueError, RecursionError):
                break
            if end_offset == len(buffer) and not is_file_end:  # a number may go on
                break
            yield document
            offset = end_offset
        if offset is not None:
            buffer, offset = buffer[offset:], 0
        elif len(buffer) > _MOST_ITEM:
            buffer = buffer[-_BLOCK:]
        if is_file_end or len(buffer) > _MOST_ITEM:
            raise ValueError
        block = text.read(_BLOCK)
        is_file_end = not block
        buffer += block


def table_of_items(
    form: str,
    file: File,
    documents: Callable[[Iterator[Any]], Iterable[tuple[int, Any]]],
    list_key: str = "",
    *,
    is_nested: bool = False,
    **table_fields: object,
) -> Table:
    """Make a table of a list's items; `documents` turns the items into numbered documents."""

    def blocks() -> Iterator[Block]:
        with file.open_text() as text:
            try:
                for chunk in chunks(documents(_list_items(text, list_key, is_nested=is_nested))):
                    yield [number for number, _ in chunk], columns_of([document for _, document in chunk], file)
            except (ValueError, TypeError, AttributeError, KeyError):
                raise _broken_json(file, form) from None

    return table_of(form, file, blocks(), where="item", **table_fields)


def _broken_json(file: File, form: str) -> FuguError:
    return FuguError(f"{file.name} looks like {form}, but its JSON breaks off or is broken: export it again")


def _list_form(
    form: str,
    pattern: bytes,
    documents_in: Callable[[Any], Iterable[Any]],
    list_key: str = "",
    *,
    time: str | None = None,
    value_names: tuple[str, ...] = (),
) -> Form:
    """Make a form whose files begin with a pattern, with readings in the outermost list or in the list under a key.

    `documents_in` returns the documents in an item of the list. `value_names` are names of the column of readings, the
    best first.
    """

    def documents(elements: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        return ((number, document) for number, element in enumerate(elements, 1) for document in documents_in(element))

    def read(file: File, row_filter: RowFilter) -> Table:
        table = table_of_items(form, file, documents, list_key, time=time)
        return table._replace(value=next((name for name in value_names if name in table.columns), None))

    return Form(begins(pattern), read)


def _fitbit_reading(reading: Any) -> Iterator[Any]:
    """Return a reading of a file such as heart_rate-2026-03-01.json; its time is taken for UTC."""
    if isinstance(reading, dict):
        time = datetime.strptime(cell(reading.get("dateTime")), "%m/%d/%y %H:%M:%S").replace(tzinfo=UTC)
        value = reading.get("value")
        yield {"time": time.isoformat(), **(value if isinstance(value, dict) else {"value": value})}


def _google_fit_point(data_point: Any) -> Iterator[Any]:
    """Return a point of Google Fit's "All Data" with its time in nanoseconds; names of further values are numbered."""
    if isinstance(data_point, dict) and isinstance(data_point.get("fitValue"), list):
        points = [point["value"] for point in data_point["fitValue"] if isinstance(point, dict) and "value" in point]
        names = [f"value_{number}" if number > 1 else "value" for number in range(1, len(points) + 1)]
        values = (next(iter(point.values()), None) for point in points)
        yield {"time": data_point.get("startTimeNanos"), **dict(zip(names, values, strict=True))}


def _google_record(record: Any) -> Iterator[Any]:
    """Return a place of Records.json in degrees."""
    if isinstance(record, dict) and "latitudeE7" in record and "longitudeE7" in record:
        latitude, longitude = (repr(float(record[f"{name}E7"]) / _E7) for name in ("latitude", "longitude"))
        yield {"time": record.get("timestamp") or record.get("timestampMs"), "lat": latitude, "lon": longitude}


def _google_segment(segment: Any) -> Iterator[Any]:
    """Return the places of a segment of a phone's Timeline.json in degrees."""
    path = segment.get("timelinePath") if isinstance(segment, dict) else None
    for point in path if isinstance(path, list) else ():
        coordinates = re.findall(r"-?\d+(?:\.\d+)?", cell(point.get("point"))) if isinstance(point, dict) else []
        if len(coordinates) == 2:
            yield {"time": point.get("time"), "lat": coordinates[0], "lon": coordinates[1]}


def _with_time(document: dict[str, Any]) -> dict[str, Any]:
    """Return an object, with a `time` if it is a location of OwnTracks."""
    is_location = document.get("_type") == "location" and "tst" in document
    return {"time": document["tst"], **document} if is_location else document


def _read_fitbit_day(file: File, _row_filter: RowFilter) -> Table:
    """Read a day of Fitbit's web interface, where times have no date."""
    with file.open_text() as text:
        document = parse_text(text.read(_MOST_DAY))
    fields = document if isinstance(document, dict) else {}
    first_items = [value[0] for value in fields.values() if isinstance(value, list) and value]
    day = next((cell(item["dateTime"]) for item in first_items if isinstance(item, dict) and "dateTime" in item), "")
    series = [value.get("dataset") for name, value in fields.items() if "-intraday" in name and isinstance(value, dict)]
    if not series or not isinstance(series[0], list):
        raise _broken_json(file, "Fitbit's day")
    points = [point for point in series[0] if isinstance(point, dict)]
    times = [f"{day}T{cell(point.get('time'))}" for point in points]
    block = (range(1, len(points) + 1), {"time": times, "value": [cell(point.get("value")) for point in points]})
    return table_of("Fitbit's day", file, [block], where="item", time="time", value="value")


_FITBIT = rb'\s*\[\s*\{\s*"dateTime"\s*:\s*"\d\d/\d\d/\d\d \d\d:\d\d:\d\d"\s*,\s*"value"'
_PLACES = "Google's location history"
JSON_DOCUMENTS = (
    _list_form("Fitbit's export", _FITBIT, _fitbit_reading, value_names=("bpm", "value")),
    Form(begins(rb'\s*\{(?=.*"dataset").*-intraday"'), _read_fitbit_day),
    _list_form("Google Fit's export", rb'\s*\{(?=.*"fitValue").*"Data Points"', _google_fit_point, "Data Points"),
    _list_form(_PLACES, rb'\s*[\[{].*"latitudeE7"', _google_record, "locations", time="time"),
    _list_form(_PLACES, rb'\s*[\[{].*"semanticSegments"', _google_segment, "semanticSegments", time="time"),
    _list_form(_PLACES, rb'\s*[\[{].*"timelinePath"', _google_segment, time="time"),
)
JSON_LIST = _list_form(
    "a list of JSON", rb"\s*\[\s*\{", lambda item: [_with_time(item)] if isinstance(item, dict) else []
)
"""A list of objects, as OwnTracks or a user's own program writes it."""
_LINE = re.compile(r"(?:\S+Z\t[^\t]*\t)?\s*(\{.*\})\s*")
"""A line with an object; OwnTracks' recorder writes a time and a kind before the object."""


def _object_text(line: str) -> str:
    """Return the text of the object in a line; the whole line if it holds none."""
    line = line.strip()
    match = None if line[:1] == "{" else _LINE.fullmatch(line)
    return line if match is None else match[1]


def _are_json_lines(file: File) -> bool:
    first_line, _, other_lines = file.head.partition(b"\n")
    document = parse_text(_object_text(first_line.decode(errors="replace")))
    if not isinstance(document, dict):
        return False
    # One line alone with lists or objects is a document.
    is_one_document = not other_lines.strip() and any(isinstance(value, list | dict) for value in document.values())
    return not is_one_document and not any(map(_has_series, document.values()))


def _has_series(value: Any) -> bool:
    """Return whether a value holds a whole series, in a list or under keys, at any depth."""
    if not isinstance(value, list | dict):
        return False
    if isinstance(value, list) and value and isinstance(value[0], list | dict):
        return len(value) > _MOST_OBJECTS
    return len(value) > _MOST_CELLS or any(map(_has_series, value.values() if isinstance(value, dict) else value))


def _read_json_lines(file: File, _row_filter: RowFilter) -> Table:
    """Read an object from each line; objects of OwnTracks that are no locations are left out."""
    notes: list[str] = []

    def blocks() -> Iterator[Block]:
        with file.open_text() as text:
            for numbered_lines in chunks(enumerate(text, 1)):
                documents = parse_texts([_object_text(line) for _, line in numbered_lines])
                objects = list[tuple[int, Any]]()
                for (line_number, line), document in zip(numbered_lines, documents, strict=True):
                    if isinstance(document, dict):
                        if document.get("_type", "location") in ("", "location"):
                            objects.append((line_number, document))
                    elif line.strip() and "\t" not in line:
                        if line.endswith("\n") or not line.startswith("{"):
                            raise FuguError(f"{file.name}: line {line_number} is no object of JSON")
                        notes.append(f"line {line_number}, the last, breaks off: left out")
                documents = [_with_time(document) for _, document in objects]
                yield [line_number for line_number, _ in objects], columns_of(documents, file)

    return table_of("lines of JSON", file, blocks())._replace(notes=tuple(notes))


JSON_LINES = Form(_are_json_lines, _read_json_lines)
"""One JSON object in each line."""
