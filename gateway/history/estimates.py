"""Estimates of states from arrays of symbols, as the gateway makes them: each tick with the symbols some ticks later.

Symbols of consecutive ticks under one model are one stretch. A new one begins where as many ticks are missing as
estimates look ahead, and where the model changes: the belief carries over if the states and the clock mean the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gateway.chain.arrays import Floats, Ints
from gateway.history.pieces import Bytes, Piece, SymbolStream
from gateway.service.kinds.symbol_model import filtered, fixed_lag, prior, smoothed

__all__ = ["Estimated", "LaggedEstimates"]


class Estimated(NamedTuple):
    """Probabilities (n, s) of the states at consecutive ticks.

    Attributes:
        version: of the policy whose states they are.
        first: tick of the first row.
        shift: by how many ticks the numbers are ahead of the wall clock.
    """

    version: int
    first: int
    shift: int
    beliefs: Floats

    def cut(self, first: int, last: int) -> Estimated:
        """Only the ticks from one to another."""
        low = max(first - self.first, 0)
        return self._replace(first=self.first + low, beliefs=self.beliefs[low : max(last - self.first + 1, low)])


class LaggedEstimates:
    """Estimates of one stream, as its pieces come in tick order; what is held meanwhile are `lag` symbols.

    Args:
        stream: whose symbols they are.
        lag: ticks of later symbols that each estimate sees, as far as there are any.
        begin: the law (k,) of the first tick of the first piece.
    """

    def __init__(self, stream: SymbolStream, lag: int, begin: Callable[[Piece], Floats]) -> None:
        self._stream = stream
        self._lag = lag
        self._begin = begin
        self._version = self._shift = 0
        self._first = 0  # of what waits
        self._symbols: Ints = np.empty(0, dtype=np.int64)  # of ticks that are not told yet; -1 is unobserved
        self._law: Floats | None = None  # of the first tick that waits
        self._belief: Floats | None = None  # at the tick before it, once that was told

    @property
    def waiting(self) -> int | None:
        """The last tick whose symbol is here and not told, if there is one."""
        return self._first + len(self._symbols) - 1 if len(self._symbols) else None

    def extend(self, piece: Piece, *, tell: bool = True) -> list[Estimated]:
        """What the next piece, whose ticks come after all before, determines.

        Args:
            piece: of the same clock, which was not set meanwhile.
            tell: if not, it is only remembered.
        """
        told = []
        model = self._stream.model(piece.version)
        if self._law is None:
            law = self._begin(piece)
        else:
            gap = piece.first - self._first - len(self._symbols)
            if self._stream.model(self._version) is model and gap < max(self._lag, 1):
                return self._take(np.concatenate([self._symbols, np.full(gap, -1), piece.symbols]), self._lag, tell)
            told = self.flush()
            assert self._belief is not None
            carries = self._stream.model(self._version).meaning == model.meaning
            law = prior(model, self._belief, piece.first - self._first + 1) if carries else model.initial
        self._version, self._shift, self._first, self._law = piece.version, piece.shift, piece.first, law
        return told + self._take(piece.symbols, self._lag, tell)

    def flush(self) -> list[Estimated]:
        """What waits, without later symbols."""
        return self._take(self._symbols, 0, True) if len(self._symbols) else []

    def _take(self, given: Ints | Bytes, held: int, tell: bool) -> list[Estimated]:
        """Tell all but the last symbols of those that wait now."""
        assert self._law is not None
        symbols = np.asarray(given, dtype=np.int64)
        done = len(symbols) - held
        if done <= 0:
            self._symbols = symbols
            return []
        model = self._stream.model(self._version)
        found = []
        if tell:
            beliefs = (fixed_lag if held else smoothed)(model, self._law, symbols, self._lag)
            found = [Estimated(self._version, self._first, self._shift, beliefs)]
        self._belief = filtered(model, self._law, symbols[:done])[-1].copy()
        self._law = prior(model, self._belief, 1)
        self._first, self._symbols = self._first + done, symbols[done:].copy()
        return found
