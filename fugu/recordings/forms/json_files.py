"""JSON: lists and lines of objects, and documents of services: Fitbit, Google, OwnTracks, Home Assistant.

A column is named as the `path` of a sensor: keys joined by dots, with quotes where a key needs them.
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
from fugu.recordings.table import MOST_COLUMNS, Block, Form, RowFilter, Table, begins, chunks, table_of

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
"""Characters of an item of a list, depth of a document, and cells, or objects, of a value that is no whole column."""
_MOST_DAY = 1 << 24
"""Characters of a document of one day."""
_E7 = 1e7
_SPACE, _BRACKETS = re.compile(r"[\s,]*"), re.compile(r"[\s,\[\]]*")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def parse_text(text: str) -> Any:
    """A document, with numbers as they are written; None if it is no JSON."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def parse_texts(texts: list[str]) -> list[Any]:
    """Documents of texts, as `parse_text`; objects are decoded all at once."""
    if all(text[:1] == "{" and text[-1:] == "}" for text in texts):
        documents = parse_text(f"[{','.join(texts)}]")
        if isinstance(documents, list) and len(documents) == len(texts):
            return documents
    return [parse_text(text) for text in texts]


def cell(value: Any) -> str:
    """A single value as text; empty for null, and for what is none."""
    if isinstance(value, str):  # as numbers are
        return value.strip()
    return {True: "true", False: "false"}.get(value, "") if isinstance(value, bool) else ""


def columns_of(documents: Sequence[Any], file: File) -> dict[str, list[str]]:
    """The single values of documents by their paths, a cell of each document; those of lists by their indices.

    Raises:
        FuguError: there are too many columns, or they are nested too deep.
    """
    columns: dict[str, list[str]] = {}

    def add_columns(values: Sequence[Any], path_prefix: str, depth: int) -> None:
        objects = [value if isinstance(value, dict) else dict(_numbered(value)) for value in values]
        keys = dict.fromkeys(chain.from_iterable(objects))
        if len(columns) + len(keys) > MOST_COLUMNS or depth > _MOST_DEPTH:
            raise FuguError(
                f"{file.name} has more than {MOST_COLUMNS} columns: give a part of it"
                if depth <= _MOST_DEPTH
                else f"{file.name} is nested deeper than {_MOST_DEPTH}: write an object a line, as by jq -c '.[]'"
            )
        for key in keys:
            cells: list[Any] = [value.get(key) for value in objects]
            kinds = {*map(type, cells)}
            if kinds & {dict, list}:
                add_columns(cells, f"{path_prefix}{_quoted(key)}.", depth + 1)
            if kinds == {str}:
                columns[path_prefix + _quoted(key)] = [text.strip() for text in cells]
            elif kinds == {NoneType} or kinds - {dict, list, NoneType}:
                columns[path_prefix + _quoted(key)] = [*map(cell, cells)]

    add_columns(documents, "", 0)
    return columns


def _numbered(value: Any) -> Iterable[tuple[int, Any]]:
    return enumerate(value) if isinstance(value, list) else ()


@lru_cache(maxsize=4096)
def _quoted(key: str | int) -> str:
    return quoted_key(str(key))


def _list_items(text: TextIO, key: str, *, is_nested: bool) -> Iterator[Any]:
    """The items of the first list of a document, or of the first that has a key, one by one.

    If it `is_nested`, they are the items of its lists.

    Raises:
        ValueError: it is no such JSON, or an item is too long.
    """
    buffer, offset, is_file_end, is_closed, separator = "", None, False, False, _BRACKETS if is_nested else _SPACE
    opening = re.compile(rf'"{re.escape(key)}"\s*:\s*\[' if key else r"\[")
    while True:
        if offset is None and (match := opening.search(buffer)):
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
    key: str = "",
    *,
    is_nested: bool = False,
    **table_fields: object,
) -> Table:
    """Make a table of numbered documents, which come of the items of a list, one by one."""

    def blocks() -> Iterator[Block]:
        with file.text() as text:
            try:
                for chunk in chunks(documents(_list_items(text, key, is_nested=is_nested))):
                    yield [number for number, _ in chunk], columns_of([document for _, document in chunk], file)
            except (ValueError, TypeError, AttributeError, KeyError):
                raise _broken(file, form) from None

    return table_of(form, file, blocks(), where="item", **table_fields)


def _broken(file: File, form: str) -> FuguError:
    return FuguError(f"{file.name} looks like {form}, but its JSON breaks off or is broken: export it again")


def _list_form(
    form: str,
    pattern: bytes,
    documents_in: Callable[[Any], Iterable[Any]],
    key: str = "",
    *,
    time: str | None = None,
    values: tuple[str, ...] = (),
) -> Form:
    """A form that begins with a pattern, and whose readings are the items of one list: the outermost, or of a key."""

    def documents(items: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        return ((number, document) for number, element in enumerate(items, 1) for document in documents_in(element))

    def read(file: File, row_filter: RowFilter) -> Table:
        table = table_of_items(form, file, documents, key, time=time)
        return table._replace(value=next((name for name in values if name in table.columns), None))

    return Form(begins(pattern), read)


def _fitbit(reading: Any) -> Iterator[Any]:
    """A reading of files such as heart_rate-2026-03-01.json, whose times are month/day/year in UTC."""
    if isinstance(reading, dict):
        time = datetime.strptime(cell(reading.get("dateTime")), "%m/%d/%y %H:%M:%S").replace(tzinfo=UTC)
        value = reading.get("value")
        yield {"time": time.isoformat(), **(value if isinstance(value, dict) else {"value": value})}


def _google_fit(data_point: Any) -> Iterator[Any]:
    """A data point of "All Data" of Google Fit, with nanoseconds; several values of a point are numbered."""
    if isinstance(data_point, dict) and isinstance(data_point.get("fitValue"), list):
        points = [point["value"] for point in data_point["fitValue"] if isinstance(point, dict) and "value" in point]
        names = [f"value_{number}" if number > 1 else "value" for number in range(1, len(points) + 1)]
        values = (next(iter(point.values()), None) for point in points)
        yield {"time": data_point.get("startTimeNanos"), **dict(zip(names, values, strict=True))}


def _google_record(record: Any) -> Iterator[Any]:
    """A place of Records.json."""
    if isinstance(record, dict) and "latitudeE7" in record and "longitudeE7" in record:
        latitude, longitude = (repr(float(record[f"{name}E7"]) / _E7) for name in ("latitude", "longitude"))
        yield {"time": record.get("timestamp") or record.get("timestampMs"), "lat": latitude, "lon": longitude}


def _google_segment(segment: Any) -> Iterator[Any]:
    """The places of a segment of Timeline.json of a phone."""
    path = segment.get("timelinePath") if isinstance(segment, dict) else None
    for point in path if isinstance(path, list) else ():
        coordinates = re.findall(r"-?\d+(?:\.\d+)?", cell(point.get("point"))) if isinstance(point, dict) else []
        if len(coordinates) == 2:
            yield {"time": point.get("time"), "lat": coordinates[0], "lon": coordinates[1]}


def _object(document: Any) -> Iterator[Any]:
    """An object as it is; the location of OwnTracks has its time under a name that is usual."""
    if isinstance(document, dict):
        yield (
            {"time": document["tst"], **document}
            if document.get("_type") == "location" and "tst" in document
            else document
        )


def _read_fitbit_day(file: File, _row_filter: RowFilter) -> Table:
    """Read a day as Fitbit's web interface has it, with times of day alone."""
    with file.text() as text:
        document = parse_text(text.read(_MOST_DAY))
    fields = document if isinstance(document, dict) else {}
    firsts = [value[0] for value in fields.values() if isinstance(value, list) and value]
    day = next((cell(first["dateTime"]) for first in firsts if isinstance(first, dict) and "dateTime" in first), "")
    series = [value.get("dataset") for name, value in fields.items() if "-intraday" in name and isinstance(value, dict)]
    if not series or not isinstance(series[0], list):
        raise _broken(file, "Fitbit's day")
    points = [point for point in series[0] if isinstance(point, dict)]
    times = [f"{day}T{cell(point.get('time'))}" for point in points]
    block = (range(1, len(points) + 1), {"time": times, "value": [cell(point.get("value")) for point in points]})
    return table_of("Fitbit's day", file, [block], where="item", time="time", value="value")


_FITBIT = rb'\s*\[\s*\{\s*"dateTime"\s*:\s*"\d\d/\d\d/\d\d \d\d:\d\d:\d\d"\s*,\s*"value"'
_PLACES = "Google's location history"
JSON_DOCUMENTS = (
    _list_form("Fitbit's export", _FITBIT, _fitbit, values=("bpm", "value")),
    Form(begins(rb'\s*\{(?=.*"dataset").*-intraday"'), _read_fitbit_day),
    _list_form("Google Fit's export", rb'\s*\{(?=.*"fitValue").*"Data Points"', _google_fit, "Data Points"),
    _list_form(_PLACES, rb'\s*[\[{].*"latitudeE7"', _google_record, "locations", time="time"),
    _list_form(_PLACES, rb'\s*[\[{].*"semanticSegments"', _google_segment, "semanticSegments", time="time"),
    _list_form(_PLACES, rb'\s*[\[{].*"timelinePath"', _google_segment, time="time"),
)
JSON_LIST = _list_form("a list of JSON", rb"\s*\[\s*\{", _object)
"""Such as OwnTracks' or an own program's."""
_LINE = re.compile(r"(?:\S+Z\t[^\t]*\t)?\s*(\{.*\})\s*")
"""OwnTracks' recorder has a time and a kind before an object."""


def _text_of(line: str) -> str:
    """The text of a line that may be an object."""
    line = line.strip()
    match = None if line[:1] == "{" else _LINE.fullmatch(line)
    return line if match is None else match[1]


def _are_json_lines(file: File) -> bool:
    document = parse_text(_text_of(file.head.partition(b"\n")[0].decode(errors="replace")))
    return isinstance(document, dict) and not any(map(_has_series, document.values()))


def _has_series(value: Any) -> bool:
    """Tell whether a document holds a whole series, in a list or under keys, at any depth."""
    if not isinstance(value, list | dict):
        return False
    if isinstance(value, list) and value and isinstance(value[0], list | dict):
        return len(value) > _MOST_OBJECTS
    return len(value) > _MOST_CELLS or any(map(_has_series, value.values() if isinstance(value, dict) else value))


def _read_json_lines(file: File, _row_filter: RowFilter) -> Table:
    """Read an object a line; those of OwnTracks that are no locations are left out."""

    def blocks() -> Iterator[Block]:
        with file.text() as text:
            for chunk in chunks(enumerate(text, 1)):
                documents = parse_texts([_text_of(line) for _, line in chunk])
                objects = list[tuple[int, Any]]()
                for (number, line), document in zip(chunk, documents, strict=True):
                    if isinstance(document, dict):
                        if document.get("_type", "location") in ("", "location"):
                            objects.append((number, document))
                    elif line.strip() and "\t" not in line:
                        raise FuguError(f"{file.name}: line {number} is no object of JSON")
                documents = [next(_object(document)) for _, document in objects]
                yield [number for number, _ in objects], columns_of(documents, file)

    return table_of("lines of JSON", file, blocks())


JSON_LINES = Form(_are_json_lines, _read_json_lines)
"""A JSON object a line."""
