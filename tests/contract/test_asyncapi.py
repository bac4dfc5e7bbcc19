"""The AsyncAPI document says what the code does: its topics, its readers, its fields, their types and ranges."""

from __future__ import annotations

import contextlib
import json
import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from jsonschema import Draft7Validator

from fugu.contract._document import Document
from fugu.contract.asyncapi import asyncapi_document, asyncapi_json
from fugu.contract.descriptions import Description, describe
from fugu.contract.envelope import Roots, encode_roots
from fugu.contract.errors import FrameError
from fugu.contract.fleet_documents import PolicyDocument, RootDocument, TableDocument
from fugu.contract.frames import Committed, SymbolFrame
from fugu.contract.group_frames import OpeningAnswer, OpeningKey, OpeningRequest, Report, split_pages
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.measure_table import TimedTable
from fugu.contract.reports import Health
from fugu.contract.topics import Kind, parse_topic
from fugu.contract.windows import Window
from tests.support import protocol_tables
from tests.support.asyncapi import DOCUMENT, follow, named, payload, plain, values
from tests.support.example_frames import ENVELOPE, HEALTH, OPENING_ANSWER, OPENING_KEY, PACKED, REPORT, golden
from tests.support.measured import measure_policy
from tests.support.register import NAMES, rows
from tests.support.scenes import BOUNDED, TERNARY, policy

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "tests" / "golden" / "reports"
EVERY_PACKED: list[tuple[str, bytes, Callable[[bytes], Any]]] = [
    *PACKED,
    ("Committed", golden("committed"), Committed.decode),
    ("Roots", encode_roots([ENVELOPE]), Roots.decode),
    ("Report", REPORT.encode(), Report.decode),
    ("OpeningKey", OPENING_KEY.encode(), OpeningKey.decode),
    ("OpeningRequest", next(split_pages(bytes(32), 5, [REPORT.sealed])).encode(), OpeningRequest.decode),
    ("OpeningAnswer", OPENING_ANSWER.encode(), OpeningAnswer.decode),
]
WINDOW = Window(name="high", length=20, stride=20, states=("level 1",), scale="200")
PLAIN: list[tuple[str, bytes]] = [
    ("Health", HEALTH.encode()),
    ("Health", Health(online=False).encode()),
    *(("StateEstimate", REPORTS / "state_estimate.json"), ("PlaceEstimate", REPORTS / "place_estimate.json")),
    *(("ValueEstimate", REPORTS / "value_estimate.json"), ("ValueEstimate", REPORTS / "vector_estimate.json")),
    *(("WindowCount", REPORTS / "count.json"), ("WindowCount", REPORTS / "histogram.json")),
    ("ReleaseFrame", REPORTS / "release.json"),
    ("Description", describe(policy()).encode()),
    ("Description", describe(policy(3, table=TERNARY, chains=BOUNDED, windows=(WINDOW,))).encode()),
    ("Description", describe(measure_policy(3)).encode()),
]
BY_HAND = {"Description", "Roots"}
ENVELOPED = {"OpeningKey", "OpeningAnswer"}


def text(message: bytes | Path) -> bytes:
    return message.read_bytes() if isinstance(message, Path) else message


@pytest.mark.parametrize("shipped", ["fugu/contract/asyncapi.json", "docs/asyncapi.json"])
def test_what_is_shipped_is_what_the_code_says(shipped: str) -> None:
    """To make it anew: fugu gateway asyncapi > fugu/contract/asyncapi.json"""
    assert (ROOT / shipped).read_text() == asyncapi_json()


def test_the_tables_of_the_protocol_are_those_of_the_declarations() -> None:
    """To make them anew: python -m tests.support.protocol_tables"""
    assert protocol_tables.PAGE.read_text() == protocol_tables.written(protocol_tables.PAGE.read_text())
    assert set(protocol_tables.tables()) == set(DOCUMENT["components"]["messages"]) - BY_HAND | ENVELOPED


@pytest.mark.parametrize(
    ("heading", "documents"),
    [("## Descriptions", [Description]), ("| kind | signed by |", [RootDocument, PolicyDocument, TableDocument])],
)
def test_the_protocol_names_every_field_of_what_is_written_by_hand(
    heading: str, documents: list[type[Document]]
) -> None:
    page = protocol_tables.PAGE.read_text()
    section = page[page.index(heading) :].partition("\n## ")[0]
    for document in documents:
        for field in set(document.model_fields) - {"document"}:
            assert re.search(rf"\b{field}\b", section), f"{document.__name__} {field}"


def test_every_topic_of_the_code_is_a_channel_and_every_channel_a_topic() -> None:
    assert set(DOCUMENT["channels"]) == set(typing.get_args(Kind))
    for kind, channel in DOCUMENT["channels"].items():
        assert set(channel["parameters"]) <= set(NAMES)
        assert parse_topic(channel["address"].format(**NAMES)).kind == kind
    operations = DOCUMENT["operations"].values()
    assert sorted(operation["channel"]["$ref"] for operation in operations) == sorted(
        f"#/channels/{k}" for k in DOCUMENT["channels"]
    )


def test_channels_messages_and_readers_are_those_of_the_register() -> None:
    names = {"Envelope" if name == "Roots" else name for name in DOCUMENT["components"]["messages"]}
    for kind, channel in DOCUMENT["channels"].items():
        ours = [row for row in rows() if row.kind == kind]
        assert {row.topic for row in ours} == {channel["address"].format(**NAMES)}
        assert {row.readers for row in ours} == {frozenset(channel["x-fugu-readers"])}
        messages = {message for row in ours for message in row.messages} & names
        assert messages == {"Envelope" if name == "Roots" else name for name in channel["messages"]}, kind


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    def references(node: Any) -> Iterator[dict[str, Any]]:
        if isinstance(node, dict):
            if "$ref" in node:
                yield node
            for value in node.values():
                yield from references(value)
        elif isinstance(node, list):
            for value in node:
                yield from references(value)

    for reference in references(asyncapi_document()):
        assert isinstance(follow(reference), dict)
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft7Validator.check_schema(schema)


@pytest.mark.parametrize(("name", "message", "decode"), EVERY_PACKED, ids=[name for name, *_ in EVERY_PACKED])
def test_messages_are_as_their_layouts_say(name: str, message: bytes, decode: Callable[[bytes], Any]) -> None:
    plain_values = values(message)
    validator = Draft7Validator(payload(name))
    assert [error.message for error in validator.iter_errors(plain(plain_values))] == []
    for index, item in enumerate(payload(name)["items"][1]["items"]):
        changed = [plain_values[0], [*plain_values[1][:index], {"other": "type"}, *plain_values[1][index + 1 :]]]
        assert not validator.is_valid(plain(changed)), item["title"]
        with pytest.raises(FrameError):
            decode(bytes([plain_values[0]]) + msgpack.packb(changed[1]))


@pytest.mark.parametrize(("name", "message"), PLAIN, ids=[name for name, _ in PLAIN])
def test_json_is_as_its_layout_says_and_nothing_else_is(name: str, message: bytes | Path) -> None:
    document = json.loads(text(message))
    schema = {**payload(name), "components": DOCUMENT["components"]}
    validator = Draft7Validator(schema)
    assert [error.message for error in validator.iter_errors(document)] == []
    assert not validator.is_valid({**document, "reading": 71.5})
    for key in schema["required"]:
        assert not validator.is_valid({other: value for other, value in document.items() if other != key}), key
    for key in document:
        assert not validator.is_valid({**document, key: {"other": "type"}}), key


def test_symbols_and_points_come_apart_by_what_the_document_says_of_them() -> None:
    number, fields = values(golden("symbols"))
    symbols = named(payload("SymbolFrame"), [number, fields])["fields"]["symbols"]
    assert bytes(symbol["symbol"][0] for symbol in symbols) == SymbolFrame.decode(golden("symbols")).symbols
    points = named(payload("MeasureFrame"), values(golden("measure")))["fields"]["points"]
    released = MeasureFrame.decode(golden("measure")).released
    assert [(point["table"][0], tuple(point["point"])) for point in points] == [
        (point.table, point.point) for point in released
    ]
    body = named(payload("TimedTable"), values(golden("table")))["fields"]["body"]
    noise = TimedTable.decode(golden("table")).noise
    thresholds = [row["threshold"][0] for row in body["rows"]]
    assert thresholds == [number for row in noise.rows for number in row]
    assert body["states"] == len(noise.rows)


def test_the_command_prints_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    from fugu_cli.main import main

    with contextlib.suppress(SystemExit):
        assert main(["gateway", "asyncapi"]) == 0
    assert capsys.readouterr().out == asyncapi_json()
