"""Ticks that were drawn under each version of a stream's policy: from them follows since when a promise is true.

A row is an interval of ticks in a row. Only the first frame of an interval, and frames out of turn, change rows; the
last interval of a stream goes on to the last tick that is accounted for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fugu.contract.history import History, Noise, Span
from gateway.store.engine import Database

__all__ = ["Drawn", "Named", "Timeline", "VersionStore", "history_of"]

MOST_INTERVALS = 256
"""Of a stream, at most; beyond, the oldest are merged or forgotten."""


class Drawn(NamedTuple):
    """Ticks that were drawn under one version.

    Attributes:
        begin: no tick from there up to `first` was drawn, by the device's own word.
        absent: how many of the ticks first..last were not drawn, where the device does not say which.
    """

    first: int
    last: int
    version: int
    begin: int
    absent: int = 0


class Named(NamedTuple):
    """The version that a device names as its newest, and a tick at which it had it; `None` if no tick is known."""

    version: int
    first: int | None


class Timeline:
    """The intervals of one stream, in order; those of different versions overlap only where windows did.

    `stored` are the rows that the store has, by first tick and version.
    """

    def __init__(self, rows: Iterable[Drawn] = ()) -> None:
        self.rows = sorted(rows)
        self.stored = {(row.first, row.version): row for row in self.rows}

    def extend(self, end: int) -> None:
        """Let the last interval reach at least to a tick: frames that follow one another change no row."""
        if self.rows and self.rows[-1].last < end:
            self.rows[-1] = self.rows[-1]._replace(last=end)

    def add(self, ticks: Drawn) -> None:
        """Add an interval; what touches it under the same version becomes one with it."""
        low = bisect_left(self.rows, (ticks.first,))
        if low and _joins(self.rows[low - 1], ticks):
            low -= 1
        high = low
        while high < len(self.rows) and _joins(self.rows[high], ticks):
            other = self.rows[high]
            inside = ticks.first <= other.first and other.last <= ticks.last
            around = other.first <= ticks.first and ticks.last <= other.last
            absent = ticks.absent if inside else other.absent if around else ticks.absent + other.absent
            early = min(ticks, other)
            last = max(ticks.last, other.last)
            ticks = Drawn(early.first, last, ticks.version, min(early.begin, early.first), absent)
            high += 1
        self.rows[low:high] = [ticks]
        while len(self.rows) > MOST_INTERVALS:
            older, oldest = self.rows[1], self.rows[0]
            if older.version == oldest.version and not oldest.begin:  # nothing was before: how many ticks is no matter
                self.rows[:2] = [oldest._replace(last=max(oldest.last, older.last))]
            else:
                del self.rows[0]


def _joins(one: Drawn, other: Drawn) -> bool:
    early, late = min(one, other), max(one, other)
    if early.version != late.version or late.first > early.last + 1:
        return False
    return late.first <= early.last or not (early.absent or late.absent)


class VersionStore:
    """A part of the store; used within the store's transactions.

    `changed` are the streams whose rows were changed since somebody cleared it.
    """

    schema = """
CREATE TABLE versions (
    device TEXT NOT NULL, stream TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    version INTEGER NOT NULL, begin INTEGER NOT NULL, absent INTEGER NOT NULL,
    PRIMARY KEY (device, stream, first, version)) WITHOUT ROWID;
"""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.changed: set[tuple[str, str]] = set()

    def timeline(self, device: str, stream: str) -> Timeline:
        """The intervals of a stream."""
        query = "SELECT first, last, version, begin, absent FROM intact_versions WHERE device=? AND stream=?"
        return Timeline(Drawn(*row) for row in self._db.execute(query, (device, stream)))

    def put(self, device: str, stream: str, timeline: Timeline, *, whole: bool) -> None:
        """Store a stream's intervals; unless `whole`, the end of the last one only where another follows."""
        old, new = timeline.stored, {(row.first, row.version): row for row in timeline.rows}
        newest = timeline.rows[-1]
        before = old.get((newest.first, newest.version))
        if not whole and before is not None:
            new[newest.first, newest.version] = newest._replace(last=before.last)
        if old == new:
            return
        gone = [(device, stream, *key) for key in old if key not in new]
        self._db.executemany("DELETE FROM versions WHERE device=? AND stream=? AND first=? AND version=?", gone)
        query = (
            "INSERT INTO versions (device, stream, first, last, version, begin, absent) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (device, stream, first, version) DO UPDATE SET last=excluded.last, begin=excluded.begin, "
            "absent=excluded.absent"
        )
        self._db.executemany(query, [(device, stream, *row) for key, row in new.items() if old.get(key) != row])
        timeline.stored = new
        self.changed.add((device, stream))


def history_of(rows: Iterable[Drawn], noises: Mapping[int, Noise | None], named: Named | None = None) -> History:
    """Build the history of a stream from its intervals, and from the version that its device names.

    `noises` has every version that may have run; of another, nothing is known.
    """
    spans: list[Span] = []
    ordered = sorted(rows)
    for row in ordered:
        noise = noises.get(row.version)
        first = row.first
        if spans:
            before = spans[-1]
            assert before.last is not None
            if first <= before.last:  # windows of two versions over the same ticks
                if row.last <= before.last:
                    spans[-1] = before._replace(version=0, noise=_larger([before.noise, noise]))
                    continue
                both = Span(0, _larger([before.noise, noise]), first, before.last)
                spans[-1:] = [*([before._replace(last=first - 1)] if before.first != first else []), both]
                first = before.last + 1
            elif row.begin > before.last + 1 and row.version != before.version:
                spans.append(Span(0, _between(before.version, row.version, noises), before.last + 1, row.begin - 1))
        least = max(first, row.first + row.absent)
        if row.absent:  # which ticks were not drawn is not known
            most = max(least, row.last - row.absent + 1)
            parts = [Span(0, noise, first, least - 1), Span(row.version, noise, least, most - 1)]
            spans += [span for span in (*parts, Span(0, noise, most, row.last)) if span.first <= span.last]  # type: ignore[operator]
        else:
            spans.append(Span(row.version, noise, first, row.last))
    complete = ordered[0].begin == 0 if ordered else named is None or noises.keys() <= {named.version}
    if named is not None and (not ordered or named.version != ordered[-1].version):
        if ordered:
            last = None if named.first is None else named.first - 1
            after = ordered[-1].last + 1
            if last is None or last >= after:
                spans.append(Span(0, _between(ordered[-1].version, named.version, noises), after, last))
        spans.append(Span(named.version, noises.get(named.version), named.first))
    elif spans:
        spans[-1] = spans[-1]._replace(last=None)
    return History(tuple(spans), complete)


def _between(version: int, other: int, noises: Mapping[int, Noise | None]) -> Noise | None:
    """A bound on the noise of ticks between two versions: any version between them may have run."""
    low, high = sorted((version, other))
    return _larger([noise for number, noise in noises.items() if low <= number <= high])


def _larger(noises: Sequence[Noise | None]) -> Noise | None:
    largest = noises[0]
    for noise in noises[1:]:
        largest = None if noise is None or largest is None else largest.larger(noise)
    return largest
