"""Frames a second into a store, durable: a batch as one BLOB and as rows, into PostgreSQL and, beside it, into SQLite.

Usage: python benchmarks/postgres.py [--json]      (needs PostgreSQL: apt-get install postgresql)

Frames of 100 ticks of a binary stream, in the order of time, from 1,000 streams. Each batch is one transaction that is
written through to the disk (fsync and full_page_writes on, synchronous_commit on; WAL and synchronous=FULL). A BLOB is
what the gateway's journal has of a batch. Rows have a primary key of stream and first tick, and go in by COPY or, in
SQLite, by executemany. Both through `gateway.store`. Beside it, in this process: its processor time a frame.

Then the table of sealed symbols with 400 days of 400 streams, one chunk each a day. It is measured as the gateway has
it, and in partitions of so many days, which are dropped when all in them is old. Queries say between which days they
look, as far as that can be known: not where the oldest symbols of a stream are sought.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

from figures import command_line, seconds_of, show

sys.path.insert(0, str(Path(__file__).parents[1]))

from fugu.host.database import STORE
from gateway.store.engine import Database, DatabaseKind
from gateway.store.location import Location
from gateway.store.opening import open_engine
from gateway.store.postgresql import PostgresDatabase
from gateway.store.store import StoreError
from gateway.store.symbols import SymbolStore
from tests.support.postgres import Postgres

TICKS = 100
STREAMS = 1_000
HEAD = struct.Struct("<qqqhh")
SECONDS = 1.5
ROUNDS = 3
_SCHEMA = """
CREATE TABLE journal (serial INTEGER PRIMARY KEY AUTOINCREMENT, batch BLOB NOT NULL);
CREATE TABLE frames (
    stream INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, previous INTEGER NOT NULL,
    policy_version INTEGER NOT NULL, symbols BLOB NOT NULL, PRIMARY KEY (stream, first));
"""
KIND = DatabaseKind(STORE, _SCHEMA, StoreError)
CHUNK_TICKS = 4_000  # as `gateway.estimates.past` has it
DAYS = 400
STORED_STREAMS = 400
LOOKS = 60


def main() -> None:
    """Measure and print."""
    options = command_line(__doc__).parse_args()
    figures: dict[str, object] = {}
    with Postgres(fsync="on", full_page_writes="on", max_wal_size="4GB") as server, tempfile.TemporaryDirectory() as f:
        places: dict[str, Location] = {"PostgreSQL": server.fresh(), "SQLite": Path(f) / "store.sqlite"}
        for size in (250, 2_000, 8_000):
            for way, put in (("BLOB", put_blob), ("rows", put_rows)):
                fastest = dict.fromkeys(places, 0.0)
                for _ in range(ROUNDS):
                    for name, place in places.items():
                        per_second, processor = measured(place, put, size)
                        fastest[name] = max(fastest[name], per_second)
                        figures[f"{name}: us of processor time a frame, {way}, batches of {size}"] = round(processor, 2)
                for name, per_second in fastest.items():
                    figures[f"{name}: frames/s, {way}, batches of {size}"] = round(per_second, -2)
                ratio = fastest["PostgreSQL"] / fastest["SQLite"]
                figures[f"PostgreSQL over SQLite, {way}, batches of {size}"] = round(ratio, 2)
        by_days = {days: partitioned(server.fresh(), days) for days in (0, 28, 7, 1)}
        for days, by_day in by_days.items():
            for what, milliseconds in by_day.items():
                name = f"partitions of {days} days" if days else "one table"
                figures[f"400 days: ms to {what}, {name}"] = round(milliseconds, 2)
                if days:
                    ratio = milliseconds / by_days[0][what]
                    figures[f"400 days: over one table, to {what}, {name}"] = round(ratio, 2)
    show(figures, as_json=options.json)


def measured(place: Location, put: Callable[[Database, int, int], None], size: int) -> tuple[float, float]:
    """Frames a second, and microseconds of this process's time a frame."""
    with closing(open_engine(place, KIND)) as database:
        with database.transaction():
            database.execute("DELETE FROM frames")
            database.execute("DELETE FROM journal")
        frames, began, worked = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - began < SECONDS:
            with database.transaction():
                put(database, frames, size)
            frames += size
        taken, worked = time.perf_counter() - began, time.process_time() - worked
    return frames / taken, worked / frames * 1e6


def put_blob(database: Database, _number: int, size: int) -> None:
    """One row."""
    database.execute("INSERT INTO journal (shard, batch) VALUES (0, ?)", (_batch(size),))


@cache
def _batch(size: int) -> bytes:
    """Parts of each frame that say which it is, and noise."""
    symbols = os.urandom((TICKS + 7) // 8 * size)
    heads = (HEAD.pack(i % STREAMS, i // STREAMS * TICKS, i // STREAMS * TICKS - 1, 1, 1) for i in range(size))
    return b"".join(heads) + symbols


def put_rows(database: Database, number: int, size: int) -> None:
    """A row a frame."""
    symbols = os.urandom((TICKS + 7) // 8)
    rows = []
    for i in range(number, number + size):
        first = i // STREAMS * TICKS
        rows.append((i % STREAMS, first, first + TICKS - 1, first - 1, 1, symbols))
    _copy(database, "frames", rows)


def _copy(database: Database, table: str, rows: Iterable[Sequence[object]]) -> None:
    """Put rows into a table as PostgreSQL takes them fastest."""
    assert isinstance(database, PostgresDatabase)
    query = f"COPY {table} FROM STDIN (FORMAT BINARY)"
    with database.transaction(), database._live_connection().cursor() as cursor, cursor.copy(query) as copy:
        for row in rows:
            copy.write_row(row)


def partitioned(place: Location, days: int) -> dict[str, float]:
    """Milliseconds that things take with the history of 400 days in partitions of so many days, or in one table."""
    schema = SymbolStore.schema
    if days:
        key = "PRIMARY KEY (stream, first, day)) PARTITION BY RANGE (day);"
        schema = re.sub(r"PRIMARY KEY \(stream, first\)\);", key, schema)
        for begin in range(0, DAYS + days, days):
            schema += f"CREATE TABLE chunks_{begin} PARTITION OF chunks FOR VALUES FROM ({begin}) TO ({begin + days});"
    inside = " AND day BETWEEN ? AND ?" if days else ""
    chosen = random.Random(1)

    with closing(open_engine(place, DatabaseKind(STORE, schema, StoreError))) as database:

        def near(day: int) -> tuple[int, ...]:
            return (day - 1, day + 1) if days else ()

        def look() -> None:
            stream, day = chosen.randrange(STORED_STREAMS), chosen.randrange(DAYS)
            query = f"SELECT MAX(first) FROM chunks WHERE stream=? AND first<=?{inside}"
            (first,) = database.execute(query, (stream, day * CHUNK_TICKS + 7, *near(day))).fetchone()
            query = f"SELECT * FROM chunks WHERE stream=? AND first>=?{inside} ORDER BY first LIMIT 1"
            database.execute(query, (stream, first, *near(day))).fetchall()

        def oldest() -> None:
            query = "SELECT first, last, policy_version FROM chunks WHERE stream=? ORDER BY first LIMIT 1"
            database.execute(query, (chosen.randrange(STORED_STREAMS),)).fetchall()

        def seal() -> None:
            query = f"DELETE FROM chunks WHERE stream=? AND first>=?{inside}"
            rows = [(stream, DAYS * CHUNK_TICKS, *near(DAYS)) for stream in range(STORED_STREAMS)]
            with database.transaction():
                database.executemany(query, rows)
                database.executemany(f"INSERT INTO chunks VALUES ({', '.join('?' * 8)})", _day(DAYS))

        def remove() -> None:
            with database.transaction():
                if days:
                    database.execute("DROP TABLE chunks_0")
                else:
                    rows = [(stream, 0) for stream in range(STORED_STREAMS)]
                    database.executemany("DELETE FROM chunks WHERE stream=? AND first<=?", rows)

        for day in range(DAYS):
            _copy(database, "chunks", _day(day))
        for _ in range(LOOKS):  # the server plans anew until it knows better, and has to read what is asked for
            look()
            oldest()
        return {
            "look a stream up": _median(look, LOOKS),
            "find a stream's oldest symbols": _median(oldest, LOOKS),
            "seal a day of 400 streams": _median(seal, 3),
            "remove a day of 400 streams": _median(remove, 1) / max(days, 1),
        }


def _day(day: int) -> list[tuple[object, ...]]:
    """A chunk of each stream."""
    first, last = day * CHUNK_TICKS, day * CHUNK_TICKS + CHUNK_TICKS - 1
    symbols = os.urandom(CHUNK_TICKS // 8)
    return [(stream, first, last, day, 1, bytes(16), bytes(12), symbols) for stream in range(STORED_STREAMS)]


def _median(run: Callable[[], None], times: int) -> float:
    """Milliseconds of the run in the middle."""
    return statistics.median(seconds_of(run) for _ in range(times)) * 1e3


if __name__ == "__main__":
    main()
