"""What has come in a round, checked: frames of symbols as columns, other frames as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Ints
from fugu.contract.frames import SymbolFrame
from gateway.service.kinds.kind import AnyFrame
from gateway.service.symbols.columns import Columns
from gateway.service.symbols.streams import Streams

__all__ = ["Arrivals", "Heard", "Received"]


class Received(NamedTuple):
    """A frame that may be stored."""

    device: str
    stream: str
    frame: AnyFrame


class Heard(NamedTuple):
    """The newest frame of a stream in a round: its policy version, last tick and shift."""

    device: str
    stream: str
    version: int
    last: int
    shift: int


class Arrivals(NamedTuple):
    """Frames that may be stored.

    Attributes:
        slots: (n,) of each row of `symbols` its stream.
        symbols: in the order in which they came.
        others: frames of points and windows.
    """

    slots: Ints
    symbols: Columns
    others: list[Received]

    @classmethod
    def of(cls, streams: Streams, received: Iterable[Received]) -> Arrivals:
        """Frames one by one."""
        some = list(received)
        symbols = [(streams.slot(one.device, one.stream), one.frame) for one in some if _has_symbols(one)]
        rows = [(0, frame) for _, frame in symbols if isinstance(frame, SymbolFrame)]
        slots = np.array([slot for slot, _ in symbols], dtype=np.int64)
        return cls(slots, Columns.of(rows), [one for one in some if not _has_symbols(one)])

    @property
    def frames(self) -> int:
        """How many there are."""
        return self.symbols.rows + len(self.others)

    def halves(self) -> tuple[Arrivals, Arrivals]:
        """Two parts, each with some of them if there are two or more."""
        rows, others = self.symbols.rows, self.others
        low = rows // 2 if others else (rows + 1) // 2
        first = Arrivals(self.slots[:low], self.symbols.take(np.arange(low)), others[: (len(others) + 1) // 2])
        rest = self.symbols.take(np.arange(low, rows))
        return first, Arrivals(self.slots[low:], rest, others[(len(others) + 1) // 2 :])

    def newest(self, streams: Streams) -> Iterator[Heard]:
        """Of each stream the frame that ends last."""
        last = self.symbols.last
        order = np.lexsort((last, self.slots))
        ends = np.flatnonzero(np.diff(self.slots[order], append=-1))
        rows = order[ends]
        found = (self.slots[rows], self.symbols.version[rows], last[rows], self.symbols.shift[rows])
        for slot, version, tick, shift in zip(*(column.tolist() for column in found), strict=True):
            device, stream = streams.names[slot]
            yield Heard(device, stream, version, tick, shift)
        for device, stream, frame in self.others:
            yield Heard(device, stream, frame.policy_version, frame.last, frame.shift)


def _has_symbols(one: Received) -> bool:
    return isinstance(one.frame, SymbolFrame)
