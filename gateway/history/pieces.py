"""Symbols of a stream as arrays, wherever they are kept: runs of consecutive ticks under one policy and one clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Ints
from fugu.contract.errors import FuguError
from fugu.contract.instants import LAST_US
from fugu.contract.policy import Policy
from fugu.contract.policy_header import Clock
from gateway.service.kinds.symbol_model import Model, model_of

__all__ = ["ALWAYS", "DAY_US", "History", "HistoryError", "Piece", "Span", "SymbolStream", "tick_times"]

Bytes = NDArray[np.uint8]


DAY_US = 86_400_000_000


class HistoryError(FuguError):
    """A history cannot be read or written, or holds nothing of what was asked for; one line that says why."""


class Span(NamedTuple):
    """A stretch of wall-clock time, in microseconds of Unix time: since <= time < until."""

    since: int
    until: int

    def day(self, day: int) -> Span:
        """What of it is in a day that begins at a time."""
        return Span(max(day, self.since), min(day + DAY_US, self.until))

    def walls(self, clock: Clock) -> tuple[int, int]:
        """The first and the last wall tick of a clock inside; the last is below the first if there is none."""
        low = -((clock.epoch_us - self.since) // clock.period_us)
        return max(low, 0), -((clock.epoch_us - self.until) // clock.period_us) - 1


ALWAYS = Span(0, LAST_US)


class Piece(NamedTuple):
    """Symbols of consecutive ticks.

    Attributes:
        version: of the policy that they were drawn under.
        first: tick of the first symbol.
        shift: by how many ticks the numbers are ahead of the wall clock.
        symbols: (n,).
    """

    version: int
    first: int
    shift: int
    symbols: Bytes

    @property
    def last(self) -> int:
        """Tick of the last symbol."""
        return self.first + len(self.symbols) - 1

    def cut(self, first: int, last: int) -> Piece:
        """Only the ticks from one to another."""
        low = max(first - self.first, 0)
        return self._replace(first=self.first + low, symbols=self.symbols[low : max(last - self.first + 1, low)])


class SymbolStream(NamedTuple):
    """A stream of symbols, and the policies that it has had, by version."""

    device: str
    stream: str
    policies: Mapping[int, Policy]

    def policy(self, version: int) -> Policy:
        """The policy of a version.

        Raises:
            HistoryError: it is not known.
        """
        if (found := self.policies.get(version)) is None:
            raise HistoryError(f"policy version {version} of {self.device}/{self.stream} is not there")
        return found

    def model(self, version: int) -> Model:
        """The numbers to estimate with under a version; errors as above."""
        return model_of(self.policy(version))


class History(Protocol):
    """Where symbols are kept: a gateway's store, or files that were exported from one."""

    def streams(self) -> list[SymbolStream]:
        """Every stream of symbols, by device and name."""
        ...

    def days(self, stream: SymbolStream, span: Span) -> list[int]:
        """The days, by their beginnings, that may hold symbols of a stream in a span of time."""
        ...

    def pieces(self, stream: SymbolStream, span: Span) -> Iterator[Piece]:
        """The symbols of a stream in a span of time, in tick order but for where its clock was set or changed.

        Whoever reads many streams reads them day by day: they may lie side by side.
        """
        ...


def tick_times(clock: Clock, first: int, shift: int, ticks: int) -> Ints:
    """When consecutive ticks were, (ticks,) microseconds of Unix time."""
    begin = clock.epoch_us + (first - shift) * clock.period_us
    return begin + clock.period_us * np.arange(ticks, dtype=np.int64)
