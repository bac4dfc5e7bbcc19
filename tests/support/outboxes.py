"""Frames of an outbox, decoded, and whether a watermark covers one."""

from __future__ import annotations

from collections.abc import Iterator

from edge_agent.outbox import Outbox
from fugu.contract.frames import StreamCommit, SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame


def is_committed(commit: StreamCommit, frame: SymbolFrame) -> bool:
    """True if a watermark says that a frame is durable: it reaches beyond it, and no gap overlaps it."""
    missing = any(gap.after < frame.last and gap.through > frame.previous for gap in commit.gaps)
    return frame.last <= commit.through and not missing


def symbol_frames(outbox: Outbox) -> list[SymbolFrame]:
    return [SymbolFrame.decode(payload) for payload in _payloads(outbox, SymbolFrame.SCHEMA)]


def measure_frames(outbox: Outbox) -> list[MeasureFrame]:
    return [MeasureFrame.decode(payload) for payload in _payloads(outbox, MeasureFrame.SCHEMA)]


def window_frames(outbox: Outbox) -> list[WindowFrame]:
    return [WindowFrame.decode(payload) for payload in _payloads(outbox, WindowFrame.SCHEMA)]


def _payloads(outbox: Outbox, schema: int) -> Iterator[bytes]:
    number = 0
    while (batch := outbox.frames.next(number)) is not None:
        number, _, payload = batch
        if payload[0] == schema:
            yield payload
