"""XML: Apple Health's export, and tracks in GPX. Declarations of entities are refused, and so they cannot expand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.table import Only, Table, table_of

__all__ = ["AppleHealth", "Gpx"]

_BLOCK = 1 << 16
_MOST_DEPTH, _MOST_TIME = 100, 40
Row = tuple[int, list[str]]


class _Reader:
    """Rows of an XML file as its elements begin and end; `row` adds one."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.depth = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Take the beginning of an element."""

    def end(self, name: str) -> None:
        """Take the end of an element."""

    def text(self, text: str) -> None:
        """Take text."""

    def row(self, cells: list[str]) -> None:
        """Add a row, at the line of the file that is read."""
        self.rows.append((self.parser.CurrentLineNumber, cells))


class _EntityError(Exception):
    """The file declares an entity."""


def _rows(file: File, form: str, reader: _Reader) -> Iterator[Row]:
    """Rows of a file, as they come.

    Raises:
        RecordingError: it is broken, declares entities, or is nested too deep.
    """

    def refuse(*_: Any) -> int:
        raise _EntityError

    def start(name: str, attributes: dict[str, str]) -> None:
        reader.depth += 1
        if reader.depth > _MOST_DEPTH:
            raise _EntityError
        reader.start(name, attributes)

    def end(name: str) -> None:
        reader.depth -= 1
        reader.end(name)

    parser = reader.parser
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, reader.text
    parser.EntityDeclHandler = parser.ExternalEntityRefHandler = refuse
    with file.binary() as binary:
        try:
            while block := binary.read(_BLOCK):
                parser.Parse(block)
                yield from reader.rows
                reader.rows.clear()
            parser.Parse(b"", True)
        except _EntityError:
            raise RecordingError(
                f"{file.name}: line {parser.CurrentLineNumber} declares an entity, or is nested too deep, as {form} "
                "never does: export it again"
            ) from None
        except expat.ExpatError:
            raise RecordingError(f"{file.name}: line {parser.CurrentLineNumber} is no XML: export it again") from None


class _Health(_Reader):
    def __init__(self, wanted: str | None) -> None:
        super().__init__()
        self._wanted = wanted

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "Record":
            kind = re.sub(r"^HK(Quantity|Category)TypeIdentifier", "", attributes.get("type", ""))
            if self._wanted in (None, kind):
                cells = [attributes.get(key, "") for key in ("startDate", "value", "sourceName")]
                self.row([cells[0], re.sub(r"^HKCategoryValue", "", cells[1]), kind, cells[2]])


class AppleHealth:
    """Records of Apple Health's export.xml; `type` says of what, as HeartRate, `source` by which device."""

    form = "Apple Health's export"

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether it is XML with its outermost element, or its document type."""
        return head.lstrip().startswith(b"<") and b"HealthData" in head

    def read(self, file: File, only: Only) -> Table:
        """Read the records, of the type that is wanted, or of all."""
        rows = _rows(file, self.form, _Health(only.get("type")))
        meaning = {"time": "time", "value": "value", "keys": ("type", "source")}
        return table_of(self.form, file, ["time", "value", "type", "source"], rows, **meaning)


class _Track(_Reader):
    def __init__(self) -> None:
        super().__init__()
        self._place: list[str] | None = None
        self._segment = 0
        self._time: str | None = None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        match name.rpartition(":")[2]:
            case "trkseg":
                self._segment += 1
            case "trkpt":
                self._place, self._time = [attributes.get("lat", ""), attributes.get("lon", "")], None
            case "time" if self._place is not None:
                self._time = ""

    def text(self, text: str) -> None:
        if self._place is not None and self._time is not None and len(self._time) < _MOST_TIME:
            self._time += text[:_MOST_TIME]

    def end(self, name: str) -> None:
        if name.rpartition(":")[2] == "trkpt" and self._place is not None:
            self.row([(self._time or "").strip()[:40], *self._place, str(self._segment)])
            self._place = self._time = None
        elif self._place is not None and name.rpartition(":")[2] == "time":
            self._time = (self._time or "").strip() + " "


class Gpx:
    """Points of tracks, with their segments."""

    form = "GPX"

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether it is XML with an element gpx."""
        return head.lstrip().startswith(b"<") and re.search(rb"<(\w+:)?gpx[\s>]", head) is not None

    def read(self, file: File, only: Only) -> Table:
        """Read the points of all tracks."""
        table = table_of(self.form, file, ["time", "lat", "lon", "seg"], _rows(file, self.form, _Track()))
        if not any(table.columns["time"]):
            raise RecordingError(f"{file.name} is a route without times: record a track, whose points have them")
        return table._replace(time="time")
