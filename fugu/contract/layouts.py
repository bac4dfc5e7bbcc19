"""Layouts of the payloads that are msgpack, as JSON Schema: which fields, in which order, of which types and ranges.

A payload is two msgpack values, one behind the other: the schema number, and an array of fields. `title` is a field's
name. A byte string that holds numbers says so under `x-fugu-packed`: `count` of them (or as many as there are), each
made of `parts` that are `uint` or `int` of so many `bits`, `times` over; the highest bit first. What is no number there
is the name of the field that has it.
"""

from __future__ import annotations

from typing import Any, get_args

from fugu.contract.envelope import (
    ENVELOPE,
    KEY_NAME_BYTES,
    MAX_ENVELOPE_BYTES,
    MAX_ROOTS,
    MAX_SIGNATURES,
    ROOTS,
    SIGNATURE_BYTES,
    Kind,
)
from fugu.contract.errors import StatusCode
from fugu.contract.fleet_frames import JUDGED_BYTES, MAX_REASON, POLICY_STATUS
from fugu.contract.frames import (
    COMMITTED,
    MAX_FRAME_TICKS,
    MAX_GAPS,
    MAX_SEQUENCE_NAME,
    MAX_STREAMS,
    MAX_TEXT,
    MAX_TICK,
    STATUS,
    SYMBOL_BITS,
    SYMBOLS,
    TAG_BYTES,
)
from fugu.contract.measure_frames import MAX_MEASURE_TICKS, MEASURE
from fugu.contract.measure_table import COORDINATE_LIMIT, MAX_MEASURED_STATES, MOST_RATIO, MOST_VERTICES, TABLE
from fugu.contract.message import Schema
from fugu.contract.noise_table import MAX_POINTS, MAX_TABLE_STATES
from fugu.contract.window_frames import (
    COUNT_HIGH,
    COUNT_LOW,
    MAX_COUNTS,
    MAX_WINDOW_TICKS,
    WINDOW,
    WINDOW_NAME_PATTERN,
)

__all__ = ["LAYOUTS"]

_WORD = 2**32 - 1
_NAME = 64
_SET = MAX_MEASURED_STATES // 8


def _field(name: str, kind: str, about: str, **more: Any) -> Schema:
    found = {"title": name, "type": kind, "description": about, **more}
    return {key: value for key, value in found.items() if value != ""}


def _whole(name: str, low: int, high: int, about: str = "") -> Schema:
    return _field(name, "integer", about, minimum=low, maximum=high)


def _text(name: str, low: int, high: int, about: str = "", **more: Any) -> Schema:
    return _field(name, "string", about, minLength=low, maxLength=high, **more)


def _octets(name: str, low: int, high: int, about: str, packed: Schema | None = None) -> Schema:
    more = {} if packed is None else {"x-fugu-packed": packed}
    return _field(name, "string", about, format="binary", minLength=low, maxLength=high, **more)


def _flag(name: str, about: str) -> Schema:
    return _field(name, "boolean", about)


def _row(name: str, *fields: Schema, about: str = "") -> Schema:
    size = len(fields)
    found = _field(name, "array", about, items=list(fields))
    return found | {"minItems": size, "maxItems": size, "additionalItems": False}


def _many(name: str, item: Schema, low: int, high: int, about: str, **more: Any) -> Schema:
    return _field(name, "array", about, items=item, minItems=low, maxItems=high, **more)


def _packed(count: str, *parts: Schema) -> Schema:
    found = {"count": count, "parts": list(parts)}
    return {key: value for key, value in found.items() if value != ""}


def _part(title: str, kind: str, bits: int | str, times: int | str = 1) -> Schema:
    return {"title": title, "type": kind, "bits": bits, "times": times}


def _payload(schema: int, *fields: Schema) -> Schema:
    number = {"title": "schema", "const": schema, "description": "The first byte."}
    return _row("payload", number, _row("fields", *fields))


_POLICY = _whole("policy_version", 1, _WORD, "Version of the policy that it was made under.")
_SHIFT = _whole(
    *("shift", 0, MAX_TICK),
    "By how many ticks the numbers are ahead of the wall clock, at most `first`: tick t happens at epoch + (t - shift) "
    "* period, both as in the stream's description.",
)
_PREVIOUS = _whole(
    *("previous", -1, MAX_TICK),
    "The last tick of the device's frame before this one, -1 for its first; below `first`. None between has anything.",
)
_FIRST = _whole("first", 0, MAX_TICK, "The tick of the first; every tick from there on has one.")

_SYMBOLS = _payload(
    SYMBOLS,
    *(_POLICY, _SHIFT, _PREVIOUS, _FIRST),
    _field("bits", "integer", "What a symbol takes.", enum=list(SYMBOL_BITS)),
    _whole("count", 1, MAX_FRAME_TICKS, "Symbols."),
    _whole("padding", 0, MAX_FRAME_TICKS - 1, "Ticks by which the frame is filled up; with `count` at most 4096."),
    _octets(
        *("symbols", 1, MAX_FRAME_TICKS, "(count + padding) * bits / 8 bytes, rounded up; all bits behind are 0."),
        _packed("count", _part("symbol", "uint", "bits")),
    ),
)

_COMMITTED = _payload(
    COMMITTED,
    _whole("counter", 0, 2**64 - 1, "Above that of every message before."),
    _octets("tag", 0, TAG_BYTES, "None, or the HMAC-SHA256 of all of it under the device's key."),
    _many(
        "streams",
        _row(
            "StreamCommit",
            _text("stream", 1, MAX_SEQUENCE_NAME, "A stream, or `{stream}/{window}`."),
            _whole("through", -1, MAX_TICK, "All up to this tick, or window, is durable, but for the gaps."),
            _many(
                "gaps",
                _row(
                    "Gap", _whole("after", -1, MAX_TICK), _whole("through", 0, MAX_TICK), about="after < t <= through"
                ),
                *(0, MAX_GAPS, "What the gateway misses."),
            ),
        ),
        *(0, MAX_STREAMS, "One for each stream and each window."),
    ),
)

_STATUS = _payload(
    STATUS,
    _flag("online", "False in the last will, and after a farewell."),
    _text("agent_version", 1, _NAME, "Of the program."),
    _whole("outbox_depth", 0, MAX_TICK, "Frames that wait to be durable."),
    _many(
        "codes",
        {"type": "string", "enum": [str(code) for code in StatusCode]},
        *(0, len(StatusCode), "What is wrong, in the order of the list."),
        uniqueItems=True,
    ),
    _many(
        "streams",
        _row(
            "StreamStatus",
            _text("stream", 1, _NAME),
            _whole("policy_version", 1, _WORD, "Of the policy in force."),
            _whole("next_tick", 0, MAX_TICK, "The next that will be drawn for."),
        ),
        *(0, MAX_STREAMS, "All that the device has."),
    ),
)

_WINDOW = _payload(
    WINDOW,
    *(_POLICY, _SHIFT),
    _text("window", 1, 32, "Which of the policy's windows.", pattern=WINDOW_NAME_PATTERN),
    _whole("previous", -1, MAX_TICK, "Index of the device's window before this one, -1 for its first."),
    _whole("index", 0, MAX_TICK, "Number of this window: `first` = start + index * stride."),
    _whole("first", 0, MAX_TICK, "Its first tick."),
    _whole("length", 1, MAX_WINDOW_TICKS, "Its number of ticks."),
    _whole("observed", 1, MAX_WINDOW_TICKS, "Ticks that the device has observed, at most `length`."),
    _many(
        "counts",
        {"type": "integer", "minimum": COUNT_LOW, "maximum": COUNT_HIGH},
        *(1, MAX_COUNTS, "Ticks in the counted states, or in each state; with noise, so below zero at times."),
    ),
)

_POINTS = _payload(
    MEASURE,
    *(_POLICY, _SHIFT, _PREVIOUS, _FIRST),
    _whole("dimensions", 1, 3, "Coordinates of a point."),
    _whole("count", 1, MAX_MEASURE_TICKS, "Points; the rest is padding, all zero."),
    _octets(
        *("points", 8, 16 * MAX_MEASURE_TICKS, "For each tick the table that it was drawn from, and its point."),
        _packed("count", _part("table", "uint", 32), _part("point", "int", 32, "dimensions")),
    ),
)

_COORDINATE = {"type": "integer", "minimum": -2 * COORDINATE_LIMIT, "maximum": 2 * COORDINATE_LIMIT}


def _point(name: str, about: str = "") -> Schema:
    return _many(name, _COORDINATE, 1, 3, about)


_TABLE = _payload(
    TABLE,
    *(_POLICY, _whole("number", 0, _WORD, "Its name in frames.")),
    _octets("possible", 0, _SET, "The possible states that it is for, little-endian, bit x for state x; empty: any."),
    _whole("first", 0, MAX_TICK, "The first tick that it is for."),
    _whole("until", 1, MAX_TICK + 1, "The first that it is not for, above `first`."),
    _whole("kind", 0, 1, "0: a table of points; 1: a staircase."),
    {
        "title": "body",
        "oneOf": [
            _row(
                "NoiseTable",
                _many("points", _point("point"), 2, MAX_POINTS, "M points."),
                _whole("states", 2, MAX_TABLE_STATES, "N states."),
                _octets(
                    *("rows", 8, 4 * MAX_TABLE_STATES * (MAX_POINTS - 1), "N rows of M-1 cumulative thresholds."),
                    _packed("", _part("threshold", "uint", 32)),
                ),
            ),
            _row(
                "StaircaseNoise",
                _octets(
                    "likely",
                    1,
                    _SET,
                    "The likely states, as `possible`; the others have surrogates.",
                ),
                _many("corners", _point("corner"), 2, MOST_VERTICES, "Of the hull."),
                _whole("p", 1, MOST_RATIO - 1, "Numerator of the ratio."),
                _whole("q", 2, MOST_RATIO, "Its denominator."),
                _point("low", "A corner of the box that points are clamped to."),
                _point("high", "The other."),
            ),
        ],
    },
)

_ENVELOPE = _payload(
    ENVELOPE,
    _field("kind", "string", "What the payload is.", enum=list(get_args(Kind))),
    _octets("payload", 1, MAX_ENVELOPE_BYTES, "The bytes that are signed."),
    _many(
        "signatures",
        _row(
            "Signature",
            _octets("key", KEY_NAME_BYTES, KEY_NAME_BYTES, "The first half of the SHA-256 of the public key."),
            _octets("signature", SIGNATURE_BYTES, SIGNATURE_BYTES, "Ed25519."),
        ),
        *(0, MAX_SIGNATURES, "At most one of each key."),
    ),
)

_POLICY_STATUS = _payload(
    POLICY_STATUS,
    _whole("version", 0, _WORD, "Of the document in force; 0: none."),
    _octets("judged", 0, JUDGED_BYTES, "The first bytes of the SHA-256 of the newest message that was judged."),
    _text("reason", 0, MAX_REASON, "Why that was refused, in a word; empty: it was not."),
    _text("detail", 0, MAX_TEXT, "The same in a sentence."),
    _whole("refused", 0, MAX_TICK, "How many were refused since the start."),
    _flag("stale", "The document is past its time, or the newest signed time is too old."),
)

_ROOTS = _payload(
    ROOTS,
    _many(
        "roots",
        _octets("root", 1, MAX_ENVELOPE_BYTES, "An envelope of kind root, as a payload of its own."),
        *(1, MAX_ROOTS, "In the order of their versions."),
    ),
)

LAYOUTS: dict[str, Schema] = {
    "SymbolFrame": _SYMBOLS,
    "MeasureFrame": _POINTS,
    "WindowFrame": _WINDOW,
    "Status": _STATUS,
    "PolicyStatus": _POLICY_STATUS,
    "Committed": _COMMITTED,
    "TimedTable": _TABLE,
    "Envelope": _ENVELOPE,
    "Roots": _ROOTS,
}
"""By the name of a message, as the register of docs/privacy.md has it."""
