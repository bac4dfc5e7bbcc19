"""Release frames: fixed bytes, 64-bit numbers, and one specific error for everything that can be wrong."""

from __future__ import annotations

import contextlib
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
from contract.release_frames import RELEASE, ReleaseFrame, decode_release, encode_release
from tests.support.example_frames import RELEASE_FRAME

GOLDEN = Path(__file__).parents[1] / "golden" / "frames" / "release.hex"
FIELDS = list(astuple(RELEASE_FRAME))


def payload(**changes: Any) -> bytes:
    """A frame with some fields replaced by anything."""
    fields = dict(zip(ReleaseFrame.__slots__, FIELDS, strict=True)) | changes
    return bytes([RELEASE]) + msgpack.packb(list(fields.values()))


def test_the_bytes_are_fixed() -> None:
    golden = bytes.fromhex(GOLDEN.read_text())
    assert encode_release(RELEASE_FRAME) == golden
    assert decode_release(golden) == RELEASE_FRAME
    assert golden[0] == 6
    assert msgpack.unpackb(golden[1:]) == [list(f) if isinstance(f, tuple) else f for f in FIELDS]


def test_no_number_is_rounded_on_the_way() -> None:
    found = decode_release(encode_release(RELEASE_FRAME))
    assert (found.values[0], found.epsilon, found.charge) == (0.30000000000000004, 0.1, 0.0487654321)
    assert found.last == 10799


def test_every_truncation_and_every_extension_is_refused() -> None:
    whole = encode_release(RELEASE_FRAME)
    for length in range(len(whole)):
        with pytest.raises(MalformedFrameError):
            decode_release(whole[:length])
    with pytest.raises(TrailingBytesError):
        decode_release(whole + b"\0")
    with pytest.raises(UnknownSchemaError, match="schema 4, expected 6"):
        decode_release(b"\4" + whole[1:])


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"name": 5}, FrameTypeError, "name is int"),
        ({"name": "a/b"}, FrameRangeError, "name is not of its form"),
        ({"stream": ""}, FrameLengthError, "stream is not of its form"),
        ({"audience": "x" * 65}, FrameLengthError, "audience is not of its form"),
        ({"query": "mean"}, FrameRangeError, "query is none of count"),
        ({"query": ["count"]}, FrameTypeError, "query is list"),
        ({"query": "count"}, FrameLengthError, "values has length 2, not 1"),
        ({"states": "low"}, FrameTypeError, "states is str, not an array"),
        ({"states": []}, FrameLengthError, "states has length 0"),
        ({"states": ["low", 1]}, FrameTypeError, "a state is int"),
        ({"devices": 0}, FrameRangeError, "devices 0"),
        ({"first": -1}, FrameRangeError, "first -1"),
        ({"first": 2**53}, FrameRangeError, r"length 3600 is not in 1\.\.1"),
        ({"length": 0}, FrameRangeError, "length 0"),
        ({"observed": 10801}, FrameRangeError, r"observed 10801 is not in 0\.\.10800"),
        ({"observed": True}, FrameTypeError, "observed is bool"),
        ({"values": [1, 2]}, FrameTypeError, "values is int, not a float"),
        ({"values": [0.0]}, FrameLengthError, "values has length 1, not 2"),
        ({"values": [5.0, 0.0]}, FrameRangeError, "not inside its interval"),
        ({"low": [float("nan"), 0.0]}, FrameRangeError, "low nan is not finite"),
        ({"high": [float("inf"), 1.0]}, FrameRangeError, "high inf is not finite"),
        ({"standard_errors": [-1.0, 0.0]}, FrameRangeError, "a standard error is negative"),
        ({"confidence": 1.0}, FrameRangeError, "confidence"),
        ({"epsilon": 0.0}, FrameRangeError, "epsilon 0.0"),
        ({"charge": -0.1}, FrameRangeError, "charge -0.1"),
        ({"charge": 1}, FrameTypeError, "charge is int"),
        ({"adversary": "strong"}, FrameRangeError, "adversary is none of"),
        ({"mechanism": "entry"}, FrameRangeError, "mechanism is none of chain, mqm-exact"),
        ({"noise": "group"}, FrameRangeError, "noise is none of"),
        ({"scale": 20}, FrameTypeError, "scale is int"),
        ({"scale": "0"}, FrameRangeError, "scale is not of its form"),
        ({"scale": "2.5"}, FrameRangeError, "scale is not of its form"),
        ({"scale": "10/4"}, FrameRangeError, "scale 10/4 is not in lowest terms"),
        ({"entry": 0}, FrameRangeError, "entry 0"),
        ({"noisy": 1}, FrameTypeError, "noisy is int"),
        ({"noisy": False}, FrameRangeError, "a release without noise is none"),
    ],
)
def test_a_wrong_field_says_what_is_wrong(changes: dict[str, Any], error: type[FrameError], text: str) -> None:
    with pytest.raises(error, match=text):
        decode_release(payload(**changes))


def test_what_cannot_be_decoded_cannot_be_encoded() -> None:
    with pytest.raises(FrameRangeError):
        replace(RELEASE_FRAME, noisy=False)
    with pytest.raises(FrameLengthError, match="message has 21 fields, not 22"):
        decode_release(bytes([RELEASE]) + msgpack.packb(FIELDS[:-1]))


@given(st.data())
def test_flipped_bits_never_do_anything_but_raise_a_frame_error(data: st.DataObject) -> None:
    changed = bytearray(encode_release(RELEASE_FRAME))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(FrameError):
        found = decode_release(bytes(changed))
        assert decode_release(encode_release(found)) == found
