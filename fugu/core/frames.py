"""Frames of symbols and of windows, byte for byte (docs/protocol.md).

All frames of a stream have one size, whatever the numbers in them, and so have those of a window. The integers are
written in msgpack's widest forms: 0xcc, 0xcd, 0xce: 8, 16, 32 bits unsigned, 0xd3: 64 bits signed, 0xc5: byte string of
16-bit length, 0xd9: string of 8-bit length, 0xdc: array of 16-bit length.
"""

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COUNT_HIGH", "COUNT_LOW", "pack_symbols", "symbol_frame", "window_frame"]

COUNT_LOW, COUNT_HIGH = -(1 << 63), (1 << 63) - 1


def pack_symbols(symbols: "Sequence[int]", bits: int, size: int) -> bytes:
    """Symbols of some bits each, the first in the highest, in so many bytes."""
    packed = bytearray(size)
    per_byte = 8 // bits
    for i in range(len(symbols)):
        packed[i // per_byte] |= symbols[i] << (8 - bits - bits * (i % per_byte))
    return bytes(packed)


def symbol_frame(
    version: int, shift: int, previous: int, first: int, symbols: "Sequence[int]", ticks: int, bits: int
) -> bytes:
    """A frame of symbols of consecutive ticks, filled up to so many ticks."""
    count = len(symbols)
    size = -(-ticks * bits // 8)
    head = struct.pack(">BBBIBqBqBq", 1, 0x98, 0xCE, version, 0xD3, shift, 0xD3, previous, 0xD3, first)
    tail = struct.pack(">BBBHBHBH", 0xCC, bits, 0xCD, count, 0xCD, ticks - count, 0xC5, size)
    return head + tail + pack_symbols(symbols, bits, size)


def window_frame(
    version: int,
    shift: int,
    name: str,
    ticks: tuple[int, int],
    previous: int,
    index: int,
    observed: int,
    counts: "Sequence[int]",
) -> bytes:
    """A frame of the noisy counts of a window; `ticks` are its first and how many it has."""
    window = name.encode()
    frame = struct.pack(">BBBIBqBB", 5, 0x99, 0xCE, version, 0xD3, shift, 0xD9, len(window)) + window
    frame += struct.pack(">BqBqBqBIBI", 0xD3, previous, 0xD3, index, 0xD3, ticks[0], 0xCE, ticks[1], 0xCE, observed)
    frame += struct.pack(">BH", 0xDC, len(counts))
    for count in counts:
        frame += struct.pack(">Bq", 0xD3, count)
    return frame
