"""Frames of released points, and estimates of them: fixed bytes, one size, and an error for all that can be wrong."""

from __future__ import annotations

import contextlib
import math
import struct
from dataclasses import astuple, replace
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
from contract.frames import MAX_FRAME_TICKS, MAX_TICK
from contract.measure_frames import (
    MAX_MEASURE_TICKS,
    MEASURE,
    MEASURE_ESTIMATE,
    MeasureEstimate,
    MeasureFrame,
    Released,
    decode_measure,
    decode_measure_estimate,
    encode_measure,
    encode_measure_estimate,
    pack_released,
    unpack_released,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "frames"
FRAME = MeasureFrame(7, 99, 104, 2, (Released(0, (3, -1)), Released(5, (0, 0)), Released(12, (-70_000, 2))), 1, 64)
ESTIMATE = MeasureEstimate(
    8, 104, 2, ((1.5, -2.25), (0.5, 0.0)), ((1.0, -0.5, 2.0), (0.25, 0.0, 0.25)), (4, 0), (-2.5, 0.0), 64
)
POINT = st.integers(-(2**31), 2**31 - 1)


@st.composite
def measure_frames(draw: st.DrawFn) -> MeasureFrame:
    """Any frame of points."""
    dimensions = draw(st.integers(1, 3))
    point = st.tuples(*[POINT] * dimensions)
    one = st.builds(Released, st.integers(0, 2**32 - 1), point)
    released = tuple(draw(st.lists(one, min_size=1, max_size=40)))
    previous = draw(st.integers(-1, MAX_TICK - 100))
    first = draw(st.integers(previous + 1, MAX_TICK - 50))
    padding = draw(st.integers(0, MAX_MEASURE_TICKS - len(released)))
    shift = draw(st.integers(0, first))
    return MeasureFrame(draw(st.integers(1, 2**32 - 1)), previous, first, dimensions, released, padding, shift)


@st.composite
def estimates(draw: st.DrawFn) -> MeasureEstimate:
    """Any estimate whose numbers have 32 bits."""
    dimensions, ticks = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    number = st.floats(-(2.0**60), 2.0**60, width=32)

    def rows(size: int) -> tuple[tuple[float, ...], ...]:
        return tuple(draw(st.lists(st.tuples(*[number] * size), min_size=ticks, max_size=ticks)))

    protection = tuple(draw(st.lists(st.integers(0, 2**16), min_size=ticks, max_size=ticks)))
    entries = dimensions * (dimensions + 1) // 2
    (likelihoods,) = zip(*rows(1), strict=True)
    first = draw(st.integers(0, MAX_TICK))
    return MeasureEstimate(
        draw(st.integers(0, MAX_FRAME_TICKS)),
        first,
        dimensions,
        rows(dimensions),
        rows(entries),
        protection,
        likelihoods,
        draw(st.integers(0, first)),
    )


def cells(*ticks: tuple[int, ...]) -> bytes:
    """The bytes of ticks, table and point each."""
    return b"".join(struct.pack(f">I{len(tick) - 1}i", *tick) for tick in ticks)


NOTHING = (0, 0, 0)


def payload(**changes: Any) -> bytes:
    """A frame with some fields replaced by anything."""
    body = cells((0, 3, -1), (5, 0, 0), (12, -70_000, 2), NOTHING)
    fields = {"version": 7, "shift": 64, "previous": 99, "first": 104, "dimensions": 2, "count": 3, "body": body}
    fields |= changes
    return bytes([MEASURE]) + msgpack.packb(list(fields.values()))


def estimate_payload(**changes: Any) -> bytes:
    """An estimate with some fields replaced by anything."""
    fields = dict(zip(MeasureEstimate.__slots__, astuple(ESTIMATE), strict=True)) | changes
    return bytes([MEASURE_ESTIMATE]) + msgpack.packb(list(fields.values()))


# Points


def test_the_bytes_are_fixed() -> None:
    golden = bytes.fromhex((GOLDEN / "measure.hex").read_text())
    assert encode_measure(FRAME) == golden
    assert decode_measure(golden) == FRAME
    assert golden[0] == 7
    assert decode_measure(payload()) == FRAME, "the shorter forms of msgpack say the same"
    assert msgpack.unpackb(golden[1:]) == msgpack.unpackb(payload()[1:])


@given(measure_frames())
def test_a_frame_comes_back(frame: MeasureFrame) -> None:
    assert decode_measure(encode_measure(frame)) == frame


@given(measure_frames())
def test_a_point_comes_back_from_the_outbox(frame: MeasureFrame) -> None:
    for one in frame.released:
        assert unpack_released(pack_released(one)) == one


@given(measure_frames())
def test_the_size_depends_on_the_ticks_and_nothing_else(frame: MeasureFrame) -> None:
    zero = Released(0, (0,) * frame.dimensions)
    ticks = len(frame.released) + frame.padding
    plain = MeasureFrame(1, -1, 0, frame.dimensions, (zero,) * ticks)
    assert len(encode_measure(frame)) == len(encode_measure(plain))
    cut = MeasureFrame(1, -1, 0, frame.dimensions, (zero,), ticks - 1)
    assert len(encode_measure(frame)) == len(encode_measure(cut)), "a frame that was cut short looks like any other"


def test_every_truncation_and_every_extension_is_refused() -> None:
    for whole, decode, schema in (
        (encode_measure(FRAME), decode_measure, MEASURE),
        (encode_measure_estimate(ESTIMATE), decode_measure_estimate, MEASURE_ESTIMATE),
    ):
        for length in range(len(whole)):
            with pytest.raises(MalformedFrameError):
                decode(whole[:length])
        with pytest.raises(TrailingBytesError):
            decode(whole + b"\0")
        with pytest.raises(UnknownSchemaError, match=f"schema 1, expected {schema}"):
            decode(b"\1" + whole[1:])


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"version": 0}, FrameRangeError, "policy_version 0"),
        ({"version": 2**32}, FrameRangeError, "policy_version"),
        ({"version": True}, FrameTypeError, "policy_version is bool"),
        ({"version": 7.0}, FrameTypeError, "policy_version is float"),
        ({"previous": -2}, FrameRangeError, "previous -2"),
        ({"previous": 104}, FrameRangeError, "previous tick 104 is not before"),
        ({"first": -1}, FrameRangeError, "first -1"),
        ({"first": MAX_TICK - 1}, FrameRangeError, "last tick"),
        ({"first": "104"}, FrameTypeError, "first is str"),
        ({"dimensions": 0}, FrameRangeError, "dimensions 0"),
        ({"dimensions": 4}, FrameRangeError, "dimensions 4"),
        ({"dimensions": 2.0}, FrameTypeError, "dimensions is float"),
        ({"dimensions": True}, FrameTypeError, "dimensions is bool"),
        ({"dimensions": 1}, FrameRangeError, "padding of a frame holds points"),
        ({"dimensions": 3, "body": cells((0, 1, 2))}, FrameLengthError, "points has length 12"),
        ({"count": 0}, FrameRangeError, "count 0"),
        ({"count": 5}, FrameRangeError, "count 5"),
        ({"count": None}, FrameTypeError, "count is NoneType"),
        ({"count": 2}, FrameRangeError, "padding of a frame holds points"),
        ({"body": b""}, FrameLengthError, "points has length 0"),
        ({"body": cells((0, 3, -1)) + b"\0"}, FrameLengthError, "in the middle of one"),
        ({"body": "text"}, FrameTypeError, "points is str"),
        ({"body": [1, 2, 3]}, FrameTypeError, "points is list"),
        ({"body": cells(*[NOTHING] * 1025)}, FrameLengthError, "points has length"),
        ({"body": cells((1, 3, -1), NOTHING, NOTHING, (0, 0, 1))}, FrameRangeError, "padding of a frame holds points"),
        ({"shift": -1}, FrameRangeError, "shift -1"),
        ({"shift": 105}, FrameRangeError, "shift 105 is above the first tick 104"),
        ({"more": 1}, FrameLengthError, "message has 8 fields, not 7"),
    ],
)
def test_a_wrong_field_is_refused_by_name(changes: dict[str, Any], error: type[FrameError], text: str) -> None:
    with pytest.raises(error, match=text):
        decode_measure(payload(**changes))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"released": ()}, FrameLengthError),
        ({"released": (Released(0, (1,)),)}, FrameLengthError),
        ({"released": (Released(0, (1, 2, 3)),)}, FrameLengthError),
        ({"released": (Released(2**32, (1, 2)),)}, FrameRangeError),
        ({"released": (Released(-1, (1, 2)),)}, FrameRangeError),
        ({"released": (Released(0, (1, 2**31)),)}, FrameRangeError),
        ({"released": (Released(0, (1, 1.0)),)}, FrameTypeError),
        ({"padding": 1022}, FrameRangeError),
        ({"padding": -1}, FrameRangeError),
    ],
)
def test_what_cannot_be_decoded_cannot_be_made(changes: dict[str, Any], error: type[FrameError]) -> None:
    with pytest.raises(error):
        replace(FRAME, **changes)


@given(st.integers(0, 8 * len(encode_measure(FRAME)) - 1))
def test_a_flipped_bit_is_another_frame_or_an_error(bit: int) -> None:
    flipped = bytearray(encode_measure(FRAME))
    flipped[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(FrameError):
        found = decode_measure(bytes(flipped))
        assert found != FRAME
        assert encode_measure(found) == bytes(flipped)


@given(st.binary(max_size=200))
def test_bytes_without_sense_are_refused(noise: bytes) -> None:
    for schema, decode in ((MEASURE, decode_measure), (MEASURE_ESTIMATE, decode_measure_estimate)):
        with pytest.raises(FrameError):
            decode(bytes([schema]) + noise)


# Estimates


def test_the_bytes_of_an_estimate_are_fixed() -> None:
    golden = bytes.fromhex((GOLDEN / "measure_estimate.hex").read_text())
    assert encode_measure_estimate(ESTIMATE) == golden
    assert decode_measure_estimate(golden) == ESTIMATE
    assert golden[0] == 9


@given(estimates())
def test_an_estimate_comes_back(message: MeasureEstimate) -> None:
    assert decode_measure_estimate(encode_measure_estimate(message)) == message


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"first": -1}, FrameRangeError, "first"),
        ({"lag": -1}, FrameRangeError, "lag"),
        ({"lag": MAX_FRAME_TICKS + 1}, FrameRangeError, "lag"),
        ({"lag": None}, FrameTypeError, "lag"),
        ({"first": 1.0}, FrameTypeError, "first is float"),
        ({"dimensions": 0}, FrameRangeError, "dimensions"),
        ({"dimensions": 3}, FrameLengthError, "mean has length 2, not 3"),
        ({"means": []}, FrameLengthError, "means has length 0"),
        ({"means": [[0.0, 0.0]]}, FrameLengthError, "covariances has length 2, not 1"),
        ({"means": [[0.0, 0.0], [0.0]]}, FrameLengthError, "mean has length 1, not 2"),
        ({"means": [[0.0, 0.0], [0.0, 1]]}, FrameTypeError, "mean is int, not a float"),
        ({"means": [[0.0, 0.0], 5]}, FrameTypeError, "mean is int, not an array"),
        ({"means": {"a": 1}}, FrameTypeError, "means is dict"),
        ({"means": [[0.0, 0.0], [0.0, math.nan]]}, FrameRangeError, "mean is nan"),
        ({"means": [[0.0, 0.0], [0.0, math.inf]]}, FrameRangeError, "mean is inf"),
        ({"covariances": [[1.0, 0.0, 1.0], [1.0, 0.0]]}, FrameLengthError, "covariance has length 2, not 3"),
        ({"covariances": [[1.0, 0.0, 1.0], [1.0, 0.0, 1e31]]}, FrameRangeError, "covariance is 1e"),
        ({"covariances": [[1.0, 0.0, 1.0]]}, FrameLengthError, "covariances has length 1, not 2"),
        ({"protection": [1]}, FrameLengthError, "protection has length 1, not 2"),
        ({"protection": [1, -1]}, FrameRangeError, "protection -1"),
        ({"protection": [1, 2**16 + 1]}, FrameRangeError, "protection 65537"),
        ({"protection": [1, True]}, FrameTypeError, "protection is bool"),
        ({"protection": [1, 1.0]}, FrameTypeError, "protection is float"),
        ({"log_likelihoods": [0.0]}, FrameLengthError, "log_likelihoods has length 1, not 2"),
        ({"log_likelihoods": [0.0, 0]}, FrameTypeError, "log_likelihood is int"),
        ({"log_likelihoods": [0.0, -math.inf]}, FrameRangeError, "log_likelihood is -inf"),
        ({"more": 1}, FrameLengthError, "message has 9 fields, not 8"),
        ({"shift": 105}, FrameRangeError, "shift 105"),
    ],
)
def test_a_wrong_field_of_an_estimate_is_refused_by_name(
    changes: dict[str, Any], error: type[FrameError], text: str
) -> None:
    with pytest.raises(error, match=text):
        decode_measure_estimate(estimate_payload(**changes))


@given(st.integers(0, 8 * len(encode_measure_estimate(ESTIMATE)) - 1))
def test_a_flipped_bit_of_an_estimate_crashes_nothing(bit: int) -> None:
    flipped = bytearray(encode_measure_estimate(ESTIMATE))
    flipped[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(FrameError):
        decode_measure_estimate(bytes(flipped))
