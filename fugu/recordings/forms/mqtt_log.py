"""Logs of MQTT: lines of `mosquitto_sub -v`, with times by `-F '%U %t %p'`, or JSON lines by `-F %j`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from fugu.contract.errors import FuguError
from fugu.host.csv_file import moment
from fugu.host.payload import MalformedError, ResentCheck, message
from fugu.recordings.file import File
from fugu.recordings.forms.json_files import cell, columns_of, parse_text, parse_texts
from fugu.recordings.table import Block, Form, RowFilter, Table, chunks, table_of

__all__ = ["LOG", "MQTT_JSON_LOG", "MQTT_LOG"]

_LINE = re.compile(
    r"(\d{9,10}(?:\.\d+)?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*)[ \t](\S+)[ \t](.*)"
    r"|([A-Za-z_][^\s,;|\"/]*+/[^\s,;|\"]++) (.*)"
)
"""A line with a time, a topic and a payload; or with a topic that has a slash, and a payload."""
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


def _is_log(file: File) -> bool:
    """Return whether the first line and at least 80 % of the first lines are messages."""
    is_message = [_LINE.fullmatch(line) is not None for line in file.first_lines]
    return bool(is_message) and is_message[0] and sum(is_message) >= _FEWEST * len(is_message)


def _messages(file: File) -> Iterator[_Message]:
    """Return the messages of lines. Further lines of a payload are left out."""
    with file.open_text() as text:
        for line_number, line in enumerate(text, 1):
            if match := _LINE.fullmatch(line.rstrip("\r\n")):
                time, topic, payload, only_topic, only_payload = match.groups()
                yield _Message(line_number, time or "", topic or only_topic, only_payload if time is None else payload)


def _is_json_log(file: File) -> bool:
    """Return whether the first line is an object with a topic and a payload."""
    first_document = parse_text(file.head.partition(b"\n")[0].decode(errors="replace"))
    return isinstance(first_document, dict) and {"topic", "payload"} <= first_document.keys()


def _json_messages(file: File) -> Iterator[_Message]:
    with file.open_text() as text:
        for numbered_lines in chunks((number, line) for number, line in enumerate(text, 1) if line.strip()):
            documents = parse_texts([line.strip() for _, line in numbered_lines])
            for (number, _), fields in zip(numbered_lines, documents, strict=True):
                if not isinstance(fields, dict) or not isinstance(fields.get("topic"), str):
                    raise FuguError(f"{file.name}: line {number} is no object of JSON with a topic")
                payload = fields.get("payload")
                payload_text = json.dumps(payload) if isinstance(payload, dict | list) else cell(payload)
                time = next((cell(fields[time_key]) for time_key in _TIMES if time_key in fields), "")
                yield _Message(number, time, fields["topic"], payload_text, cell(fields.get("retain")) in ("1", "true"))


def _reader_of(messages: Callable[[File], Iterator[_Message]]) -> Callable[[File, RowFilter], Table]:
    """Make a reader of messages of the wanted topic, or of all topics; each path in payloads becomes a column."""

    def read(file: File, row_filter: RowFilter) -> Table:
        topic, reason_counts, checks_of_topic = row_filter.get("topic"), Counter[str](), dict[str, ResentCheck]()

        def omission_reason(packet: _Message) -> str:
            """Return the reason why a message is left out, or '' if it is read."""
            if packet.retained:
                return "retained"
            if '"last_seen"' in packet.payload:
                with suppress(MalformedError):
                    last_seen = message(packet.payload.encode(errors="replace"), "last_seen").last_seen
                    check = checks_of_topic.setdefault(packet.topic, ResentCheck())
                    return "" if not last_seen or check.is_new(last_seen, moment(packet.time)) else "sent again"
            return ""

        def blocks() -> Iterator[Block]:
            for all_packets in chunks(packet for packet in messages(file) if topic is None or packet.topic == topic):
                reasons = [*map(omission_reason, all_packets)]
                reason_counts.update(filter(None, reasons))
                packets = [packet for packet, reason in zip(all_packets, reasons, strict=True) if not reason]
                documents = parse_texts([packet.payload.strip() for packet in packets])
                has_columns = [isinstance(document, dict | list) for document in documents]
                times = [packet.time for packet in packets]
                columns = {"time": times} if any(times) else {}
                columns["topic"] = [packet.topic for packet in packets]
                if not all(has_columns):
                    cells = zip(packets, has_columns, strict=True)
                    columns["payload"] = ["" if is_nested else packet.payload for packet, is_nested in cells]
                paths = columns_of(documents, file).items()
                columns |= {f"payload.{path}" if path in _OWN else path: cells for path, cells in paths}
                yield [packet.line for packet in packets], columns

        table = table_of(LOG, file, blocks(), keys=("topic",))
        notes = tuple(note.format(reason_counts[name]) for name, note in _NOTES.items() if reason_counts[name])
        return table._replace(notes=notes, time="time" if "time" in table.columns else None)

    return read


MQTT_LOG, MQTT_JSON_LOG = Form(_is_log, _reader_of(_messages)), Form(_is_json_log, _reader_of(_json_messages))
