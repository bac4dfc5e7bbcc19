"""Frames and documents that are no longer what they were: material for fuzzing that a seed determines."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgpack

from fugu.contract.envelope import encode_roots
from tests.support.fuzz_target import KEYS, MEASURED, SIGNED

__all__ = ["SEEDS", "mutated"]

GOLDEN = Path(__file__).parents[1] / "golden" / "frames"
SEEDS = [
    SIGNED,
    KEYS.signed_time(5),
    KEYS.signed_table(MEASURED.measure_tables[1]),
    encode_roots([KEYS.root_envelope()]),
    MEASURED.measure_tables[1].encode(),
    *(bytes.fromhex(path.read_text()) for path in sorted(GOLDEN.glob("*.hex"))),
    *(path.read_bytes().rstrip() for path in sorted(GOLDEN.parent.glob("reports/*.json"))),
]


FRAMES = {seed for seed in SEEDS if seed[0] < 32}
"""Of msgpack, after their first byte."""
STRANGE = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**53 + 1,
    2**63,
    -(2**63),
    0.5,
    float("nan"),
    b"",
    b"\0" * 33,
    "",
    "x" * 300,
    [],
    [[]],
    {},
)


def mutated(seed: bytes, generator: random.Random) -> bytes:
    """A frame with other bytes, or one in which a value is another; the latter only of msgpack."""
    if seed in FRAMES and generator.random() < 0.5:
        values = msgpack.unpackb(seed[1:], strict_map_key=False)
        return seed[:1] + msgpack.packb(changed(values, generator))
    return garbled(seed, generator)


def changed(value: Any, generator: random.Random) -> Any:
    """Some value within a value, or the value itself, is another; a list may be shorter or longer."""
    if not isinstance(value, list) or not value or generator.random() < 0.1:
        return generator.choice(STRANGE)
    value, place = list(value), generator.randrange(len(value))
    match generator.randrange(8):
        case 0:
            del value[place]
        case 1:
            value.insert(place, generator.choice(STRANGE))
        case _:
            value[place] = changed(value[place], generator)
    return value


def garbled(seed: bytes, generator: random.Random) -> bytes:
    """Some bytes changed, put in, taken away or repeated."""
    data = bytearray(seed)
    for _ in range(generator.choice((1, 1, 1, 2, 4, 16))):
        place = generator.randrange(len(data) + 1)
        match generator.randrange(4):
            case 0 if place < len(data):
                data[place] ^= 1 << generator.randrange(8)
            case 1:
                data[place:place] = generator.randbytes(generator.choice((1, 2, 8)))
            case 2:
                del data[place : place + generator.choice((1, 2, 8, 100))]
            case _:
                data[place:place] = data[place : place + generator.choice((1, 10, 100))]
    return bytes(data)
