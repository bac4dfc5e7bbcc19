"""Frames a second into a store, durable: a batch as one BLOB and as rows, into PostgreSQL and, beside it, into SQLite.

Usage: python benchmarks/postgres.py [--json]      (needs PostgreSQL: apt-get install postgresql)

Frames of 100 ticks of a binary stream, in the order of time, from 1,000 streams; each batch is one transaction that is
written through to the disk (fsync and full_page_writes on, synchronous_commit on; WAL and synchronous=FULL). A BLOB is
what the gateway's journal has of a batch. Rows have a primary key of stream and first tick, and go in by COPY or, in
SQLite, by executemany. Both through `gateway.service.store`. Beside it, in this process: its processor time a frame.
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

from figures import show

sys.path.insert(0, str(Path(__file__).parents[1]))

from gateway.service.store import Location
from gateway.service.store.database import Database
from gateway.service.store.store import open_engine
from tests.support.postgres import Postgres

TICKS = 100
STREAMS = 1_000
HEAD = struct.Struct("<qqqhh")
SECONDS = 1.5
ROUNDS = 3
SCHEMA = """
CREATE TABLE journal (serial INTEGER PRIMARY KEY AUTOINCREMENT, batch BLOB NOT NULL);
CREATE TABLE frames (
    stream INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, previous INTEGER NOT NULL,
    policy_version INTEGER NOT NULL, symbols BLOB NOT NULL, PRIMARY KEY (stream, first));
"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: dict[str, object] = {}
    with Postgres(fsync="on", full_page_writes="on", max_wal_size="4GB") as server, tempfile.TemporaryDirectory() as f:
        places: dict[str, Location] = {"PostgreSQL": server.fresh(), "SQLite": Path(f) / "store.sqlite"}
        for size in (250, 2_000, 8_000):
            for way, put in (("BLOB", put_blob), ("rows", put_rows)):
                rates = dict.fromkeys(places, 0.0)
                for _ in range(ROUNDS):
                    for name, place in places.items():
                        rate, processor = measured(place, put, size)
                        rates[name] = max(rates[name], rate)
                        figures[f"{name}: us of processor time a frame, {way}, batches of {size}"] = round(processor, 2)
                for name, rate in rates.items():
                    figures[f"{name}: frames/s, {way}, batches of {size}"] = round(rate, -2)
                ratio = rates["PostgreSQL"] / rates["SQLite"]
                figures[f"PostgreSQL over SQLite, {way}, batches of {size}"] = round(ratio, 2)
    show(figures, as_json=options.json)
    return 0


def measured(place: Location, put: Callable[[Database, int, int], None], size: int) -> tuple[float, float]:
    """Frames a second, and microseconds of this process's time a frame."""
    with closing(open_engine(place, SCHEMA, create=True)) as database:
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
    database.execute("INSERT INTO journal (batch) VALUES (?)", (_batch(size),))


@cache
def _batch(size: int) -> bytes:
    """What each frame says of itself, and noise."""
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
    database.copy("frames", rows)


if __name__ == "__main__":
    raise SystemExit(main())
