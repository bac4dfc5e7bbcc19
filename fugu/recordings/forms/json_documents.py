"""JSON documents of services: Fitbit, Google Fit, Google's places, OwnTracks; and lists or lines of objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.forms.json_text import cell, flat, items, parsed, with_documents
from fugu.recordings.table import Only, Record, Table, table_of, table_of_records

__all__ = ["FitbitDay", "FitbitExport", "GoogleFit", "GooglePlaces", "JsonLines", "JsonList"]

_E7 = 1e7
_MOST_CELLS = 500
"""Cells of a value of an object; one with more is a whole column."""
_MOST_DAY = 1 << 24
"""Characters of a document of one day."""


class _Document:
    """A document whose readings are the items of one list."""

    form = "JSON"
    key = ""
    """Of the list; empty for the outermost."""

    def sniff(self, head: bytes, name: str) -> bool:
        raise NotImplementedError

    def records(self, item: Any) -> Iterator[Record]:
        """Records of an item of the list."""
        raise NotImplementedError

    def read(self, file: File, only: Only) -> Table:
        """Read the items, one by one."""
        return _read(self.form, file, self.key, self.records)


def _read(form: str, file: File, key: str, of_item: Callable[[Any], Iterator[Record]], **meaning: object) -> Table:
    def records() -> Iterator[tuple[int, Record]]:
        with file.text() as text:
            try:
                for number, item in enumerate(items(text, key), 1):
                    for record in of_item(item):
                        yield number, record
            except (ValueError, TypeError, AttributeError, KeyError):
                raise _broken(file, form) from None

    return table_of_records(form, file, records(), where="item", **meaning)


def _broken(file: File, form: str) -> RecordingError:
    return RecordingError(f"{file.name} looks like {form}, but its JSON breaks off or is broken: export it again")


class FitbitExport(_Document):
    """Files of an export, such as heart_rate-2026-03-01.json: items with `dateTime` (month/day/year, UTC) and value."""

    form = "Fitbit's export"

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether it is a list of items with a dateTime and a value."""
        return bool(re.match(rb'\s*\[\s*\{\s*"dateTime"\s*:\s*"\d\d/\d\d/\d\d \d\d:\d\d:\d\d"\s*,\s*"value"', head))

    def read(self, file: File, only: Only) -> Table:
        """Read the items; of a heart rate the beats a minute are the value."""
        table = super().read(file, only)
        return table._replace(value=next((name for name in ("bpm", "value") if name in table.columns), None))

    def records(self, item: Any) -> Iterator[Record]:
        """A record an item."""
        if isinstance(item, dict):
            time = datetime.strptime(cell(item.get("dateTime")), "%m/%d/%y %H:%M:%S").replace(tzinfo=UTC)
            value = item.get("value")
            values = {"value": cell(value)} if not isinstance(value, dict | list) else flat(value)
            yield {"time": time.isoformat()} | values


class FitbitDay:
    """A day as Fitbit's web interface has it: `activities-heart-intraday` and its like, times without a date."""

    form = "Fitbit's day"

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether it has a set of readings within a day."""
        return head.lstrip().startswith(b"{") and b'-intraday"' in head and b'"dataset"' in head

    def read(self, file: File, only: Only) -> Table:
        """Read the readings, at local times of the day that the document is of."""
        with file.text() as text:
            document = parsed(text.read(_MOST_DAY))
        pairs = list(document.items()) if isinstance(document, dict) else []
        day = next((cell(value[0].get("dateTime")) for _, value in pairs if _is_day(value)), "")
        sets = (value.get("dataset") for name, value in pairs if name.endswith("-intraday") and isinstance(value, dict))
        rows = next((some for some in sets if isinstance(some, list)), None)
        if rows is None:
            raise _broken(file, self.form)
        readings = [point for point in rows if isinstance(point, dict)]
        cells = [(f"{day}T{cell(point.get('time'))}", cell(point.get("value"))) for point in readings]
        meaning = {"where": "item", "time": "time", "value": "value"}
        return table_of(self.form, file, ["time", "value"], enumerate(cells, 1), **meaning)


def _is_day(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "dateTime" in value[0]


class GoogleFit(_Document):
    """Files of "All Data" of Google Fit: data points with nanoseconds."""

    form, key = "Google Fit's export", "Data Points"

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether it has data points."""
        return head.lstrip().startswith(b"{") and b'"Data Points"' in head and b'"fitValue"' in head

    def records(self, item: Any) -> Iterator[Record]:
        """A record a point; several values of a point are numbered."""
        if not isinstance(item, dict) or not isinstance(item.get("fitValue"), list):
            return
        values = [flat(point["value"]) for point in item["fitValue"] if isinstance(point, dict) and "value" in point]
        texts = [next(iter(point.values()), "") for point in values]
        names = [f"value_{place}" if place > 1 else "value" for place in range(1, len(texts) + 1)]
        time = cell(item.get("startTimeNanos"))
        yield {"time": time, **dict(zip(names, texts, strict=True))}


class GooglePlaces:
    """Places of Google's location history: Records.json, and the segments of Timeline.json of a phone."""

    form = "Google's location history"

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether it has locations, or segments of a timeline."""
        begins = head.lstrip()[:1] in (b"{", b"[")
        return begins and (b'"latitudeE7"' in head or b'"timelinePath"' in head or b'"semanticSegments"' in head)

    def read(self, file: File, only: Only) -> Table:
        """Read the places, one by one."""
        records = b'"latitudeE7"' in file.head
        key = "locations" if records else "semanticSegments" if b'"semanticSegments"' in file.head else ""
        return _read(self.form, file, key, _google_record if records else _google_segment, time="time")


def _google_record(item: Any) -> Iterator[Record]:
    if isinstance(item, dict) and "latitudeE7" in item and "longitudeE7" in item:
        time = cell(item.get("timestamp")) or cell(item.get("timestampMs"))
        place = {
            name: repr(float(item[f"{long}E7"]) / _E7) for name, long in (("lat", "latitude"), ("lon", "longitude"))
        }
        yield {"time": time, **place}


def _google_segment(item: Any) -> Iterator[Record]:
    path = item.get("timelinePath") if isinstance(item, dict) else None
    for point in path if isinstance(path, list) else ():
        numbers = re.findall(r"-?\d+(?:\.\d+)?", cell(point.get("point"))) if isinstance(point, dict) else []
        if len(numbers) == 2:
            yield {"time": cell(point.get("time")), "lat": numbers[0], "lon": numbers[1]}


class JsonList(_Document):
    """A list of objects, such as OwnTracks' or an own program's."""

    form = "a list of JSON"

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether it begins with a list of objects."""
        return bool(re.match(rb"\s*\[\s*\{", head))

    def records(self, item: Any) -> Iterator[Record]:
        """A record an object."""
        if isinstance(item, dict):
            yield _of_device(flat(item))


class JsonLines:
    """A JSON object a line, also with a time before it as OwnTracks' recorder writes them."""

    _LINE = re.compile(r"(?:(?P<time>\S+Z)\t[^\t]*\t)?\s*(?P<document>\{.*\})\s*")

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether its first line is an object."""
        document = parsed(self._object(head.partition(b"\n")[0].decode(errors="replace")))
        return isinstance(document, dict) and not any(_is_column(value) for value in document.values())

    def _object(self, line: str) -> str:
        """The text of a line that may be an object."""
        line = line.strip()
        match = None if line[:1] == "{" else self._LINE.fullmatch(line)
        return line if match is None else match["document"]

    def read(self, file: File, only: Only) -> Table:
        """Read the lines; those of OwnTracks that are no locations are left out."""

        def records() -> Iterator[tuple[int, Record]]:
            with file.text() as text:
                for number, (line, document) in enumerate(with_documents(text, self._object), 1):
                    if isinstance(document, dict):
                        if document.get("_type", "location") in ("", "location"):
                            yield number, _of_device(flat(document))
                    elif line.strip() and "\t" not in line:
                        raise RecordingError(f"{file.name}: line {number} is no object of JSON")

        return table_of_records("lines of JSON", file, records())


def _is_column(value: Any) -> bool:
    return isinstance(value, list | dict) and len(value) > _MOST_CELLS


def _of_device(record: Record) -> Record:
    """A record; the location of OwnTracks has its time under a name that is usual."""
    return {"time": record["tst"], **record} if record.get("_type") == "location" and "tst" in record else record
