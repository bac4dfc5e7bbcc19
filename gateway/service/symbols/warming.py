"""Compiles the kernels that a round needs, so that the first frame does not wait for it."""

from __future__ import annotations

import numpy as np

from fugu.chains.model import likelihood_rows
from fugu.contract.frames import SymbolFrame
from fugu.contract.policy import Clock
from gateway.service.kinds.symbol_model import Model
from gateway.service.symbols.bank import Bank
from gateway.service.symbols.beliefs import Beliefs, follow, look_back
from gateway.service.symbols.order import MARKS, following
from gateway.service.symbols.parser import parse
from gateway.service.symbols.sealing import cut
from gateway.service.symbols.streams import Streams

__all__ = ["warm"]


def warm() -> None:
    """Take a frame that nobody has sent through all of them; what they are compiled for does not depend on models."""
    columns, read = parse([SymbolFrame(1, -1, 0, bytes(3)).encode()])
    streams, none = Streams(), np.zeros(1, dtype=np.int64)
    streams.follow("", streams.slot("", ""), 1, 2, Clock(epoch_us=0, period_us=1_000))
    streams.passing(none, columns, read, 1)
    following(none, columns, none, np.zeros((1, MARKS), dtype=np.int64))
    bank, table = Bank(), np.full((2, 2), 0.5)
    bank.index(Model(table, table, likelihood_rows(table), table[0], None))
    columns = columns.take(none)
    firsts = follow(Beliefs.unknown(1, bank.states), bank.arrays, none, none, columns, none)
    look_back(bank.arrays, none, columns, firsts, 1)
    list(cut(columns, 1, 1))
