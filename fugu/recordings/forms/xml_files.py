"""XML: Apple Health's export, and tracks in GPX. Declarations of entities are refused, so that none can expand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal
from xml.parsers import expat

from fugu.contract.errors import FuguError
from fugu.recordings.file import File
from fugu.recordings.table import Form, RowFilter, Table, begins, in_blocks, table_of

__all__ = ["APPLE_HEALTH", "GPX"]

_BLOCK = 1 << 16
_MOST_DEPTH, _MOST_TIME = 100, 40


class _EntityError(Exception):
    """The file declares an entity, or is nested too deep."""


_Event = tuple[int, Literal["start", "text", "end"], str, Any]
"""The line and the kind of an event, its element's name without a namespace, and the attributes or the text."""


def _events(file: File, form: str) -> Iterator[_Event]:
    """Return the beginnings and ends of a file's elements, and the texts inside them, one by one.

    Raises:
        FuguError: the file is broken, declares entities, or is nested too deep.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    open_names: list[str] = []
    events: list[_Event] = []

    def refuse(*_: Any) -> int:
        raise _EntityError

    def start(name: str, attributes: dict[str, str]) -> None:
        open_names.append(name.rpartition(":")[2])
        if len(open_names) > _MOST_DEPTH:
            raise _EntityError
        events.append((parser.CurrentLineNumber, "start", open_names[-1], attributes))

    def add_text(text: str) -> None:
        if not text.isspace():
            events.append((parser.CurrentLineNumber, "text", open_names[-1], text))

    def end(_name: str) -> None:
        events.append((parser.CurrentLineNumber, "end", open_names.pop(), None))

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, add_text
    parser.EntityDeclHandler = parser.ExternalEntityRefHandler = refuse
    with file.open_binary() as binary:
        try:
            while block := binary.read(_BLOCK):
                parser.Parse(block)
                yield from events
                events.clear()
            parser.Parse(b"", True)
        except _EntityError:
            raise FuguError(
                f"{file.name}: line {parser.CurrentLineNumber} declares an entity, or is nested too deep, as {form} "
                "never does: export it again"
            ) from None
        except (expat.ExpatError, ValueError, LookupError):  # the last two: of an encoding that is not read
            raise FuguError(f"{file.name}: line {parser.CurrentLineNumber} is no XML: export it again") from None


def _read_health(file: File, row_filter: RowFilter) -> Table:
    """Read the records of the wanted type, or of all types."""

    def rows() -> Iterator[tuple[int, dict[str, str]]]:
        for line, event, name, attributes in _events(file, "Apple Health's export"):
            if event == "start" and name == "Record":
                kind = re.sub(r"^HK(Quantity|Category)TypeIdentifier", "", attributes.get("type", ""))
                if row_filter.get("type") in (None, kind):
                    time, value, source = (attributes.get(key, "") for key in ("startDate", "value", "sourceName"))
                    value = re.sub(r"^HKCategoryValue", "", value)
                    yield line, {"time": time, "value": value, "type": kind, "source": source}

    table_fields = {"time": "time", "value": "value", "keys": ("type", "source")}
    return table_of("Apple Health's export", file, in_blocks(rows()), **table_fields)


APPLE_HEALTH = Form(begins(rb"\s*<.*HealthData"), _read_health)
"""Records of export.xml; `type` is the quantity, as HeartRate, `source` the device."""


def _read_gpx(file: File, _row_filter: RowFilter) -> Table:
    """Read the points of all tracks, with their segments' numbers."""

    def rows() -> Iterator[tuple[int, dict[str, str]]]:
        segment, time, place = 0, "", dict[str, str]()
        for line, event, name, content in _events(file, "GPX"):
            match event, name:
                case "start", "trkseg":
                    segment += 1
                case "start", "trkpt":
                    time, place = "", {key: content.get(key, "") for key in ("lat", "lon")}
                case "start", "time":
                    time = ""
                case "text", "time" if place:
                    time = (time + content).lstrip()[:_MOST_TIME]
                case "end", "trkpt":
                    yield line, {"time": time.strip(), **place, "seg": str(segment)}
                    place = {}

    table = table_of("GPX", file, in_blocks(rows()))
    if not any(table.columns["time"]):
        raise FuguError(f"{file.name} is a route without times: record a track, whose points have them")
    return table._replace(time="time")


GPX = Form(begins(rb"\s*<.*<(\w+:)?gpx[\s>]|\s*<(\w+:)?gpx[\s>]"), _read_gpx)
