"""What an outbox keeps, decoded."""

from __future__ import annotations

from collections.abc import Iterator

from edge_agent.outbox import Outbox
from fugu.contract.frames import SYMBOLS, SymbolFrame, decode_symbols
from fugu.contract.measure_frames import MEASURE, MeasureFrame, decode_measure
from fugu.contract.window_frames import WINDOW, WindowFrame, decode_window


def symbol_frames(outbox: Outbox) -> list[SymbolFrame]:
    """All symbol frames, oldest first."""
    return [decode_symbols(payload) for payload in _payloads(outbox, SYMBOLS)]


def measure_frames(outbox: Outbox) -> list[MeasureFrame]:
    """All frames of points, oldest first."""
    return [decode_measure(payload) for payload in _payloads(outbox, MEASURE)]


def window_frames(outbox: Outbox) -> list[WindowFrame]:
    """All window frames, oldest first."""
    return [decode_window(payload) for payload in _payloads(outbox, WINDOW)]


def _payloads(outbox: Outbox, schema: int) -> Iterator[bytes]:
    number = 0
    while (found := outbox.next_frame(number)) is not None:
        number, _, payload = found
        if payload[0] == schema:
            yield payload
