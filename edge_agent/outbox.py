"""The durable outbox: symbols, points and noisy counts, nothing else, from when they are drawn until they are safe.

What is drawn for a tick, its symbol or its point, is committed here before anything can publish it, and a tick that has
been committed is never drawn again, so no tick is ever randomised twice. It gathers in `pending`, in the bytes that it
has in a frame, until a frame is full; the frame's bytes are then fixed for ever, forced to disk, and re-sent
unchanged until they are forgotten.

A window's counts come here once, with their noise, and are a frame at once; the window's index is committed with it, so
that none is released twice. Such frames are kept under the name of their sequence, `{stream}/{window}`, by index.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from contract.errors import FuguError, Reason
from contract.frames import Gap, SymbolFrame, encode_symbols
from contract.measure_frames import MeasureFrame, encode_measure, unpack_released
from contract.window_frames import WindowFrame, encode_window, sequence_name
from edge_agent.plan import StreamPlan, WindowPlan
from edge_agent.window import ClosedWindow
from host.database import OUTBOX, open_database, transaction

__all__ = ["Outbox", "OutboxError"]

_SCHEMA = """
    CREATE TABLE device (fleet TEXT NOT NULL, device TEXT NOT NULL);
    CREATE TABLE streams (
        stream TEXT PRIMARY KEY, epoch_us INTEGER NOT NULL, period_us INTEGER NOT NULL,
        last_tick INTEGER NOT NULL, last_framed INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE pending (
        stream TEXT NOT NULL, tick INTEGER NOT NULL, output BLOB NOT NULL, version INTEGER NOT NULL,
        frame_ticks INTEGER NOT NULL, bits INTEGER NOT NULL, PRIMARY KEY (stream, tick)) WITHOUT ROWID;
    CREATE TABLE frames (
        id INTEGER PRIMARY KEY AUTOINCREMENT, stream TEXT NOT NULL, previous INTEGER NOT NULL,
        last INTEGER NOT NULL, payload BLOB NOT NULL);
    CREATE INDEX frames_by_stream ON frames (stream, last);
    CREATE TABLE windows (
        stream TEXT NOT NULL, window TEXT NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL,
        stride INTEGER NOT NULL, last_index INTEGER NOT NULL, PRIMARY KEY (stream, window)) WITHOUT ROWID;
"""


class OutboxError(FuguError, reason=Reason.OUTBOX):
    """The outbox cannot be opened, or belongs to somebody else."""


class Outbox:
    """The outbox of one device; used from one thread.

    A second process that opens the same file is refused, so that no tick can be drawn by both.

    Args:
        path: SQLite file, created when missing.
        fleet, device: whose it is; a file of another device is refused.

    Raises:
        OutboxError: if the file cannot be used.
    """

    def __init__(self, path: str | Path, fleet: str, device: str) -> None:
        self.path = Path(path)
        self._db = open_database(
            self.path,
            OUTBOX,
            _SCHEMA,
            OutboxError,
            wait_seconds=2.0,
            settings=("locking_mode=EXCLUSIVE", "synchronous=NORMAL", "cache_size=-256"),
            shown=str(path),
            in_use=f"outbox {path} is in use by another agent that runs: stop that one, "
            "or give this one an outbox and a device name of its own",
        )
        try:
            self._belong_to(fleet, device)
        except sqlite3.Error as error:
            self.close()
            raise OutboxError(f"cannot open the outbox {path}: {error}") from None
        except OutboxError:
            self.close()
            raise

    def _belong_to(self, fleet: str, device: str) -> None:
        with transaction(self._db):
            self._db.execute("INSERT INTO device SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM device)", (fleet, device))
            owner = self._db.execute("SELECT fleet, device FROM device").fetchone()
        if owner != (fleet, device):
            raise OutboxError(f"outbox {self.path} belongs to {owner[0]}/{owner[1]}, not to {fleet}/{device}")

    def register(self, plan: StreamPlan) -> int:
        """Make a stream known.

        Returns:
            The last tick that has ever been committed, -1 for a new stream.

        Raises:
            OutboxError: if the stream's clock has changed: its ticks would mean other moments than before.
        """
        row = self._db.execute(
            "SELECT epoch_us, period_us, last_tick FROM streams WHERE stream = ?", (plan.stream,)
        ).fetchone()
        if row is None:
            values = (plan.stream, plan.epoch_us, plan.period_us)
            self._db.execute("INSERT INTO streams VALUES (?, ?, ?, -1, -1)", values)
            return -1
        if (row[0], row[1]) != (plan.epoch_us, plan.period_us):
            raise OutboxError(f"the clock of stream {plan.stream} has changed: give the stream a new name")
        return int(row[2])

    def register_window(self, stream: str, window: WindowPlan) -> int:
        """Make a window of a stream known.

        Returns:
            The index of the last window that has ever been committed, -1 for a new one.

        Raises:
            OutboxError: if its ticks have changed: its indices would mean other ticks than before.
        """
        ticks = (window.start, window.length, window.stride)
        row = self._db.execute(
            "SELECT start, length, stride, last_index FROM windows WHERE stream = ? AND window = ?",
            (stream, window.name),
        ).fetchone()
        if row is None:
            self._db.execute("INSERT INTO windows VALUES (?, ?, ?, ?, ?, -1)", (stream, window.name, *ticks))
            return -1
        if row[:3] != ticks:
            raise OutboxError(f"the ticks of window {stream}/{window.name} have changed: give the window a new name")
        return int(row[3])

    @contextmanager
    def forgets_if_refused(self) -> Iterator[None]:
        """If what is done in here fails, streams and windows that were registered in it were never known."""
        tables = (("streams", "stream"), ("windows", "stream, window"))
        before = [set(self._db.execute(f"SELECT {key} FROM {table}")) for table, key in tables]
        try:
            yield
        except BaseException:
            with suppress(sqlite3.Error), transaction(self._db):
                for (table, key), known in zip(tables, before, strict=True):
                    new = [row for row in self._db.execute(f"SELECT {key} FROM {table}") if row not in known]
                    places = ", ".join("?" for _ in key.split(", "))
                    self._db.executemany(f"DELETE FROM {table} WHERE ({key}) = ({places})", new)
            raise

    def append(self, plan: StreamPlan, tick: int, drawn: bytes | None) -> bool:
        """Commit a tick with what was drawn for it, its symbol or its point if any, and close the frame it completes.

        Returns:
            Whether a frame was closed.

        Raises:
            sqlite3.Error: if it, or the frame that it completes, could not be made durable; whichever it was,
                the tick must not be drawn again.
            OutboxError: if the tick is not later than every committed one.
        """
        closed = False
        count, last, version = self._db.execute(
            "SELECT COUNT(*), MAX(tick), MAX(version) FROM pending WHERE stream = ?", (plan.stream,)
        ).fetchone()
        if count and (tick != last + 1 or version != plan.version or count >= plan.frame_ticks):
            closed = self.close_frame(plan)
            count = 0
        with transaction(self._db):
            changed = self._db.execute(
                "UPDATE streams SET last_tick = ? WHERE stream = ? AND last_tick < ?", (tick, plan.stream, tick)
            )
            if changed.rowcount != 1:
                raise OutboxError(f"tick {tick} of stream {plan.stream} was committed before")
            if plan.noise is None or drawn is None:
                return closed
            row = (plan.stream, tick, drawn, plan.version, plan.frame_ticks, plan.noise.bits)
            self._db.execute("INSERT INTO pending VALUES (?, ?, ?, ?, ?, ?)", row)
        if count + 1 >= plan.frame_ticks:
            closed = self.close_frame(plan)
        return closed

    def close_frame(self, plan: StreamPlan) -> bool:
        """Turn what is pending into a frame, as its policy wants it, and force it to disk.

        Returns:
            Whether anything was pending.
        """
        rows = self._db.execute(
            "SELECT tick, output, version, frame_ticks, bits FROM pending WHERE stream = ? ORDER BY tick",
            (plan.stream,),
        ).fetchall()
        if not rows:
            return False
        first, _, version, frame_ticks, bits = rows[0]
        last = rows[-1][0]
        (previous,) = self._db.execute("SELECT last_framed FROM streams WHERE stream = ?", (plan.stream,)).fetchone()
        payload = _framed(version, previous, first, [row[1] for row in rows], frame_ticks, bits)
        with self._forced_to_disk(), transaction(self._db):
            self._db.execute(
                "INSERT INTO frames (stream, previous, last, payload) VALUES (?, ?, ?, ?)",
                (plan.stream, previous, last, payload),
            )
            self._db.execute("DELETE FROM pending WHERE stream = ?", (plan.stream,))
            self._db.execute("UPDATE streams SET last_framed = ? WHERE stream = ?", (last, plan.stream))
        return True

    def append_windows(self, plan: StreamPlan, closed: Sequence[ClosedWindow]) -> None:
        """Turn the noisy counts of windows that have ended into frames; force them to disk.

        Raises:
            sqlite3.Error: if they could not be made durable; they must not be released any other way.
            OutboxError: if a window is not later than every committed one of its name.
        """
        with self._forced_to_disk(), transaction(self._db):
            for one in closed:
                window, index = one.window, one.index
                key = (plan.stream, window.name)
                (previous,) = self._db.execute(
                    "SELECT last_index FROM windows WHERE stream = ? AND window = ?", key
                ).fetchone()
                if previous >= index:
                    raise OutboxError(f"window {index} of {plan.stream}/{window.name} was committed before")
                ticks = (window.first(index), window.length)
                frame = WindowFrame(plan.version, window.name, previous, index, *ticks, one.observed, one.counts)
                self._db.execute("UPDATE windows SET last_index = ? WHERE stream = ? AND window = ?", (index, *key))
                self._db.execute(
                    "INSERT INTO frames (stream, previous, last, payload) VALUES (?, ?, ?, ?)",
                    (sequence_name(*key), previous, index, encode_window(frame)),
                )

    def next_frame(self, after: int) -> tuple[int, str, bytes] | None:
        """The oldest frame with an id above `after`: its id, stream (or window's sequence) and bytes."""
        row = self._db.execute(
            "SELECT id, stream, payload FROM frames WHERE id > ? ORDER BY id LIMIT 1", (after,)
        ).fetchone()
        return None if row is None else (row[0], row[1], row[2])

    def forget_frame(self, frame_id: int) -> None:
        """Forget one frame (fleets without a gateway: the broker has it)."""
        self._db.execute("DELETE FROM frames WHERE id = ?", (frame_id,))

    def forget_committed(self, stream: str, through: int, gaps: Sequence[Gap]) -> tuple[int, list[int]]:
        """Forget the frames that are durable elsewhere.

        Args:
            stream: a stream, or a window's sequence, whose windows' indices then stand for ticks.
            gaps: ticks up to there that are not durable elsewhere.

        Returns:
            The number of frames forgotten, and the ids of the frames that hold ticks of a gap.
        """
        rows = self._db.execute(
            "SELECT id, previous, last FROM frames WHERE stream = ? AND last <= ? ORDER BY id", (stream, through)
        ).fetchall()
        missing: list[int] = []
        durable: list[int] = []
        for frame_id, previous, last in rows:
            in_gap = any(previous < gap.through and last > gap.after for gap in gaps)
            (missing if in_gap else durable).append(frame_id)
        if durable:
            with transaction(self._db):
                self._db.executemany("DELETE FROM frames WHERE id = ?", [(frame_id,) for frame_id in durable])
        return len(durable), missing

    def depth(self) -> int:
        """The number of frames kept."""
        (count,) = self._db.execute("SELECT COUNT(*) FROM frames").fetchone()
        return int(count)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _forced_to_disk(self) -> Iterator[None]:
        """Commits in here, and all before them, outlast a power cut."""
        self._db.execute("PRAGMA synchronous = FULL")
        try:
            yield
        finally:
            self._db.execute("PRAGMA synchronous = NORMAL")


def _framed(version: int, previous: int, first: int, outputs: Sequence[bytes], ticks: int, bits: int) -> bytes:
    """Bytes of a frame of consecutive ticks, filled up to a full one; symbols of some bits, or points."""
    padding = ticks - len(outputs)
    if bits:
        return encode_symbols(SymbolFrame(version, previous, first, b"".join(outputs), padding, bits))
    points = tuple(map(unpack_released, outputs))
    return encode_measure(MeasureFrame(version, previous, first, len(points[0].point), points, padding))
