"""A gateway's store and ledger as Parquet files, day by day, whatever their size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from fugu.contract.reports import ReleaseFrame
from fugu.contract.sentences import instant, unix_us
from gateway.history.parquet import ParquetFolder, parquet_folder
from gateway.history.stored import (
    DAY_US,
    HistoryError,
    MeasuredStream,
    Piece,
    Span,
    StoredHistory,
    SymbolStream,
    stored_history,
)
from gateway.history.tables import (
    marginal_rows,
    measurement_rows,
    point_rows,
    policy_rows,
    release_rows,
    symbol_rows,
    window_rows,
)
from gateway.location import Location
from gateway.releases.ledger import Ledger, known_ledger

__all__ = ["Span", "export_history"]

_MOST_ENTRIES = 1_000
_PAGE = 1 << 18
Told = Callable[..., None]


def export_history(
    store: Location, ledger: Location | None, span: Span, folder: Path, *, lag: int = 8, told: Told = lambda *_: None
) -> dict[str, int]:
    """Write what a gateway has stored and released to a new folder of Parquet files; how many rows each table has.

    Args:
        store: of the gateway, which may be running: one state of it is read.
        ledger: of its releases; if not given, the one beside the store, if there is one.
        span: of wall-clock time; what lies inside is written.
        folder: must not exist, or be empty; it is there when it is complete.
        lag: ticks of later symbols or points that estimates see.
        told: called with the date that is begun, and the share of the dates that is done.

    Raises FuguError if there is no such store or ledger, nothing is of that time, or the folder cannot be written.
    """
    with stored_history(store) as history, parquet_folder(folder) as made:
        days = _Days(history, made, span, lag)
        day: int | None = span.since
        begin = max(span.since, history.next_time(0) or 0)
        while day is not None and day < span.until:
            day -= day % DAY_US
            told(_date(day), min(max(day - begin, 0) / max(span.until - begin, 1), 1.0))
            day = day + DAY_US if days.write(day) else history.next_time(day + DAY_US)
        if (ledger := ledger or known_ledger(store)) is not None:
            told("releases", 1.0)
            _put_releases(made, ledger, span)
        if not any(made.rows.values()):
            raise HistoryError(f"{store.name} holds nothing of that time")
        made.add("policies", policy_rows(history.policies()))
        return dict(made.rows)


class _Days:
    def __init__(self, history: StoredHistory, made: ParquetFolder, span: Span, lag: int) -> None:
        self._history = history
        self._made = made
        self._span = span
        self._lag = lag

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

    def _symbols(self, stream: SymbolStream, span: Span) -> None:
        for pieces in _gathered(self._history.pieces(stream, span)):
            self._made.add("symbols", symbol_rows(stream, pieces))
        for run in self._history.estimates(stream, span, self._lag):
            self._made.add("estimates", marginal_rows("estimates", stream, run))

    def _points(self, stream: MeasuredStream, span: Span) -> None:
        for frame in self._history.points(stream, span):
            policy = stream.policies[frame.policy_version]
            self._made.add("points", point_rows(policy, frame))
            for some in self._history.measurements(stream, frame, self._lag):
                self._made.add("measurements", measurement_rows(policy, some))


def _gathered(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    page, count = list[Piece](), 0
    for piece in pieces:
        page.append(piece)
        count += len(piece.symbols)
        if count >= _PAGE:
            yield page
            page, count = [], 0
    if page:
        yield page


def _put_releases(made: ParquetFolder, ledger: Location, span: Span) -> None:
    with closing(Ledger(ledger, create=False)) as opened:
        after = 0
        made.add("releases", release_rows(()))
        while entries := opened.entries(after, _MOST_ENTRIES):
            after = entries[-1].number
            frames = (ReleaseFrame.decode(entry.payload) for entry in entries if entry.state == "published")
            inside = (frame for frame in frames if span.since <= unix_us(frame.time) - 1 < span.until)
            made.add("releases", release_rows(inside))


def _date(day: int) -> str:
    return instant(day).date().isoformat()
