"""Which streams have something new to tell, and what: the newest frame of each, whatever came before it.

A live subscriber needs what is newest. So of each stream one frame waits, and the streams take turns. What was told,
and that the broker has it, is stored with what is sealed: after a crash the newest is told again where that is not
known, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, repeat
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.contract.errors import FuguError
from fugu.contract.reports import StateEstimate
from gateway.service.kinds.kind import Place
from gateway.service.kinds.reporting import state_estimate
from gateway.service.kinds.symbol_model import SymbolModel, told
from gateway.service.policies import Catalogue
from gateway.service.symbols.beliefs import look_back
from gateway.service.symbols.columns import Columns
from gateway.service.symbols.past import Past

__all__ = ["Fresh", "Reports"]


class Fresh(NamedTuple):
    """Rows that have come together, and (n, k) the distributions of their first ticks."""

    columns: Columns
    distributions: Floats


class Report(NamedTuple):
    """What is to be told of a stream.

    Attributes:
        place: whose it is.
        tick: the newest one.
        estimate: none if it cannot be said.
        refused: why not.
    """

    place: Place
    tick: int
    estimate: StateEstimate | None
    refused: FuguError | None = None


class Reports:
    """What waits.

    Args:
        past: for the models.
        lag: ticks of later symbols that estimates see.
        unread: streams that may have something to tell from before the start.
        look_up: finds the newest frame of a stream in the store, as a single row, none if there is none.
        place: of a stream's number.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        past: Past,
        lag: int,
        unread: Iterable[int],
        look_up: Callable[[int], Fresh | None],
        place: Callable[[int], Place],
    ) -> None:
        self._catalogue = catalogue
        self._past = past
        self._lag = lag
        self._unread = dict.fromkeys(unread)
        self._look_up = look_up
        self._place = place
        self._waiting: dict[int, tuple[Fresh, int]] = {}
        self._acknowledged: dict[int, int] = {}
        self._coalesced = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._unread)

    def put(self, fresh: Fresh, numbers: list[int], rows: list[int], frames: int) -> None:
        """Some streams have newest frames.

        Args:
            numbers, rows: the streams, each once, and the row of each.
            frames: how many have come, of which these are the newest.
        """
        before = len(self._waiting)
        self._waiting.update(zip(numbers, zip(repeat(fresh), rows), strict=False))
        self._coalesced += frames - (len(self._waiting) - before)
        if self._unread:
            again = self._unread.keys() & set(numbers)
            self._coalesced += len(again)
            self._unread = {number: None for number in self._unread if number not in again}

    def put_again(self, number: int) -> None:
        """What was told of a stream may not have come through."""
        if number not in self._waiting:
            self._unread[number] = None

    def acknowledged(self, number: int, tick: int) -> None:
        """The broker has what was told of a stream up to a tick."""
        self._acknowledged[number] = max(tick, self._acknowledged.get(number, -1))

    @property
    def known(self) -> dict[int, int]:
        """What the broker has, by stream, since the last seal."""
        return self._acknowledged

    def sealed(self) -> None:
        """What is known is written down, and no more is needed of the columns than the rows that wait."""
        self._acknowledged = {}
        for (columns, distributions), numbers, rows in self._groups(self._waiting):
            few = Fresh(columns.take(rows), distributions[rows])
            self._waiting.update((number, (few, row)) for row, number in enumerate(numbers))

    def take_coalesced(self) -> int:
        """How many frames are not told because a newer one of their stream is, since this was asked last."""
        found, self._coalesced = self._coalesced, 0
        return found

    def take(self, capacity: int) -> list[Report]:
        """Remove so many, in the order in which their streams changed first."""
        while self._unread and len(self._waiting) < capacity:
            number = next(iter(self._unread))
            if (found := self._look_up(number)) is not None:
                self._waiting[number] = found, 0
            self._unread.pop(number, None)
        taken = {number: self._waiting.pop(number) for number in [*islice(self._waiting, max(capacity, 0))]}
        made: list[Report] = []
        for (columns, distributions), numbers, rows in self._groups(taken):
            places, some = [self._place(number) for number in numbers], columns.take(rows)
            models = [self._model(*one) for one in zip(places, some.version.tolist(), strict=True)]
            wide = np.zeros((len(rows), self._past.bank.states))
            wide[:, : distributions.shape[1]] = distributions[rows]
            shares, now = look_back(self._past.bank.arrays, np.array(models), some, wide, self._lag)
            made += [self._report(place, some, row, shares[row], now[row]) for row, place in enumerate(places)]
        return made

    @staticmethod
    def _groups(waiting: dict[int, tuple[Fresh, int]]) -> list[tuple[Fresh, list[int], Ints]]:
        """What waits by what it came with: the streams, and the row of each."""
        groups: dict[int, tuple[Fresh, list[int], list[int]]] = {}
        for number, (fresh, row) in waiting.items():
            _, numbers, rows = groups.setdefault(id(fresh), (fresh, [], []))
            numbers.append(number)
            rows.append(row)
        return [(fresh, numbers, np.array(rows, dtype=np.int64)) for fresh, numbers, rows in groups.values()]

    def _model(self, place: Place, version: int) -> int:
        return self._past.model(place.device, place.stream, version)

    def _report(self, place: Place, some: Columns, row: int, shares: Floats, now: Floats) -> Report:
        version, shift, first, count = (
            int(column[row]) for column in (some.version, some.shift, some.first, some.ticks)
        )
        known = self._catalogue.recall(place.device, place.stream, version, SymbolModel)
        states = len(known.numbers.initial)
        shares, now = (told(known.numbers, each[:states]) for each in (shares, now))
        last = first + count - 1
        try:
            return Report(place, last, state_estimate(known.policy, first, last, shift, shares, now))
        except FuguError as error:
            return Report(place, last, None, error)
