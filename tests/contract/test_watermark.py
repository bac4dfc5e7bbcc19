"""Authenticated watermarks: what the tag covers, bit by bit, and golden bytes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from fugu.contract.errors import FrameError, Reason
from fugu.contract.frames import Committed, Gap, StreamCommit
from tests.support.refusals import refused_for

GOLDEN = Path(__file__).parents[1] / "golden" / "frames" / "committed_tagged.hex"
KEY = bytes(range(32))
BARE = Committed((StreamCommit("hr", 1000, (Gap(-1, 3), Gap(500, 600))), StreamCommit("power", -1, ())), 2**40 + 5)
TAGGED = BARE.with_tag(KEY, "home", "watch")


def test_golden_bytes() -> None:
    assert TAGGED.encode().hex() == GOLDEN.read_text().strip()


def test_the_tag_is_hmac_sha256_of_names_counter_and_the_rest_of_the_payload() -> None:
    rest = TAGGED.encode().partition(TAGGED.tag)[2]
    signed = b"fugu/2 committed\0home\0watch\0" + (2**40 + 5).to_bytes(8, "big") + rest
    inner, outer = (bytes(byte ^ pad for byte in KEY.ljust(64, b"\0")) for pad in (0x36, 0x5C))
    assert TAGGED.tag == hashlib.sha256(outer + hashlib.sha256(inner + signed).digest()).digest()


def test_a_bit_flipped_watermark_is_not_authentic() -> None:
    payload = TAGGED.encode()
    assert Committed.decode(payload).is_authentic(KEY, "home", "watch")
    decoded = 0
    for bit in range(8 * len(payload)):
        flipped = bytearray(payload)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            message = Committed.decode(bytes(flipped))
        except FrameError:
            continue
        decoded += 1
        assert not message.is_authentic(KEY, "home", "watch"), f"bit {bit}"
    assert decoded > 8 * 32


@pytest.mark.parametrize(
    "message",
    [
        BARE,
        replace(TAGGED, tag=bytes(32)),
        replace(TAGGED, counter=TAGGED.counter + 1),
        replace(TAGGED, streams=TAGGED.streams[:1]),
        replace(TAGGED, streams=TAGGED.streams[::-1]),
        replace(TAGGED, streams=(StreamCommit("hr", 1001, TAGGED.streams[0].gaps), TAGGED.streams[1])),
        replace(TAGGED, streams=(StreamCommit("hr", 1000, ()), TAGGED.streams[1])),
        BARE.with_tag(bytes(32), "home", "watch"),
        BARE.with_tag(KEY, "home", "ring"),
        BARE.with_tag(KEY, "away", "watch"),
        BARE.with_tag(KEY, "homew", "atch"),
    ],
    ids=["bare", "zeros", "counter", "fewer", "order", "further", "no gaps", "key", "device", "fleet", "names"],
)
def test_a_forged_watermark_is_not_authentic(message: Committed) -> None:
    assert not message.is_authentic(KEY, "home", "watch")


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33)])
def test_a_key_has_32_bytes(key: bytes) -> None:
    with refused_for(Reason.WRONG_LENGTH, match="key"):
        BARE.with_tag(key, "home", "watch")
