"""Frames of released points: fixed bytes, one size, and an error for all that can be wrong."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu.contract.errors import Reason
from fugu.contract.frames import MAX_TICK
from fugu.contract.measure_frames import MAX_MEASURE_TICKS, MeasureFrame, Released
from tests.support.refusals import refused_for

GOLDEN = Path(__file__).parents[1] / "golden" / "frames"
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
