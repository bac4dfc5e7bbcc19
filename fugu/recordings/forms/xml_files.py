"""XML: Apple Health's export, and tracks in GPX. Declarations of entities are refused, so that none can expand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from fugu.contract.errors import FuguError
from fugu.recordings.file import File
from fugu.recordings.table import Form, RowFilter, Table, begins, in_blocks, table_of

__all__ = ["APPLE_HEALTH", "GPX"]

_BLOCK = 1 << 16
_MOST_DEPTH, _MOST_TIME = 100, 40


class _Reader:
    """A handler of XML elements that collects rows; names of elements have no namespace."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, str]]] = []
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Handle the beginning of an element."""

    def end(self, name: str) -> None:
        """Handle the end of an element."""

    def text(self, text: str) -> None:
        """Handle text inside an element."""

    def row(self, **cells: str) -> None:
        """Add a row, with the number of the current line."""
        self.rows.append((self.parser.CurrentLineNumber, cells))


class _EntityError(Exception):
    """The file declares an entity, or is nested too deep."""


def _read_rows(file: File, form: str, reader: _Reader) -> Iterator[tuple[int, dict[str, str]]]:
    """Return the rows of a file one by one.

    Raises:
        FuguError: the file is broken, declares entities, or is nested too deep.
    """
    depth = 0

    def refuse(*_: Any) -> int:
        raise _EntityError

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MOST_DEPTH:
            raise _EntityError
        reader.start(name.rpartition(":")[2], attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        reader.end(name.rpartition(":")[2])

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
            raise FuguError(
                f"{file.name}: line {parser.CurrentLineNumber} declares an entity, or is nested too deep, as {form} "
                "never does: export it again"
            ) from None
        except (expat.ExpatError, ValueError, LookupError):  # the last two: of an encoding that is not read
            raise FuguError(f"{file.name}: line {parser.CurrentLineNumber} is no XML: export it again") from None


class _Health(_Reader):
    def __init__(self, wanted_type: str | None) -> None:
        super().__init__()
        self._wanted = wanted_type

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "Record":
            kind = re.sub(r"^HK(Quantity|Category)TypeIdentifier", "", attributes.get("type", ""))
            if self._wanted in (None, kind):
                time, value, source = (attributes.get(key, "") for key in ("startDate", "value", "sourceName"))
                self.row(time=time, value=re.sub(r"^HKCategoryValue", "", value), type=kind, source=source)


def _read_health(file: File, row_filter: RowFilter) -> Table:
    """Read the records of the wanted type, or of all types."""
    blocks = in_blocks(_read_rows(file, "Apple Health's export", _Health(row_filter.get("type"))))
    return table_of("Apple Health's export", file, blocks, time="time", value="value", keys=("type", "source"))


APPLE_HEALTH = Form(begins(rb"\s*<.*HealthData"), _read_health)
"""Records of export.xml; `type` is the quantity, as HeartRate, `source` the device."""


class _Track(_Reader):
    def __init__(self) -> None:
        super().__init__()
        self._place: dict[str, str] | None = None
        self._segment = 0
        self._time: str | None = None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        match name:
            case "trkseg":
                self._segment += 1
            case "trkpt":
                self._place, self._time = {key: attributes.get(key, "") for key in ("lat", "lon")}, None
            case "time" if self._place is not None:
                self._time = ""

    def text(self, text: str) -> None:
        if self._place is not None and self._time is not None and len(self._time) < _MOST_TIME:
            self._time += text[:_MOST_TIME]

    def end(self, name: str) -> None:
        if name == "trkpt" and self._place is not None:
            self.row(time=(self._time or "").strip()[:_MOST_TIME], **self._place, seg=str(self._segment))
            self._place = self._time = None
        elif self._place is not None and name == "time":
            self._time = (self._time or "").strip() + " "


def _read_gpx(file: File, _row_filter: RowFilter) -> Table:
    """Read the points of all tracks, with their segments' numbers."""
    table = table_of("GPX", file, in_blocks(_read_rows(file, "GPX", _Track())))
    if not any(table.columns["time"]):
        raise FuguError(f"{file.name} is a route without times: record a track, whose points have them")
    return table._replace(time="time")


GPX = Form(begins(rb"\s*<.*<(\w+:)?gpx[\s>]|\s*<(\w+:)?gpx[\s>]"), _read_gpx)
