"""A gateway's store and ledger as Parquet files, day by day, whatever their size."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path

from fugu.contract.reports import ReleaseFrame
from fugu.contract.sentences import instant, unix_us
from gateway.history.parquet import ParquetFolder, parquet_folder
from gateway.history.stored import DAY_US, HistoryError, Span, StoredHistory, stored_history
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
from gateway.releases.entries import KIND
from gateway.releases.ledger import Ledger, ledger_beside
from gateway.store.engine import is_there

__all__ = ["export_history"]


_MOST_ENTRIES = 1_000
_MOST_PIECES = 64
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
        day: int | None = span.since
        begin = max(span.since, history.next_time(0) or 0)
        while day is not None and day < span.until:
            day -= day % DAY_US
            told(instant(day).date().isoformat(), min(max(day - begin, 0) / max(span.until - begin, 1), 1.0))
            day = day + DAY_US if _day(history, made, span.day(day), lag) else history.next_time(day + DAY_US)
        if (ledger := ledger or _known_ledger(store)) is not None:
            told("releases", 1.0)
            _put_releases(made, ledger, span)
        if not any(made.rows.values()):
            raise HistoryError(f"{store.name} holds nothing of that time")
        made.add("policies", policy_rows(history.policies()))
        return dict(made.rows)


def _known_ledger(store: Location) -> Location | None:
    """The same, if there is one. Raises LedgerError if its server does not say."""
    beside = ledger_beside(store)
    return beside if is_there(beside, KIND) else None


def _day(history: StoredHistory, made: ParquetFolder, span: Span, lag: int) -> bool:
    """Write what is of a span within a day; returns whether there was anything."""
    before = sum(made.rows.values())
    for stream in history.streams():
        pieces = history.pieces(stream, span)
        while some := list(islice(pieces, _MOST_PIECES)):
            made.add("symbols", symbol_rows(stream, some))
        for run in history.estimates(stream, span, lag):
            made.add("estimates", marginal_rows("estimates", stream, run))
    for measured in history.measured():
        for frame in history.points(measured, span):
            policy = measured.policies[frame.policy_version]
            made.add("points", point_rows(policy, frame))
            for estimates in history.measurements(measured, frame, lag):
                made.add("measurements", measurement_rows(policy, estimates))
    for sequence in history.windows():
        made.add("windows", window_rows(sequence, history.counts(sequence, span)))
    return sum(made.rows.values()) > before


def _put_releases(made: ParquetFolder, ledger: Location, span: Span) -> None:
    with closing(Ledger(ledger, create=False)) as opened:
        after = 0
        made.add("releases", release_rows(()))
        while entries := opened.entries(after, _MOST_ENTRIES):
            after = entries[-1].number
            frames = (ReleaseFrame.decode(entry.payload) for entry in entries if entry.state == "published")
            inside = (frame for frame in frames if span.since <= unix_us(frame.time) - 1 < span.until)
            made.add("releases", release_rows(inside))
