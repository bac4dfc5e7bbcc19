"""Logs of MQTT: lines of `mosquitto_sub -v`, with times by `-F '%U %t %p'`, or JSON lines by `-F %j`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from fugu.host.csv_file import moment
from fugu.host.payload import MalformedError, ResentCheck, message
from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.forms.json_text import cell, flat, parsed, with_documents
from fugu.recordings.table import Only, Record, Table, table_of_records

__all__ = ["LOG", "MqttJsonLog", "MqttLog"]

_TOPIC = r"(?P<topic>[A-Za-z_][^\s,;|\"]*/[^\s,;|\"]+)"
_PLAIN = re.compile(rf"{_TOPIC} (?P<payload>.*)")
_TIMED = re.compile(
    r"(?P<time>\d{9,10}(\.\d+)?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*)[ \t](?P<topic>\S+)[ \t](?P<payload>.*)"
)
_FEWEST = 0.8
LOG = "a log of mosquitto_sub"
_OWN, _TIMES = ("time", "topic", "payload"), ("tst", "time", "timestamp", "ts")
_NOTES = {
    "retained": "{} retained messages were left out: they are of an earlier time",
    "sent again": "{} messages that a bridge sent again were left out, by their last_seen",
}


class _Message(NamedTuple):
    line: int
    time: str
    topic: str
    payload: str
    retained: bool = False


class MqttLog:
    """Lines of a topic and a payload, with or without a time before them."""

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether nearly all lines are a topic with a slash and a payload."""
        lines = [line for line in head.decode(errors="replace").splitlines()[:60] if line.strip()]
        fitting = sum(map(_is_message, lines))
        return bool(lines) and fitting >= _FEWEST * len(lines) and _is_message(lines[0])

    def read(self, file: File, only: Only) -> Table:
        """Read the messages; lines of a payload that goes on belong to the message before, and are left out."""

        def messages() -> Iterator[_Message]:
            with file.text() as text:
                for number, line in enumerate(text, 1):
                    line = line.rstrip("\r\n")
                    if match := _TIMED.fullmatch(line):
                        yield _Message(number, match["time"], match["topic"], match["payload"])
                    elif match := _PLAIN.fullmatch(line):
                        yield _Message(number, "", match["topic"], match["payload"])

        return _table(file, messages, only)


class MqttJsonLog:
    """JSON lines with a topic and a payload."""

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether the first line is an object with these keys."""
        first = parsed(head.partition(b"\n")[0].decode(errors="replace"))
        return isinstance(first, dict) and {"topic", "payload"} <= first.keys()

    def read(self, file: File, only: Only) -> Table:
        """Read the messages."""

        def messages() -> Iterator[_Message]:
            with file.text() as text:
                for number, (line, fields) in enumerate(with_documents(text, str.strip), 1):
                    if not line.strip():
                        continue
                    if not isinstance(fields, dict) or not isinstance(fields.get("topic"), str):
                        raise RecordingError(f"{file.name}: line {number} is no object of JSON with a topic")
                    payload = fields.get("payload")
                    text_of = json.dumps(payload) if isinstance(payload, dict | list) else cell(payload)
                    time = next((cell(fields[key]) for key in _TIMES if key in fields), "")
                    yield _Message(number, time, fields["topic"], text_of, cell(fields.get("retain")) in ("1", "true"))

        return _table(file, messages, only)


def _table(file: File, messages: Callable[[], Iterator[_Message]], only: Only) -> Table:
    """Make a table with a column for each path of payloads, of the topic that is wanted, or of all."""
    wanted, counts = only.get("topic"), Counter[str]()

    def records() -> Iterator[tuple[int, Record]]:
        checks: dict[str, ResentCheck] = {}
        counts.clear()
        for entry, document in with_documents(messages(), lambda entry: entry.payload.strip()):
            if wanted is not None and entry.topic != wanted:
                continue
            if entry.retained:
                counts["retained"] += 1
                continue
            seen = _last_seen(entry.payload)
            if seen and not checks.setdefault(entry.topic, ResentCheck()).is_new(seen, moment(entry.time)):
                counts["sent again"] += 1
                continue
            record = {"time": entry.time, "topic": entry.topic} if entry.time else {"topic": entry.topic}
            if isinstance(document, dict | list):
                record |= {f"payload.{key}" if key in _OWN else key: value for key, value in flat(document).items()}
            else:
                record["payload"] = entry.payload
            yield entry.line, record

    table = table_of_records(LOG, file, records(), keys=("topic",))
    notes = tuple(note.format(counts[name]) for name, note in _NOTES.items() if counts[name])
    return table._replace(notes=notes, time="time" if "time" in table.columns else None)


def _last_seen(payload: str) -> float | None:
    if '"last_seen"' in payload:
        with suppress(MalformedError):
            return message(payload.encode(), "last_seen").last_seen
    return None


def _is_message(line: str) -> bool:
    return bool(_TIMED.fullmatch(line) or _PLAIN.fullmatch(line))
