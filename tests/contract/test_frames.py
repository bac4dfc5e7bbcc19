"""Frames: golden bytes, and one specific error for everything that can be wrong with a payload."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import (
    FrameError,
    FrameLengthError,
    FrameRangeError,
    FrameTypeError,
    MalformedFrameError,
    TrailingBytesError,
    UnknownSchemaError,
)
from contract.frames import (
    ABSENT,
    MAX_FRAME_TICKS,
    Committed,
    Estimate,
    Gap,
    Status,
    StreamCommit,
    StreamStatus,
    SymbolFrame,
    decode_committed,
    decode_estimate,
    decode_status,
    decode_symbols,
    encode_committed,
    encode_estimate,
    encode_status,
    encode_symbols,
)
from contract.window_frames import WindowFrame, decode_window, encode_window

GOLDEN = Path(__file__).parents[1] / "golden" / "frames"
FRAME = SymbolFrame(7, 99, 104, bytes([0, 1, ABSENT, 1]), 2)
COMMITTED = Committed((StreamCommit("hr", 1000, (Gap(-1, 3), Gap(500, 600))), StreamCommit("power", -1, ())))
STATUS = Status(True, "0.1.0", 3, "outbox: disk is full", (StreamStatus("hr", 7, 1001),))
ESTIMATE = Estimate(8, 96, ((0.25, 0.75), (0.5, 0.5)), bytes([1, 0]), 105, (0.125, 0.875))
WINDOW = WindowFrame(7, "high", 10, 12, 7200, 600, 590, (-3, 412))
CASES: dict[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "symbols": (FRAME, encode_symbols, decode_symbols),
    "committed": (COMMITTED, encode_committed, decode_committed),
    "status": (STATUS, encode_status, decode_status),
    "estimate": (ESTIMATE, encode_estimate, decode_estimate),
    "window": (WINDOW, encode_window, decode_window),
}


@pytest.mark.parametrize("name", CASES)
def test_the_bytes_of_every_schema_are_fixed(name: str) -> None:
    """A device of last year must still be understood: these files never change."""
    message, encode, decode = CASES[name]
    golden = bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
    assert encode(message) == golden
    assert decode(golden) == message


@pytest.mark.parametrize("name", CASES)
def test_any_msgpack_library_reads_the_body(name: str) -> None:
    message, encode, _ = CASES[name]
    body = msgpack.unpackb(encode(message)[1:])
    assert isinstance(body, list)


@pytest.mark.parametrize("name", CASES)
def test_every_truncation_and_every_extension_is_refused(name: str) -> None:
    message, encode, decode = CASES[name]
    payload = encode(message)
    for length in range(len(payload)):
        with pytest.raises(MalformedFrameError):
            decode(payload[:length])
    with pytest.raises(TrailingBytesError):
        decode(payload + b"\0")
    with pytest.raises(UnknownSchemaError, match=f"schema 200, expected {payload[0]}"):
        decode(b"\xc8" + payload[1:])


def body(schema: int, value: Any) -> bytes:
    return bytes([schema]) + msgpack.packb(value)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ({}, FrameTypeError, "message is dict"),
        ([1, 2, 3, 1], FrameLengthError, "message has 4 fields, not 5"),
        (["7", 0, 1, 1, b"\0"], FrameTypeError, "policy_version is str"),
        ([True, 0, 1, 1, b"\0"], FrameTypeError, "policy_version is bool"),
        ([7.0, 0, 1, 1, b"\0"], FrameTypeError, "policy_version is float"),
        ([0, 0, 1, 1, b"\0"], FrameRangeError, "policy_version 0"),
        ([2**32, 0, 1, 1, b"\0"], FrameRangeError, "policy_version 4294967296"),
        ([1, -2, 1, 1, b"\0"], FrameRangeError, "previous -2"),
        ([1, 0, -1, 1, b"\0"], FrameRangeError, "first -1"),
        ([1, 0, 2**53 + 1, 1, b"\0"], FrameRangeError, "first 9007199254740993"),
        ([1, 5, 5, 1, b"\0"], FrameRangeError, "previous tick 5 is not before the first tick 5"),
        ([1, 0, 1, 1, "\0"], FrameTypeError, "symbols is str"),
        ([1, 0, 1, 1, [0]], FrameTypeError, "symbols is list"),
        ([1, 0, 1, 1, b""], FrameLengthError, "symbols has length 0"),
        ([1, 0, 1, 1, bytes(MAX_FRAME_TICKS + 1)], FrameLengthError, "symbols has length 4097"),
        ([1, 0, 1, 0, b"\0"], FrameRangeError, "count 0 is not in 1..1"),
        ([1, 0, 1, 2, b"\0"], FrameRangeError, "count 2 is not in 1..1"),
        ([1, 0, 1, 1, b"\0\1"], FrameRangeError, "padding of a frame holds symbols"),
    ],
)
def test_a_wrong_symbol_frame_says_what_is_wrong(value: Any, error: type[FrameError], text: str) -> None:
    with pytest.raises(error, match=text):
        decode_symbols(body(1, value))


@pytest.mark.parametrize(
    ("decode", "payload", "error", "text"),
    [
        (decode_committed, body(2, [[["hr", 5]]]), FrameLengthError, "stream has 2 fields, not 3"),
        (decode_committed, body(2, [[["hr", 5, [[3, 3]]]]]), FrameRangeError, "gap from 3 to 3 is empty"),
        (decode_committed, body(2, [[["hr", 5, [[3, None]]]]]), FrameTypeError, "through is NoneType"),
        (decode_committed, body(2, [[["hr", 5, [[0, 1]] * 33]]]), FrameLengthError, "gaps has length 33"),
        (decode_committed, body(2, [[["x" * 98, 5, []]]]), FrameLengthError, "stream has length 98, not 1..97"),
        (decode_committed, body(2, ["hr"]), FrameTypeError, "streams is str, not an array"),
        (decode_status, body(3, [1, "0.1", 0, "", []]), FrameTypeError, "online is int"),
        (decode_status, body(3, [True, "0.1", -1, "", []]), FrameRangeError, "outbox_depth -1"),
        (decode_status, body(3, [True, "0.1", 0, "x" * 201, []]), FrameLengthError, "last_error has length 201"),
        (decode_estimate, body(4, [0, 0, [[0.5, 0.6]], b"\0", 0, [0.5, 0.5]]), FrameRangeError, "sum to 1.1"),
        (decode_estimate, body(4, [0, 0, [[0.5, -0.5]], b"\0", 0, [0.5, 0.5]]), FrameRangeError, "not a probability"),
        (decode_estimate, body(4, [0, 0, [[1]], b"\0", 0, [0.5, 0.5]]), FrameLengthError, "has length 1"),
        (decode_estimate, body(4, [0, 0, [[1, 0]], b"\0", 0, [0.5, 0.5]]), FrameTypeError, "a probability is int"),
        (decode_estimate, body(4, [0, 0, [[0.5, 0.5]], b"\2", 0, [0.5, 0.5]]), FrameRangeError, "does not exist"),
        (decode_estimate, body(4, [0, 0, [], b"", 0, [0.2, 0.3, 0.5]]), None, ""),
        (decode_window, body(5, [1, "w", -1, 0, 0, 5, 5]), FrameLengthError, "message has 7 fields, not 8"),
        (decode_window, body(5, [0, "w", -1, 0, 0, 5, 5, [1]]), FrameRangeError, "policy_version 0"),
        (decode_window, body(5, [1, b"w", -1, 0, 0, 5, 5, [1]]), FrameTypeError, "window is bytes"),
        (decode_window, body(5, [1, "x" * 33, -1, 0, 0, 5, 5, [1]]), FrameLengthError, "window has length 33"),
        (decode_window, body(5, [1, "a/b", -1, 0, 0, 5, 5, [1]]), FrameRangeError, "more than letters, digits"),
        (decode_window, body(5, [1, "w\n", -1, 0, 0, 5, 5, [1]]), FrameRangeError, "more than letters, digits"),
        (decode_window, body(5, [1, "w", 3, 3, 0, 5, 5, [1]]), FrameRangeError, "previous index 3 is not before"),
        (decode_window, body(5, [1, "w", -2, 0, 0, 5, 5, [1]]), FrameRangeError, "previous -2"),
        (decode_window, body(5, [1, "w", -1, 0, 2**53, 5, 5, [1]]), FrameRangeError, "last tick 9007199254740996"),
        (decode_window, body(5, [1, "w", -1, 0, 0, 2**31 + 1, 5, [1]]), FrameRangeError, "length 2147483649"),
        (decode_window, body(5, [1, "w", -1, 0, 0, 5, 0, [1]]), FrameRangeError, r"observed 0 is not in 1\.\.5"),
        (decode_window, body(5, [1, "w", -1, 0, 0, 5, 6, [1]]), FrameRangeError, r"observed 6 is not in 1\.\.5"),
        (decode_window, body(5, [1, "w", -1, 0, 0, 5, 5, []]), FrameLengthError, "counts has length 0"),
        (decode_window, body(5, [1, "w", -1, 0, 0, 5, 5, [0] * 256]), FrameLengthError, "counts has length 256"),
        (decode_window, body(5, [1, "w", -1, 0, 0, 5, 5, [1.0]]), FrameTypeError, "a count is float"),
        (decode_window, body(5, [1, "w", -1, 0, 0, 5, 5, [2**63]]), FrameRangeError, "a count 9223372036854775808"),
    ],
)
def test_wrong_fields_of_the_other_messages(
    decode: Callable[[bytes], Any], payload: bytes, error: type[FrameError] | None, text: str
) -> None:
    if error is None:
        decode(payload)
        return
    with pytest.raises(error, match=text):
        decode(payload)


@given(st.sampled_from(sorted(CASES)), st.binary(max_size=200))
def test_random_bytes_never_do_anything_but_raise_a_frame_error(name: str, payload: bytes) -> None:
    message, encode, decode = CASES[name]
    for candidate in (payload, encode(message)[:1] + payload):
        try:
            decoded = decode(candidate)
        except FrameError:
            continue
        assert decode(encode(decoded)) == decoded


@given(st.sampled_from(sorted(CASES)), st.data())
def test_flipped_bits_never_do_anything_but_raise_a_frame_error(name: str, data: st.DataObject) -> None:
    message, encode, decode = CASES[name]
    payload = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(FrameError):
        decode(bytes(payload))


@pytest.mark.parametrize("depth", [10, 1000, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    with pytest.raises(FrameError):
        decode_symbols(b"\1" + b"\x91" * depth + b"\0")


def test_an_array_that_claims_to_be_gigantic_is_refused() -> None:
    for head in (b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"):
        with pytest.raises(MalformedFrameError):
            decode_symbols(b"\1" + head)


@given(
    st.integers(1, 2**32 - 1),
    st.integers(0, 2**53 - MAX_FRAME_TICKS),
    st.binary(min_size=1, max_size=50),
    st.integers(0, 50),
)
def test_the_size_depends_on_nothing_but_the_number_of_ticks(
    version: int, first: int, symbols: bytes, padding: int
) -> None:
    frame = SymbolFrame(version, first - 1, first, symbols, padding)
    assert len(encode_symbols(frame)) == 31 + len(symbols) + padding
    assert decode_symbols(encode_symbols(frame)) == frame


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=255), st.integers(0, 2**40), st.data())
def test_the_size_of_a_window_depends_on_nothing_but_its_name_and_its_number_of_counts(
    counts: list[int], index: int, data: st.DataObject
) -> None:
    name = data.draw(st.text("abcXYZ-_09", min_size=1, max_size=32))
    frame = WindowFrame(1, name, data.draw(st.integers(-1, index - 1)), index, index, 7, 7, tuple(counts))
    assert len(encode_window(frame)) == 49 + len(name) + 9 * len(counts)
    assert decode_window(encode_window(frame)) == frame
