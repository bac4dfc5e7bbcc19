"""Frames of symbols and of points: golden bytes, one size, and an error for everything that can be wrong with one."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu.contract.errors import FrameError, Reason, StatusCode
from fugu.contract.frames import (
    MAX_FRAME_TICKS,
    MAX_TICK,
    Committed,
    Gap,
    Status,
    StreamCommit,
    StreamStatus,
    SymbolFrame,
    WindowFrame,
    symbol_bits,
)
from fugu.contract.measure_frames import MAX_MEASURE_TICKS, MeasureFrame, Released
from fugu.contract.measure_table import TimedTable
from tests.support.example_frames import SYMBOL_FRAME
from tests.support.refusals import refused_for

GOLDEN = Path(__file__).parents[1] / "golden" / "frames"
COMMITTED = Committed((StreamCommit("hr", 1000, (Gap(-1, 3), Gap(500, 600))), StreamCommit("power", -1, ())), 2**40 + 5)
STATUS = Status(True, "0.1.0", 3, (StatusCode.STORAGE_FULL, StatusCode.CLOCK), (StreamStatus("hr", 7, 1001),))
WINDOW = WindowFrame(7, "high", 10, 12, 7200, 600, 590, (-3, 412), shift=3600)
CASES: dict[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "symbols": (SYMBOL_FRAME, SymbolFrame.encode, SymbolFrame.decode),
    "committed": (COMMITTED, Committed.encode, Committed.decode),
    "status": (STATUS, Status.encode, Status.decode),
    "window": (WINDOW, WindowFrame.encode, WindowFrame.decode),
    **{
        name: (message.decode(bytes.fromhex((GOLDEN / f"{name}.hex").read_text())), message.encode, message.decode)
        for name, message in (("measure", MeasureFrame), ("table", TimedTable), ("table_staircase", TimedTable))
    },
}


@pytest.mark.parametrize("name", CASES)
def test_the_bytes_of_every_schema_are_fixed(name: str) -> None:
    """A device of last year must still be understood: within a version of the protocol these files never change."""
    message, encode, decode = CASES[name]
    golden = bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
    assert encode(message) == golden
    assert decode(golden) == message


@pytest.mark.parametrize("name", CASES)
def test_every_truncation_and_every_extension_is_refused(name: str) -> None:
    message, encode, decode = CASES[name]
    payload = encode(message)
    with refused_for(Reason.EMPTY):
        decode(b"")
    for length in range(1, len(payload)):
        with refused_for(Reason.MALFORMED):
            decode(payload[:length])
    with refused_for(Reason.TRAILING_BYTES):
        decode(payload + b"\0")
    with refused_for(Reason.UNKNOWN_SCHEMA, match=f"schema 200, expected {payload[0]}"):
        decode(b"\xc8" + payload[1:])


def body(schema: int, value: Any) -> bytes:
    return bytes([schema]) + msgpack.packb(value)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ([1, 2, 0, 1, 1, 1, 0, b"\0"], Reason.OUT_OF_RANGE, "shift 2 is above the first tick 1"),
        ([1, 0, 5, 5, 1, 1, 0, b"\0"], Reason.OUT_OF_RANGE, "previous tick 5 is not before the first tick 5"),
        ([1, 0, 0, 1, 3, 1, 0, b"\0"], Reason.OUT_OF_RANGE, "bits 3 is not 1, 2, 4 or 8"),
        ([1, 0, 0, 1, 1, 1, 0, b""], Reason.WRONG_LENGTH, r"symbols has length 0, not 1\.\.1"),
        ([1, 0, 0, 1, 1, 8, 0, b"\0\0"], Reason.WRONG_LENGTH, r"symbols has length 2, not 1\.\.1"),
        ([1, 0, 0, 1, 1, 9, 0, b"\0"], Reason.WRONG_LENGTH, r"symbols has length 1, not 2\.\.2"),
        ([1, 0, 0, 1, 4, 1, 2, b"\0"], Reason.WRONG_LENGTH, r"symbols has length 1, not 2\.\.2"),
        ([1, 0, 0, 1, 8, 1, MAX_FRAME_TICKS, bytes(4097)], Reason.OUT_OF_RANGE, "padding 4096 is not in 0..4095"),
        ([1, 0, 0, 1, 8, 1, -1, b""], Reason.OUT_OF_RANGE, "padding -1"),
        ([1, 0, 0, 1, 8, 1, 1, b"\0\1"], Reason.OUT_OF_RANGE, "padding of a frame holds symbols"),
        ([1, 0, 0, 1, 1, 7, 0, b"\x01"], Reason.OUT_OF_RANGE, "padding of a frame holds symbols"),
        ([1, 0, 0, 1, 2, 3, 0, b"\x02"], Reason.OUT_OF_RANGE, "padding of a frame holds symbols"),
    ],
)
def test_a_wrong_symbol_frame_says_what_is_wrong(value: Any, error: Reason, text: str) -> None:
    with refused_for(error, match=text):
        SymbolFrame.decode(body(1, value))


@pytest.mark.parametrize(
    ("message", "fields", "text"),
    [
        (Committed, [0, b"", [["hr", 5, [[3, 3]]]]], "gap from 3 to 3 is empty"),
        (Status, [True, "0.1", 0, ["clock", "link"], []], "codes are not in order"),
        (Status, [True, "0.1", 0, ["clock", "clock"], []], "or one is there twice"),
        (WindowFrame, [1, 8, "w", -1, 0, 7, 5, 5, [1]], "shift 8 is above the first tick 7"),
        (WindowFrame, [1, 0, "w", 3, 3, 0, 5, 5, [1]], "previous index 3 is not before"),
        (WindowFrame, [1, 0, "w", -1, 0, 2**53, 5, 5, [1]], "last tick 9007199254740996"),
        (WindowFrame, [1, 0, "w", -1, 0, 0, 5, 0, [1]], "observed 0 is not in 1"),
        (WindowFrame, [1, 0, "w", -1, 0, 0, 5, 6, [1]], r"observed 6 is not in 1\.\.5"),
    ],
)
def test_wrong_fields_of_the_other_messages(message: Any, fields: list[Any], text: str) -> None:
    with refused_for(Reason.OUT_OF_RANGE, match=text):
        message.decode(body(message.SCHEMA, fields))


def test_a_tag_has_32_bytes_or_none() -> None:
    Committed.decode(body(2, [2**63, bytes(32), []]))
    with refused_for(Reason.WRONG_LENGTH, match="tag has length 1, not 0 or 32"):
        Committed.decode(body(2, [0, b"\0", []]))


@pytest.mark.parametrize("depth", [10, 1000, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    with pytest.raises(FrameError):
        SymbolFrame.decode(b"\1" + b"\x91" * depth + b"\0")


def test_an_array_that_claims_to_be_gigantic_is_refused() -> None:
    for head in (b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"):
        with refused_for(Reason.MALFORMED):
            SymbolFrame.decode(b"\1" + head)


@pytest.mark.parametrize(("symbols", "bits"), [(2, 1), (3, 2), (4, 2), (5, 4), (16, 4), (17, 8), (255, 8)])
def test_a_symbol_takes_the_fewest_bits_that_hold_its_table(symbols: int, bits: int) -> None:
    assert symbol_bits(symbols) == bits


@given(
    st.integers(1, 2**32 - 1),
    st.integers(0, 2**53 - MAX_FRAME_TICKS),
    st.integers(0, 2**53),
    st.sampled_from([1, 2, 4, 8]),
    st.binary(min_size=1, max_size=50),
    st.integers(0, 50),
)
def test_the_size_depends_on_nothing_but_the_number_of_ticks_and_the_bits_of_a_symbol(
    version: int, first: int, shift: int, bits: int, drawn: bytes, padding: int
) -> None:
    symbols = bytes(symbol % (1 << bits) for symbol in drawn)
    frame = SymbolFrame(version, first - 1, first, symbols, padding, bits, min(shift, first))
    assert len(frame.encode()) == 45 + math.ceil((len(symbols) + padding) * bits / 8)
    assert SymbolFrame.decode(frame.encode()) == frame


@pytest.mark.parametrize(
    ("bits", "symbols", "packed"),
    [
        (1, [1, 0, 0, 0, 0, 0, 1, 0, 1], "8280"),
        (2, [3, 0, 1, 2, 2], "c680"),
        (4, [15, 1, 2], "f120"),
        (8, [254, 0], "fe00"),
    ],
)
def test_the_first_symbol_is_in_the_highest_bits(bits: int, symbols: list[int], packed: str) -> None:
    assert SymbolFrame(1, -1, 0, bytes(symbols), bits=bits).encode()[45:].hex() == packed


@pytest.mark.parametrize("name", CASES)
def test_a_flipped_bit_is_another_message_or_an_error(name: str) -> None:
    message, encode, decode = CASES[name]
    payload = encode(message)
    for bit in range(8 * len(payload)):
        flipped = bytearray(payload)
        flipped[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(FrameError):
            decoded = decode(bytes(flipped))
            assert decoded != message
            assert encode(decoded) == bytes(flipped) or name.startswith(("committed", "table")), "one form of integers"


@pytest.mark.parametrize("symbols", [b"\2", b"\0\xff"])
def test_a_symbol_that_its_bits_do_not_hold_is_no_part_of_a_frame(symbols: bytes) -> None:
    with refused_for(Reason.OUT_OF_RANGE, match="does not fit into 1 bits"):
        SymbolFrame(1, -1, 0, symbols)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=255), st.integers(0, 2**40), st.data())
def test_the_size_of_a_window_depends_on_nothing_but_its_name_and_its_number_of_counts(
    counts: list[int], index: int, data: st.DataObject
) -> None:
    name = data.draw(st.text("abcXYZ-_09", min_size=1, max_size=32))
    frame = WindowFrame(1, name, data.draw(st.integers(-1, index - 1)), index, index, 7, 7, tuple(counts))
    assert len(frame.encode()) == 58 + len(name) + 9 * len(counts)
    assert WindowFrame.decode(frame.encode()) == frame


def test_the_last_tick_of_a_frame_may_be_the_largest_and_no_larger() -> None:
    assert SymbolFrame(1, 0, 2**53 - 1, b"\0\0").last == 2**53
    with refused_for(Reason.OUT_OF_RANGE, match="last tick 9007199254740993 is above"):
        SymbolFrame(1, 0, 2**53 - 1, b"\0\0\0")


FRAME = MeasureFrame(7, 99, 104, 2, (Released(0, (3, -1)), Released(5, (0, 0)), Released(12, (-70_000, 2))), 1, 64)
POINT = st.integers(-(2**31), 2**31 - 1)


@st.composite
def measure_frames(draw: st.DrawFn) -> MeasureFrame:
    dimensions = draw(st.integers(1, 3))
    point = st.tuples(*[POINT] * dimensions)
    released_point = st.builds(Released, st.integers(0, 2**32 - 1), point)
    released = tuple(draw(st.lists(released_point, min_size=1, max_size=40)))
    previous = draw(st.integers(-1, MAX_TICK - 100))
    first = draw(st.integers(previous + 1, MAX_TICK - 50))
    padding = draw(st.integers(0, MAX_MEASURE_TICKS - len(released)))
    shift = draw(st.integers(0, first))
    return MeasureFrame(draw(st.integers(1, 2**32 - 1)), previous, first, dimensions, released, padding, shift)


def cells(*ticks: tuple[int, ...]) -> bytes:
    """The bytes of ticks, table and point each."""
    return b"".join(struct.pack(f">I{len(tick) - 1}i", *tick) for tick in ticks)


NOTHING = (0, 0, 0)


def payload(**changes: Any) -> bytes:
    """A frame with some fields replaced by anything."""
    body = cells((0, 3, -1), (5, 0, 0), (12, -70_000, 2), NOTHING)
    fields = {"version": 7, "shift": 64, "previous": 99, "first": 104, "dimensions": 2, "count": 3, "body": body}
    fields |= changes
    return bytes([MeasureFrame.SCHEMA]) + msgpack.packb(list(fields.values()))


# Points


def test_the_bytes_are_fixed() -> None:
    golden = bytes.fromhex((GOLDEN / "measure.hex").read_text())
    assert FRAME.encode() == golden
    assert MeasureFrame.decode(golden) == FRAME
    assert golden[0] == 7
    assert MeasureFrame.decode(payload()) == FRAME, "the shorter forms of msgpack say the same"
    assert msgpack.unpackb(golden[1:]) == msgpack.unpackb(payload()[1:])


@pytest.mark.long
@settings(max_examples=30)
@given(measure_frames())
def test_the_size_depends_on_the_ticks_and_nothing_else(frame: MeasureFrame) -> None:
    zero = Released(0, (0,) * frame.dimensions)
    ticks = len(frame.released) + frame.padding
    plain = MeasureFrame(1, -1, 0, frame.dimensions, (zero,) * ticks)
    assert len(frame.encode()) == len(plain.encode())
    cut = MeasureFrame(1, -1, 0, frame.dimensions, (zero,), ticks - 1)
    assert len(frame.encode()) == len(cut.encode()), "a frame that was cut short looks like any other"


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"previous": 104}, Reason.OUT_OF_RANGE, "previous tick 104 is not before"),
        ({"first": MAX_TICK - 1}, Reason.OUT_OF_RANGE, "last tick"),
        ({"dimensions": 1}, Reason.OUT_OF_RANGE, "padding of a frame holds points"),
        ({"dimensions": 3, "body": cells((0, 1, 2))}, Reason.WRONG_LENGTH, "points has length 12"),
        ({"count": 0}, Reason.OUT_OF_RANGE, "count 0"),
        ({"count": 5}, Reason.OUT_OF_RANGE, "count 5"),
        ({"count": 2}, Reason.OUT_OF_RANGE, "padding of a frame holds points"),
        ({"body": b""}, Reason.WRONG_LENGTH, "points has length 0"),
        ({"body": cells((0, 3, -1)) + b"\0"}, Reason.WRONG_LENGTH, "in the middle of one"),
        ({"body": cells(*[NOTHING] * 1025)}, Reason.WRONG_LENGTH, "points has length"),
        (
            {"body": cells((1, 3, -1), NOTHING, NOTHING, (0, 0, 1))},
            Reason.OUT_OF_RANGE,
            "padding of a frame holds points",
        ),
        ({"shift": 105}, Reason.OUT_OF_RANGE, "shift 105 is above the first tick 104"),
    ],
)
def test_a_wrong_field_is_refused_by_name(changes: dict[str, Any], error: Reason, text: str) -> None:
    with refused_for(error, match=text):
        MeasureFrame.decode(payload(**changes))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"released": ()}, Reason.WRONG_LENGTH),
        ({"released": (Released(0, (1,)),)}, Reason.WRONG_LENGTH),
        ({"released": (Released(0, (1, 2, 3)),)}, Reason.WRONG_LENGTH),
        ({"released": (Released(2**32, (1, 2)),)}, Reason.OUT_OF_RANGE),
        ({"released": (Released(-1, (1, 2)),)}, Reason.OUT_OF_RANGE),
        ({"released": (Released(0, (1, 2**31)),)}, Reason.OUT_OF_RANGE),
        ({"released": (Released(0, (1, 1.0)),)}, Reason.WRONG_TYPE),
        ({"padding": 1022}, Reason.OUT_OF_RANGE),
        ({"padding": -1}, Reason.OUT_OF_RANGE),
    ],
)
def test_what_cannot_be_decoded_cannot_be_made(changes: dict[str, Any], error: Reason) -> None:
    with refused_for(error):
        replace(FRAME, **changes)
