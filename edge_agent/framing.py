"""What was drawn for consecutive ticks becomes the bytes of a frame."""

from __future__ import annotations

from collections.abc import Sequence

from contract.frames import SymbolFrame, encode_symbols
from contract.measure_frames import MeasureFrame, Released, encode_measure, pack_released, unpack_released

__all__ = ["framed", "stored"]


def stored(drawn: int | Released) -> int | bytes:
    """A tick's symbol, or released point, as the outbox keeps it until its frame is full."""
    return drawn if isinstance(drawn, int) else pack_released(drawn)


def framed(version: int, previous: int, first: int, kept: Sequence[int | bytes], ticks: int, bits: int) -> bytes:
    """Bytes of a frame.

    Args:
        version: of the policy that the ticks were drawn under.
        previous: last tick of the frame before.
        first: tick of `kept[0]`.
        kept: what the outbox kept for each tick; at least one.
        ticks: of a full frame of that policy; what this one is filled up to.
        bits: that a symbol takes in the frames of that policy.
    """
    padding = ticks - len(kept)
    symbols = bytes(one for one in kept if isinstance(one, int))
    if symbols:
        return encode_symbols(SymbolFrame(version, previous, first, symbols, padding, bits))
    points = tuple(unpack_released(one) for one in kept if isinstance(one, bytes))
    return encode_measure(MeasureFrame(version, previous, first, len(points[0].point), points, padding))
