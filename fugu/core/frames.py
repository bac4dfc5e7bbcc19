"""Frames, byte for byte those of the agent (docs/protocol.md)."""

import struct

from .policy import Window

__all__ = ["pack_symbols", "symbol_frame", "window_frame"]


def pack_symbols(symbols: bytearray, bits: int, size: int) -> bytes:
    """Symbols of some bits each, the first in the highest, in so many bytes."""
    packed = bytearray(size)
    each = 8 // bits
    for i in range(len(symbols)):
        packed[i // each] |= symbols[i] << (8 - bits - bits * (i % each))
    return bytes(packed)


def symbol_frame(
    version: int, shift: int, previous: int, first: int, symbols: bytearray, ticks: int, bits: int
) -> bytes:
    """A frame of symbols of consecutive ticks, filled up to so many ticks."""
    count = len(symbols)
    size = -(-ticks * bits // 8)
    head = struct.pack(">BBBIBqBqBq", 1, 0x98, 0xCE, version, 0xD3, shift, 0xD3, previous, 0xD3, first)
    tail = struct.pack(">BBBHBHBH", 0xCC, bits, 0xCD, count, 0xCD, ticks - count, 0xC5, size)
    return head + tail + pack_symbols(symbols, bits, size)


def window_frame(
    version: int, shift: int, window: Window, previous: int, index: int, observed: int, counts: list[int]
) -> bytes:
    """A frame of the noisy counts of a window."""
    name = window.name.encode()
    first = window.first(index)
    frame = struct.pack(">BBBIBqBB", 5, 0x99, 0xCE, version, 0xD3, shift, 0xD9, len(name)) + name
    frame += struct.pack(">BqBqBqBIBI", 0xD3, previous, 0xD3, index, 0xD3, first, 0xCE, window.length, 0xCE, observed)
    frame += struct.pack(">BH", 0xDC, len(counts))
    for count in counts:
        frame += struct.pack(">Bq", 0xD3, count)
    return frame
