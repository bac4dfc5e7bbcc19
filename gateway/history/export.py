"""A gateway's store and ledger as Parquet files, day by day, whatever their size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np

from contract.instants import LAST_US, instant, unix_us
from contract.policy_header import Clock
from contract.release_frames import decode_release
from gateway.history.estimates import Estimated, LaggedEstimates
from gateway.history.folder import ParquetFolder, parquet_folder
from gateway.history.pieces import DAY_US, HistoryError, Piece, Span, SymbolStream
from gateway.history.rows import (
    marginal_rows,
    measurement_rows,
    point_rows,
    policy_rows,
    release_rows,
    symbol_rows,
    window_rows,
)
from gateway.history.stored import MeasuredStream, StoredHistory, stored_history
from gateway.location import Location
from gateway.release.ledger import Ledger
from gateway.service.release_setup import ledger_beside

__all__ = ["Span", "export_history"]

_MOST_ENTRIES = 1_000
_PAGE = 1 << 18
Told = Callable[..., None]


def export_history(
    store: Location, ledger: Path | None, span: Span, folder: Path, *, lag: int = 8, told: Told = lambda *_: None
) -> dict[str, int]:
    """Write what a gateway has stored and released to a new folder of Parquet files.

    Args:
        store: of the gateway, which may be running: one state of it is read.
        ledger: of its releases; if not given, the one beside the store, if it is a file and there is one.
        span: of wall-clock time; what lies inside is written.
        folder: must not exist, or be empty; it is there when it is complete.
        lag: ticks of later symbols or points that estimates see.
        told: called with the date that is begun, and the share of the dates that is done.

    Returns:
        How many rows each table has.

    Raises:
        FuguError: there is no such store or ledger, nothing in it is of that time, or the folder cannot be written.
    """
    with stored_history(store) as history, parquet_folder(folder) as made:
        days = _Days(history, made, span, lag)
        day: int | None = span.since
        begin = max(span.since, history.next_time(0) or 0)
        while day is not None and day < span.until:
            day -= day % DAY_US
            told(_date(day), min(max(day - begin, 0) / max(span.until - begin, 1), 1.0))
            day = day + DAY_US if days.write(day) else history.next_time(day + DAY_US)
        days.finish()
        if ledger is None and isinstance(store, Path) and ledger_beside(store).exists():
            ledger = ledger_beside(store)
        if ledger is not None:
            told("releases", 1.0)
            _put_releases(made, ledger, span)
        if not any(made.rows.values()):
            raise HistoryError(f"{store.name} holds nothing of that time")
        made.add("policies", policy_rows(history.policies()))
        return dict(made.rows)


class _Days:
    """Everything of a store, one day after another."""

    def __init__(self, history: StoredHistory, made: ParquetFolder, span: Span, lag: int) -> None:
        self._history = history
        self._made = made
        self._span = span
        self._lag = lag
        self._estimates: dict[tuple[str, str], _StreamEstimates] = {}

    def write(self, day: int) -> bool:
        """Write what is of a day that begins at a time; returns whether there was anything."""
        span = self._span.day(day)
        before = sum(self._made.rows.values())
        for stream in self._history.streams():
            self._symbols(stream, span)
        for measured in self._history.measured():
            self._points(measured, span)
        for sequence in self._history.windows():
            self._made.add("windows", window_rows(sequence, self._history.counts(sequence, span)))
        return sum(self._made.rows.values()) > before

    def finish(self) -> None:
        """Write the estimates that wait for symbols after the end."""
        for estimates in self._estimates.values():
            self._tell(estimates.stream, estimates.finish(self._span.until))

    def _symbols(self, stream: SymbolStream, span: Span) -> None:
        key = stream.device, stream.stream
        if (estimates := self._estimates.get(key)) is None:
            estimates = self._estimates[key] = _StreamEstimates(self._history, stream, self._lag)
            longest = max(policy.clock.period_us for policy in stream.policies.values())
            before = Span(max(self._span.since - self._lag * longest, 0), self._span.since)
            for piece in self._history.pieces(stream, before):  # a short gap may lie between them and the span
                estimates.extend(piece, tell=False)
        for pieces in _gathered(self._history.pieces(stream, span)):
            self._made.add("symbols", symbol_rows(stream, pieces))
            for piece in _joined(pieces):
                self._tell(stream, estimates.extend(piece, tell=True))
        self._tell(stream, estimates.settle(span.until))

    def _tell(self, stream: SymbolStream, estimated: Iterable[Estimated]) -> None:
        for one in estimated:
            low, high = self._span.walls(stream.policy(one.version).clock)
            self._made.add("estimates", marginal_rows("estimates", stream, one.cut(low + one.shift, high + one.shift)))

    def _points(self, stream: MeasuredStream, span: Span) -> None:
        for frame in self._history.points(stream, span):
            policy = stream.policies[frame.policy_version]
            self._made.add("points", point_rows(policy, frame))
            for some in self._history.measurements(stream, frame, self._lag):
                self._made.add("measurements", measurement_rows(policy, some))


class _StreamEstimates:
    """The estimates of one stream, whose clock may be set: what comes after that knows nothing of before."""

    def __init__(self, history: StoredHistory, stream: SymbolStream, lag: int) -> None:
        self.stream = stream
        self._history = history
        self._lag = lag
        self._parts: dict[tuple[Clock, int], LaggedEstimates] = {}

    def extend(self, piece: Piece, *, tell: bool) -> list[Estimated]:
        """As `LaggedEstimates.extend`."""
        key = self.stream.policy(piece.version).clock, piece.shift
        if key not in self._parts:
            self._parts[key] = LaggedEstimates(self.stream, self._lag, partial(self._history.law, self.stream))
        return self._parts[key].extend(piece, tell=tell)

    def settle(self, time: int) -> Iterator[Estimated]:
        """What waits for no symbol from a time on."""
        for (clock, shift), part in self._parts.items():
            if part.waiting is not None and part.waiting + self._lag < Span(time, LAST_US).walls(clock)[0] + shift:
                yield from part.flush()

    def finish(self, time: int) -> Iterator[Estimated]:
        """What waits, with the symbols from a time on that it waits for."""
        for (clock, shift), part in self._parts.items():
            if part.waiting is not None:
                for piece in self._history.pieces(self.stream, Span(time, time + self._lag * clock.period_us)):
                    if self.stream.policy(piece.version).clock == clock and piece.shift == shift:
                        yield from part.extend(piece)
                yield from part.flush()


def _gathered(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    """Pieces by the page."""
    page, count = list[Piece](), 0
    for piece in pieces:
        page.append(piece)
        count += len(piece.symbols)
        if count >= _PAGE:
            yield page
            page, count = [], 0
    if page:
        yield page


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The same with pieces put together that follow one another."""
    some: list[Piece] = []
    for piece in pieces:
        if some and (some[-1].version, some[-1].shift, some[-1].last + 1) != (piece.version, piece.shift, piece.first):
            yield some[0]._replace(symbols=np.concatenate([one.symbols for one in some]))
            some = []
        some.append(piece)
    if some:
        yield some[0]._replace(symbols=np.concatenate([one.symbols for one in some]))


def _put_releases(made: ParquetFolder, ledger: Path, span: Span) -> None:
    """Write what was published of windows that end in a span of time; each value is a row."""
    with closing(Ledger(ledger, create=False)) as opened:
        after = 0
        made.add("releases", release_rows(()))
        while entries := opened.entries(after, _MOST_ENTRIES):
            after = entries[-1].number
            frames = (decode_release(entry.payload) for entry in entries if entry.state == "published")
            inside = (frame for frame in frames if span.since <= unix_us(frame.time) - 1 < span.until)
            made.add("releases", release_rows(inside))


def _date(day: int) -> str:
    return instant(day).date().isoformat()
