"""Every field of every message against the shipped AsyncAPI document: what is outside of it is refused, for its reason.

The document is the oracle, a file that changes only on purpose: a bound that is loosened in the code is noticed here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest

from fugu.contract.errors import FrameError, FuguError, Reason, TrustError
from fugu.contract.frames import PolicyStatus
from fugu.contract.reports import Health, ReleaseFrame, WindowCount, decode_estimate
from tests.support.asyncapi import payload as form
from tests.support.example_frames import (
    COUNT,
    HEALTH,
    HISTOGRAM,
    PACKED,
    PLACE_ESTIMATE,
    RELEASE_FRAME,
    STATE_ESTIMATE,
    VALUE_ESTIMATE,
    VECTOR_ESTIMATE,
)

Schema = dict[str, Any]
Case = tuple[str, bytes, Callable[[bytes], Any]]
FLAT: list[Case] = [
    *((type(report).__name__, report.encode(), decode_estimate) for report in (STATE_ESTIMATE, PLACE_ESTIMATE)),
    *((type(report).__name__, report.encode(), decode_estimate) for report in (VALUE_ESTIMATE, VECTOR_ESTIMATE)),
    *(("WindowCount", report.encode(), WindowCount.decode) for report in (COUNT, HISTOGRAM)),
    ("ReleaseFrame", RELEASE_FRAME.encode(), ReleaseFrame.decode),
    ("Health", HEALTH.encode(), Health.decode),
]
ELSEWHERE = {
    *(("SymbolFrame", "padding"), ("MeasureFrame", "count"), ("WindowFrame", "observed"), ("TimedTable", "until")),
    *(("TimedTable", "p"), ("ReleaseFrame", "length"), ("ReleaseFrame", "observed"), ("Envelope", "payload")),
    ("StateEstimate", "state"),
}
"""Fields whose range also depends on others: the document says the widest."""

_CLOSED = re.compile("must be ('|True|None)")
"""Refusals of JSON messages by the values that a field can have, whatever the type is."""


def wrong(schema: Schema, value: Any) -> Iterator[tuple[Any, Reason]]:
    """Values that a field cannot have, and why."""
    kinds = schema["type"] if isinstance(schema.get("type"), list) else [schema.get("type")]
    others: list[Any] = [None, True, 5, 5.5, "x", b"x", [], {}, {"other": "type"}]
    if "oneOf" in schema:
        schema = next(option for option in schema["oneOf"] if option["maxItems"] == len(value))
        kinds = ["array"]
    if schema.get("const") is not None:
        kinds = [{bool: "boolean", str: "string"}[type(schema["const"])]]
        yield (not value if value is True else f"{value}x"), Reason.OUT_OF_RANGE
    for other in others:
        if not any(_is(kind, schema, other) for kind in kinds):
            yield other, Reason.WRONG_TYPE
    if "enum" in schema:
        yield ("other" if isinstance(value, str) else max(schema["enum"]) - 1), Reason.OUT_OF_RANGE
    elif "integer" in kinds:
        yield schema["minimum"] - 1, Reason.OUT_OF_RANGE
        yield schema["maximum"] + 1, Reason.OUT_OF_RANGE
    elif "number" in kinds:
        yield from ((number, Reason.OUT_OF_RANGE) for number in _outside(schema))
    elif schema.get("format") == "date-time":
        yield from ((text, Reason.OUT_OF_RANGE) for text in ("", "2026-03-01", f"{value}\n"))
    elif "string" in kinds and "x-fugu-packed" not in schema and "const" not in schema:
        unit: Any = b"x" if schema.get("format") == "binary" else "x"
        yield unit * (schema["maxLength"] + 1), Reason.WRONG_LENGTH
        if schema.get("minLength"):
            yield unit * (schema["minLength"] - 1), Reason.WRONG_LENGTH
        if "pattern" in schema:
            yield from ((text, Reason.OUT_OF_RANGE) for text in (f"{value}\n", "a/b", "é"))
    elif kinds == ["array"]:
        yield from _wrong_array(schema, value)


def _wrong_array(schema: Schema, value: list[Any]) -> Iterator[tuple[Any, Reason]]:
    items = schema["items"]
    if isinstance(items, list):
        yield value[:-1], Reason.WRONG_LENGTH
        yield [*value, 0], Reason.WRONG_LENGTH
        for place, item in enumerate(items):
            for changed, reason in wrong(item, value[place]):
                yield [*value[:place], changed, *value[place + 1 :]], reason
        return
    if schema.get("minItems"):
        yield value[: schema["minItems"] - 1], Reason.WRONG_LENGTH
    if "properties" in items:
        for name, item in items["properties"].items():
            for changed, reason in wrong(item, value[0][name]):
                yield [{**value[0], name: changed}, *value[1:]], reason
        yield [{}], Reason.WRONG_LENGTH
        yield [{**value[0], "more": 1}], Reason.WRONG_LENGTH
        return
    yield [value[0]] * (schema["maxItems"] + 1), Reason.WRONG_LENGTH
    if schema.get("uniqueItems"):
        yield [value[0], value[0]], Reason.OUT_OF_RANGE
    for changed, reason in wrong(items, value[0]):
        yield [changed, *value[1:]], reason


def _is(kind: str | None, schema: Schema, value: Any) -> bool:
    """True if a value is of a type."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "string":
            return isinstance(value, bytes if schema.get("format") == "binary" else str)
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return number and isinstance(value, int)
        case "number":
            return number
    return isinstance(value, list)


def _outside(schema: Schema) -> Iterator[float]:
    yield 2**4000
    if "minimum" in schema:
        yield math.nextafter(schema["minimum"], -math.inf)
    if "maximum" in schema:
        yield math.nextafter(schema["maximum"], math.inf)
    for end in ("exclusiveMinimum", "exclusiveMaximum"):
        if end in schema:
            yield schema[end]


def ends(schema: Schema) -> list[Any]:
    """The smallest and largest of what a number can be."""
    return [schema[end] for end in ("minimum", "maximum") if end in schema]


def refusal(decode: Callable[[bytes], Any], payload: bytes) -> FrameError | None:
    try:
        decode(payload)
    except FrameError as error:
        return error
    return None


@pytest.mark.parametrize(("name", "message", "decode"), PACKED, ids=[f"{i}-{case[0]}" for i, case in enumerate(PACKED)])
def test_packed_fields(name: str, message: bytes, decode: Callable[[bytes], Any]) -> None:
    row = msgpack.unpackb(message[1:])
    count = 0

    def payload(changed: Any) -> bytes:
        return message[:1] + msgpack.packb(changed)

    for changed, reason in wrong(form(name)["items"][1], row):
        try:
            bad = payload(changed)
        except OverflowError:
            continue  # beyond every integer of msgpack
        error = refusal(decode, bad)
        assert error is not None, f"{name} takes {changed}"
        assert error.reason == reason, f"{name} {changed}: {error}"
        count += 1
    assert count > 10 * len(row)
    for place, item in enumerate(form(name)["items"][1]["items"]):
        for end in ends(item):
            error = refusal(decode, payload([*row[:place], end, *row[place + 1 :]]))
            inside = (name, item["title"]) in ELSEWHERE
            assert inside or f"{item['title']} {end} is not in" not in str(error), item["title"]


@pytest.mark.parametrize(("name", "message", "decode"), FLAT, ids=[f"{i}-{case[0]}" for i, case in enumerate(FLAT)])
def test_json_fields(name: str, message: bytes, decode: Callable[[bytes], Any]) -> None:
    schema, fields = form(name), json.loads(message)
    begun = schema.get("patternProperties", {})
    for field, value in fields.items():
        item = schema["properties"].get(field) or next(begun[key] for key in begun if field.startswith(key[1:]))
        for changed, reason in wrong(item, value):
            try:
                bad = json.dumps({**fields, field: changed}).encode()
            except TypeError:
                continue  # bytes are nothing that JSON has
            error = refusal(decode, bad)
            assert error is not None, f"{name} takes {field} {changed}"
            closed = _CLOSED.search(str(error)) or changed == 2**4000
            assert "should" not in str(error), "the library's words"
            assert error.reason == reason or closed, f"{name} {field} {str(changed)[:80]}: {error}"
        for end in ends(item):
            error = refusal(decode, json.dumps({**fields, field: end}).encode())
            inside = (name, field) in ELSEWHERE
            assert inside or "is not in" not in str(error) or f"{end} is not in" not in str(error), field
        rest = {other: fields[other] for other in fields if other != field}
        error = refusal(decode, json.dumps(rest).encode())
        assert field not in schema["required"] or error is not None, field
    error = refusal(decode, json.dumps({**fields, "more": 1}).encode())
    assert error.reason == Reason.WRONG_LENGTH


@pytest.mark.parametrize("reason", Reason)
def test_a_status_carries_every_reason(reason: Reason) -> None:
    status = PolicyStatus(1, b"", reason, "", 1, False)
    assert PolicyStatus.decode(status.encode()) == status
    assert f"{reason}" == reason.value == reason.name.lower()


def test_every_way_to_refuse_a_frame_or_a_document_has_a_reason_of_its_own() -> None:
    for errors in (FrameError.__subclasses__(), TrustError.__subclasses__()):
        reasons = [error.reason for error in errors]
        assert len(set(reasons)) == len(reasons)
        assert FuguError.reason not in reasons
        assert all(isinstance(reason, Reason) for reason in reasons)
