"""What was drawn for consecutive ticks becomes the bytes of a frame."""

from __future__ import annotations

from collections.abc import Sequence

from contract.frames import ABSENT, SymbolFrame, encode_symbols
from contract.measure_frames import (
    MAX_MEASURE_TICKS,
    MeasureFrame,
    Released,
    encode_measure,
    pack_released,
    unpack_released,
)

__all__ = ["framed", "stored"]


def stored(drawn: int | Released) -> int | bytes:
    """A tick's symbol, or released point, as the outbox keeps it until its frame is full."""
    return drawn if isinstance(drawn, int) else pack_released(drawn)


def framed(version: int, previous: int, first: int, kept: Sequence[int | bytes | None], ticks: int) -> bytes:
    """Bytes of a frame.

    Args:
        version: of the policy that the ticks were drawn under.
        previous: last tick of the frame before.
        first: tick of `kept[0]`.
        kept: what the outbox kept for each tick; none where the device was not running. At least one is there.
        ticks: what the frame is filled up to, as far as a frame of its kind goes: they may be those of another policy.
    """
    padding = max(0, ticks - len(kept))
    if any(isinstance(one, bytes) for one in kept):
        points = [unpack_released(one) if isinstance(one, bytes) else None for one in kept]
        dimensions = next(len(one.point) for one in points if one is not None)
        padding = min(padding, MAX_MEASURE_TICKS - len(kept))
        return encode_measure(MeasureFrame(version, previous, first, dimensions, tuple(points), padding))
    symbols = bytes(one if isinstance(one, int) else ABSENT for one in kept)
    return encode_symbols(SymbolFrame(version, previous, first, symbols, padding))
