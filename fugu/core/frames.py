"""Frames of symbols and of windows, byte for byte (docs/protocol.md).

All frames of a stream have one size, whatever the numbers in them, and so have all frames of a window. Integers are
written in msgpack's widest forms: 0xcc, 0xcd, 0xce: 8, 16, 32 bits unsigned, 0xd3: 64 bits signed, 0xc5: byte string of
16-bit length, 0xd9: string of 8-bit length, 0xdc: array of 16-bit length.
"""

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COUNT_HIGH", "COUNT_LOW", "symbol_frame", "window_frame"]

COUNT_LOW, COUNT_HIGH = -(1 << 63), (1 << 63) - 1


def symbol_frame(
    version: int, shift: int, previous_tick: int, first_tick: int, symbols: "Sequence[int]", ticks: int, bits: int
) -> bytes:
    """Encode a frame of symbols from `first_tick` on, padded to `ticks`, after the frame to `previous_tick`.

    Each symbol takes `bits` bits, the first symbol the highest of the first byte.
    """
    symbol_count, per_byte = len(symbols), 8 // bits
    size = -(-ticks * bits // 8)
    packed = bytearray(size)
    for index in range(symbol_count):
        packed[index // per_byte] |= symbols[index] << (8 - bits - bits * (index % per_byte))
    head = struct.pack(">BBBIBqBqBq", 1, 0x98, 0xCE, version, 0xD3, shift, 0xD3, previous_tick, 0xD3, first_tick)
    tail = struct.pack(">BBBHBHBH", 0xCC, bits, 0xCD, symbol_count, 0xCD, ticks - symbol_count, 0xC5, size)
    return head + tail + bytes(packed)


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
    """Encode a window's noisy counts; `ticks` are its first tick and length, `previous` the last framed index."""
    window = name.encode()
    frame = struct.pack(">BBBIBqBB", 5, 0x99, 0xCE, version, 0xD3, shift, 0xD9, len(window)) + window
    frame += struct.pack(">BqBqBqBIBI", 0xD3, previous, 0xD3, index, 0xD3, ticks[0], 0xCE, ticks[1], 0xCE, observed)
    frame += struct.pack(">BH", 0xDC, len(counts))
    for count in counts:
        frame += struct.pack(">Bq", 0xD3, count)
    return frame
