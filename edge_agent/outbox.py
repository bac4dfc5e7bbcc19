"""The durable outbox: symbols, points and noisy counts, from when they are drawn until they are safe elsewhere.

No tick is drawn for twice. The ticks of a frame are reserved on the disk before the first is drawn; a restart goes on
after them. Outputs wait in memory until their frame is full. One transaction then forces the frame's bytes to disk, and
reserves the ticks of the next frame. The bytes are re-sent unchanged until they are forgotten. After a power cut the
ticks of a frame that was not full are absent. Where each tick must be committed before the next, outputs are written
one by one. A tick that cannot be reserved must not be drawn. A frame that cannot be written stays in memory, and is
tried again before the next tick.

The counts of a window come here once, with their noise, and become a frame, `{stream}/{window}` by index. The same
transaction commits the window's index and the outputs of its ticks, so that no window is released twice. Counts of
windows under way are never here, nor in this file's log: see `edge_agent.window_file`.

An outbox is tied to one machine, by identifiers of its hardware, which no copy of the disk takes along. Two devices
with copies of one outbox would draw for the same ticks, and together publish more than either may tell. The file holds
salted hashes of the identifiers, which are never logged, and never leave the machine. This is no guarantee: some
machines have no identifier. But the gateway notices a copy by its frames.

A machine is recognised by its board, product or given name. A network card counts only where none of these can be
compared: a changed card alone does not stop a device that has another identifier.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from edge_agent.device_clock import Anchor
from edge_agent.plan import StreamPlan
from edge_agent.policy_history import HISTORY_SCHEMA, DrawnTicks
from edge_agent.stored_frames import FRAMES_SCHEMA, Keeping, StoredFrames
from fugu.contract.errors import FuguError, Reason
from fugu.contract.frames import SymbolFrame, sequence_name
from fugu.contract.group_frames import Report
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.core.frames import window_frame
from fugu.core.policy import Window
from fugu.host.database import OUTBOX, damage, open_database, transaction
from fugu.host.process import NOTICES

__all__ = ["Outbox", "OutboxError", "OutboxFullError", "StoredKey", "identifiers"]


_BINDING_SCHEMA = """
    CREATE TABLE binding (kind TEXT NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (kind, digest)) WITHOUT ROWID;
"""
_CARD = "card"
_IDENTIFIER_FILES = {
    "board": ("sys/firmware/devicetree/base/serial-number", "proc/device-tree/serial-number"),
    "product": ("sys/class/dmi/id/product_uuid",),
}


def identifiers(binding: str = "auto", root: Path = Path("/")) -> frozenset[tuple[str, str]]:
    """Return identifiers of this machine, pairs of kind and value; `binding` is `auto`, `off`, or a name for it."""
    if binding == "off":
        return frozenset()
    if binding != "auto":
        return frozenset({("name", binding)})
    identifier_pairs = {(kind, _read_text(root / path)) for kind, paths in _IDENTIFIER_FILES.items() for path in paths}
    for card in sorted((root / "sys/class/net").glob("*")):
        if (card / "device").exists() and _read_text(card / "addr_assign_type") in ("", "0"):  # real, own address
            identifier_pairs.add((_CARD, _read_text(card / "address")))
    return frozenset((kind, value) for kind, value in identifier_pairs if len(set(value) - set("-: ")) > 1)


def _is_same_machine(stored_digests: set[tuple[str, bytes]], current_digests: set[tuple[str, bytes]]) -> bool:
    comparable_kinds = {kind for kind, _ in stored_digests} & {kind for kind, _ in current_digests} - {_CARD}
    return any(kind in comparable_kinds or not comparable_kinds for kind, _ in stored_digests & current_digests)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip("\0\n ").lower()
    except OSError:
        return ""


@dataclass(slots=True)
class OpenFrame:
    """The frame of a stream that is under way.

    Attributes:
        drawn: the ticks that were drawn, by policy.
        reserved_tick: the last reserved tick on the disk: no tick above it was ever drawn.
        last_tick: the last tick that was drawn, or may have been drawn before a restart.
        last_framed: the last tick of the frame before.
        shift, since_tick: how many ticks the numbers are ahead of the wall clock, and the first tick with this shift.
        first: tick of the first output.
        version, frame_ticks, bits: of the policy that drew the outputs.
        outputs: the outputs of this frame so far, one for each tick.
        stored_count: how many of the outputs are on the disk.
    """

    drawn: DrawnTicks
    reserved_tick: int
    last_tick: int
    last_framed: int
    shift: int = 0
    since_tick: int = 0
    first: int = 0
    version: int = 0
    frame_ticks: int = 0
    bits: int = 0
    outputs: list[bytes] = field(default_factory=list)
    stored_count: int = 0

    def takes_tick(self, plan: StreamPlan, tick: int) -> bool:
        """True if the output of a tick belongs into this frame."""
        output_count = len(self.outputs)
        return tick == self.first + output_count and plan.version == self.version and output_count < self.frame_ticks

    def add(self, tick: int, output: bytes, version: int, frame_ticks: int, bits: int) -> None:
        """Add the output of a tick."""
        if not self.outputs:
            self.first, self.version, self.frame_ticks, self.bits = tick, version, frame_ticks, bits
        self.outputs.append(output)

    def unstored_rows(self) -> list[tuple[int, bytes, int, int, int]]:
        """Return the outputs that are not on the disk, as rows: tick, output, version, frame_ticks, bits."""
        head_fields = self.version, self.frame_ticks, self.bits
        return [(self.first + i, self.outputs[i], *head_fields) for i in range(self.stored_count, len(self.outputs))]

    def encode(self) -> bytes:
        """Encode the outputs as a frame of symbols, or of points if `bits` is 0, padded to a full frame."""
        padding_ticks = self.frame_ticks - len(self.outputs)
        head_fields = self.version, self.last_framed, self.first
        if self.bits:
            return SymbolFrame(*head_fields, b"".join(self.outputs), padding_ticks, self.bits, self.shift).encode()
        points = tuple(map(Released.unpack, self.outputs))
        return MeasureFrame(*head_fields, len(points[0].point), points, padding_ticks, self.shift).encode()


_SCHEMA = f"""
    CREATE TABLE device (fleet TEXT NOT NULL, device TEXT NOT NULL, salt BLOB NOT NULL, counter TEXT NOT NULL,
        watermark_key BLOB NOT NULL);
    CREATE TABLE streams (
        stream TEXT PRIMARY KEY, epoch_us INTEGER NOT NULL, period_us INTEGER NOT NULL,
        reserved INTEGER NOT NULL, last_framed INTEGER NOT NULL,
        shift INTEGER NOT NULL, since INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE anchor (boot TEXT NOT NULL, offset_us INTEGER NOT NULL);
    CREATE TABLE pending (
        stream TEXT NOT NULL, tick INTEGER NOT NULL, output BLOB NOT NULL, version INTEGER NOT NULL,
        frame_ticks INTEGER NOT NULL, bits INTEGER NOT NULL, PRIMARY KEY (stream, tick)) WITHOUT ROWID;
    CREATE TABLE opening_keys (group_name TEXT PRIMARY KEY, made INTEGER NOT NULL, tick INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE windows (
        stream TEXT NOT NULL, window TEXT NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL,
        stride INTEGER NOT NULL, last_index INTEGER NOT NULL, PRIMARY KEY (stream, window)) WITHOUT ROWID;
    {_BINDING_SCHEMA}{FRAMES_SCHEMA}{HISTORY_SCHEMA}"""


class StoredKey(NamedTuple):
    """When the newest opening key of a group was made, and the tick since which this device has it."""

    made: int
    tick: int


class OutboxError(FuguError, reason=Reason.OUTBOX):
    """The outbox cannot be opened, belongs to another device, or refuses a tick or a window."""


class OutboxFullError(FuguError, reason=Reason.OUTBOX):
    """The outbox has no room, and may not drop frames."""


class Outbox:
    """The outbox of one device; used from one thread.

    A missing file is created. Raises OutboxError for the file of another device, and if another process has opened the
    file: no tick may be drawn by two processes.
    """

    def __init__(self, path: str | Path, fleet: str, device: str, retention: Keeping | None = None) -> None:
        self.path = Path(path)
        retention = retention or Keeping()
        self._by_tick = retention.by_tick
        self._open_frames: dict[str, OpenFrame] = {}
        was_empty = False
        with suppress(OSError):
            was_empty = self.path.stat().st_size == 0
        self._db = open_database(
            self.path,
            OUTBOX,
            _SCHEMA,
            OutboxError,
            wait_seconds=2.0,
            pragmas=("page_size=512", "locking_mode=EXCLUSIVE", "synchronous=NORMAL", "cache_size=-256"),
            label=str(path),
            busy_message=f"outbox {path} is in use by another agent that runs: stop that one, "
            "or give this one an outbox and a device name of its own",
        )
        try:
            if problem := damage(self._db):
                raise OutboxError(f"outbox {path} is damaged ({problem}): {OUTBOX.remedy}")
            with transaction(self._db):
                if self._db.execute("SELECT 1 FROM device").fetchone() is None:
                    if was_empty:
                        NOTICES.warning("outbox %s was an empty file: if frames were in it, they are lost", path)
                    device_row = fleet, device, secrets.token_bytes(16)
                    self._db.execute("INSERT INTO device VALUES (?, ?, ?, '0', X'')", device_row)
                *owner, counter = self._db.execute("SELECT fleet, device, counter FROM intact_device").fetchone()
            if owner != [fleet, device]:
                raise OutboxError(f"outbox {path} belongs to {owner[0]}/{owner[1]}, not to {fleet}/{device}")
            self.frames = StoredFrames(self._db, retention)
        except (sqlite3.Error, OutboxError) as error:
            self._db.close()
            if isinstance(error, OutboxError):
                raise
            raise OutboxError(f"cannot open the outbox {path}: {error}") from None
        self.counter = self._stored_counter = int(counter)

    def bind(self, identifier_pairs: frozenset[tuple[str, str]], *, moved: bool = False) -> None:
        """Bind the outbox to the machine with these identifiers if it is unbound, or `moved`.

        Raises OutboxError if it belongs to another machine; the file is closed then.
        """
        with self._naming_file():
            (salt,) = self._db.execute("SELECT salt FROM intact_device").fetchone()
            salted_pairs = ((kind, salt + f"{kind}\0{value}".encode()) for kind, value in identifier_pairs)
            machine_digests = {(kind, hashlib.sha256(salted).digest()) for kind, salted in salted_pairs}
            stored_digests = set(self._db.execute("SELECT kind, digest FROM intact_binding"))
            if stored_digests and not moved and not _is_same_machine(stored_digests, machine_digests):
                self.close()
                raise OutboxError(
                    f"outbox {self.path} was begun on another machine: this looks like a copy of another device's disk."
                    " If the device has moved on purpose, and the other machine will never run it again: fugu-agent "
                    "moved CONFIG.toml"
                )
            machine_kinds = {kind for kind, _ in machine_digests}
            machine_digests |= {pair for pair in stored_digests if pair[0] not in machine_kinds and not moved}
            if machine_digests != stored_digests:
                with transaction(self._db):
                    self._db.execute("DELETE FROM binding")
                    self._db.executemany("INSERT INTO binding VALUES (?, ?)", sorted(machine_digests))

    def set_watermark_key(self, watermark_key: bytes) -> None:
        """Set the key of the watermarks that `counter` counts; a new key resets it to 0. Raises OutboxError."""
        with self._naming_file(), transaction(self._db):
            salt, stored_digest = self._db.execute("SELECT salt, watermark_key FROM intact_device").fetchone()
            if (digest := hashlib.sha256(salt + watermark_key).digest()) == stored_digest:
                return
            self._db.execute("UPDATE device SET watermark_key = ?, counter = '0'", (digest,))
        self.counter = self._stored_counter = 0

    @contextmanager
    def _naming_file(self) -> Iterator[None]:
        """Turn an error of the database into an OutboxError that names the file."""
        try:
            yield
        except sqlite3.Error as error:
            raise OutboxError(f"cannot use the outbox {self.path}: {error}") from None

    def salt(self) -> bytes:
        """Return the random salt of this file."""
        return bytes(self._db.execute("SELECT salt FROM device").fetchone()[0])

    def register(self, plan: StreamPlan) -> int:
        """Register a stream. Return the last tick that may ever have been drawn, or -1.

        Raises OutboxError if the stream's clock has changed.
        """
        stream_row = self._db.execute(
            "SELECT epoch_us, period_us, reserved, last_framed, shift, since FROM intact_streams WHERE stream = ?",
            (plan.stream,),
        ).fetchone()
        if stream_row is None:
            stream_row = plan.epoch_us, plan.period_us, -1, -1, 0, 0
            self._db.execute("INSERT INTO streams VALUES (?, ?, ?, ?, ?, ?, ?)", (plan.stream, *stream_row))
        if stream_row[:2] != (plan.epoch_us, plan.period_us):  # its ticks would mean other moments
            raise OutboxError(f"the clock of stream {plan.stream} has changed: give the stream a new name")
        frame = OpenFrame(DrawnTicks(self._db, plan.stream), stream_row[2], stream_row[2], *stream_row[3:])
        query = "SELECT tick, output, version, frame_ticks, bits FROM intact_pending WHERE stream = ? ORDER BY tick"
        for pending_row in self._db.execute(query, (plan.stream,)):
            frame.add(*pending_row)
        frame.stored_count = len(frame.outputs)
        frame.drawn.extend_to(max(frame.last_framed, frame.first + frame.stored_count - 1 if frame.outputs else -1))
        return self._open_frames.setdefault(plan.stream, frame).last_tick

    def shift(self, stream: str) -> tuple[int, int]:
        """Return how many ticks a stream's numbers are ahead of the wall clock, and the first tick with this shift."""
        frame = self._open_frames[stream]
        return frame.shift, frame.since_tick

    def drawn_ticks(self, stream: str) -> DrawnTicks:
        """Return the drawn ticks of a stream, by policy."""
        return self._open_frames[stream].drawn

    def drawn_document(self, plan: StreamPlan) -> dict[str, Any]:
        """Return the drawn ticks of a stream and the running edition of its policy, for JSON."""
        return {**self.drawn_ticks(plan.stream).document(), "running": [plan.version, plan.noise_bound]}

    def set_shift(self, plan: StreamPlan, shift: int, since_tick: int) -> None:
        """Set the shift of a stream from tick `since_tick` on, and force it to disk; the frame under way ends."""
        frame = self._open_frames[plan.stream]
        if (frame.shift, frame.since_tick) == (shift, since_tick):
            return
        with self._commit():
            self._write_frame(plan.stream, frame, frame.reserved_tick)
            shift_row = (shift, since_tick, plan.stream)
            self._db.execute("UPDATE streams SET shift = ?, since = ? WHERE stream = ?", shift_row)
        self._note_written(frame, frame.reserved_tick)
        frame.shift, frame.since_tick = shift, since_tick

    def anchor(self) -> Anchor | None:
        """Return the anchor of the device's clock that was stored last; `None` if there is none."""
        anchor_row = self._db.execute("SELECT boot, offset_us FROM intact_anchor").fetchone()
        return None if anchor_row is None else Anchor(*anchor_row)

    def keep_anchor(self, anchor: Anchor) -> None:
        """Store the anchor of the device's clock."""
        with self._commit(is_forced=False):
            self._db.execute("DELETE FROM anchor")
            self._db.execute("INSERT INTO anchor VALUES (?, ?)", anchor)

    def opening_key(self, group: str) -> StoredKey | None:
        """Return the newest opening key of a group that was ever used; `None` if there is none."""
        row = self._db.execute("SELECT made, tick FROM intact_opening_keys WHERE group_name = ?", (group,)).fetchone()
        return None if row is None else StoredKey(*row)

    def keep_opening_key(self, group: str, key: StoredKey) -> None:
        """Store a key as the newest of a group; to be done before the key is used."""
        with self._commit():
            self._db.execute("INSERT OR REPLACE INTO opening_keys VALUES (?, ?, ?)", (group, *key))

    def append_report(self, stream: str, report: Report) -> None:
        """Make a home's report of a window durable: it will be sent, and no report of this number is made again.

        The report follows the newest durable one. After sqlite3.Error or OutboxFullError it must not be released any
        other way. Raises OutboxError for a window that is not later than every reported one.
        """
        window_key = stream, report.window
        with self._commit():
            self._store_window(window_key, report.number, lambda previous: replace(report, previous=previous).encode())

    def register_window(self, stream: str, window: Window) -> int:
        """Register a window. Return the last index ever committed, or -1.

        Raises OutboxError if the window's ticks have changed.
        """
        window_ticks = (window.start, window.length, window.stride)
        window_row = self._db.execute(
            "SELECT start, length, stride, last_index FROM intact_windows WHERE stream = ? AND window = ?",
            (stream, window.name),
        ).fetchone()
        if window_row is None:
            self._db.execute("INSERT INTO windows VALUES (?, ?, ?, ?, ?, -1)", (stream, window.name, *window_ticks))
            return -1
        if window_row[:3] != window_ticks:
            raise OutboxError(f"the ticks of window {stream}/{window.name} have changed: give the window a new name")
        return int(window_row[3])

    @contextmanager
    def forgets_if_refused(self) -> Iterator[None]:
        """If the context fails, forget streams and windows that were registered inside it."""
        frames_before, tables = dict(self._open_frames), (("streams", "stream"), ("windows", "stream, window"))
        stored_rows = [set(self._db.execute(f"SELECT {key} FROM {table}")) for table, key in tables]
        try:
            yield
        except BaseException:
            self._open_frames = frames_before
            with suppress(sqlite3.Error), transaction(self._db):
                for (table, key), old_rows in zip(tables, stored_rows, strict=True):
                    new_rows = [row for row in self._db.execute(f"SELECT {key} FROM {table}") if row not in old_rows]
                    placeholders = ", ".join("?" for _ in key.split(", "))
                    self._db.executemany(f"DELETE FROM {table} WHERE ({key}) = ({placeholders})", new_rows)
            raise

    def reserve(self, plan: StreamPlan, tick: int) -> None:
        """Reserve a tick, so that it may be drawn. A frame under way that cannot take the tick is closed.

        After sqlite3.Error or OutboxFullError the tick must not be drawn.
        """
        frame = self._open_frames[plan.stream]
        frame_end = tick + plan.frame_ticks - 1
        if frame.outputs and not frame.takes_tick(plan, tick):
            self._seal_frame(plan, frame, frame_end)
        if plan.noise is not None and (not frame.outputs if self._by_tick else tick > frame.reserved_tick):
            self._begin_frame(plan, frame, frame_end)

    def append(self, plan: StreamPlan, tick: int, output: bytes | None) -> None:
        """Append the output of a tick, None if only windows count the tick. A full frame is closed.

        Raises:
            sqlite3.Error: the output, or its frame, is not durable. The tick must not be drawn again; a frame that
                could not be written is tried again.
            OutboxFullError: there is no room.
            OutboxError: the tick is not later than every tick before.
        """
        frame = self._open_frames[plan.stream]
        if tick <= frame.last_tick:
            raise OutboxError(f"tick {tick} of stream {plan.stream} was committed before")
        frame.drawn.note(tick, plan.version, plan.noise_bound)
        self.reserve(plan, tick)
        row = None if plan.noise is None or output is None else (plan.version, plan.frame_ticks, plan.noise.bits)
        if self._by_tick:
            with self._commit(is_forced=False):
                self._db.execute("UPDATE streams SET reserved = ? WHERE stream = ?", (tick, plan.stream))
                if row is not None:
                    self._db.execute("INSERT INTO pending VALUES (?, ?, ?, ?, ?, ?)", (plan.stream, tick, output, *row))
            frame.reserved_tick = tick
        frame.last_tick = tick
        if row is None or output is None:
            return
        frame.add(tick, output, *row)
        frame.stored_count = len(frame.outputs) if self._by_tick else frame.stored_count
        if len(frame.outputs) >= plan.frame_ticks:
            self._seal_frame(plan, frame, tick + plan.frame_ticks)

    def close_frame(self, plan: StreamPlan) -> None:
        """Close the frame under way, if it has outputs, and force it to disk."""
        if (frame := self._open_frames[plan.stream]).outputs:
            self._seal_frame(plan, frame, frame.reserved_tick)

    def finish(self) -> None:
        """Close all frames, and give back the ticks that are reserved beyond them. Call this after the last draw."""
        with self._commit():
            for stream, frame in self._open_frames.items():
                self._write_frame(stream, frame, frame.last_tick)
        for frame in self._open_frames.values():
            self._note_written(frame, frame.last_tick)

    def append_windows(self, plan: StreamPlan, windows: Sequence[tuple[Window, int, int, Sequence[int]]]) -> None:
        """Force frames of the noisy counts of ended windows to disk, with the outputs of their ticks.

        Each window is given by its definition, its index, the number of its ticks that were drawn, and its counts.
        After sqlite3.Error or OutboxFullError the counts must not be released any other way. Raises OutboxError for a
        window that is not later than every committed window of its name.
        """
        frame = self._open_frames[plan.stream]
        reserved_tick = max(frame.reserved_tick, frame.last_tick)
        frame.drawn.changed |= plan.noise is None  # no frame of symbols makes these ticks durable
        with self._commit():
            for window, window_index, observed, counts in windows:
                window_ticks = window.first(window_index), window.length
                head_fields = plan.version, frame.shift, window.name, window_ticks
                encode = partial(window_frame, *head_fields, index=window_index, observed=observed, counts=counts)
                self._store_window((plan.stream, window.name), window_index, encode)
            if reserved_tick > frame.reserved_tick:
                self._db.execute("UPDATE streams SET reserved = ? WHERE stream = ?", (reserved_tick, plan.stream))
            pending_rows = [(plan.stream, *row) for row in frame.unstored_rows()]
            self._db.executemany("INSERT INTO pending VALUES (?, ?, ?, ?, ?, ?)", pending_rows)
        frame.reserved_tick = reserved_tick
        frame.stored_count = len(frame.outputs)

    def close(self) -> None:
        """Store deletions and the counter that wait for a transaction, and close the file."""
        with suppress(sqlite3.Error):
            if self.frames.covered_count or self.counter != self._stored_counter:
                with self._commit(is_forced=False):
                    pass
        self._db.close()

    @contextmanager
    def _commit(self, *, is_forced: bool = True) -> Iterator[None]:
        """Run a transaction, which also stores the watermark counter and changed rows of drawn ticks."""
        counter = self.counter
        changed_ticks = [frame.drawn for frame in self._open_frames.values() if frame.drawn.changed]
        with self.frames.transaction(is_forced=is_forced):
            if counter != self._stored_counter:
                self._db.execute("UPDATE device SET counter = ?", (str(counter),))
            for ticks in changed_ticks:
                ticks.store(self._db)
            yield
        self._stored_counter = counter
        for ticks in changed_ticks:
            ticks.note_stored()

    def _store_window(self, window_key: tuple[str, str], index: int, encode: Callable[[int], bytes]) -> None:
        """Store the frame or report of a window, in a transaction; `encode` takes the index of the window before."""
        query = "SELECT last_index FROM intact_windows WHERE stream = ? AND window = ?"
        (last_index,) = self._db.execute(query, window_key).fetchone()
        if last_index >= index:
            raise OutboxError(f"window {index} of {sequence_name(*window_key)} was committed before")
        payload = encode(last_index)
        if not self.frames.make_room(len(payload)):
            raise self._full_error()
        self._db.execute("UPDATE windows SET last_index = ? WHERE stream = ? AND window = ?", (index, *window_key))
        self.frames.add(sequence_name(*window_key), last_index, index, payload)

    def _begin_frame(self, plan: StreamPlan, frame: OpenFrame, frame_end: int) -> None:
        frame_bytes = _frame_bytes(plan)
        if (has_room := self.frames.can_take(frame_bytes)) and not (self._by_tick and self.frames.fits(frame_bytes)):
            with self._commit(is_forced=not self._by_tick):
                if (has_room := self.frames.make_room(frame_bytes)) and not self._by_tick:
                    self._db.execute("UPDATE streams SET reserved = ? WHERE stream = ?", (frame_end, plan.stream))
            if has_room and not self._by_tick:
                frame.reserved_tick = frame_end
        if not has_room:
            raise self._full_error()

    def _full_error(self) -> OutboxFullError:
        return OutboxFullError(f"the {self.frames.keeping.max_bytes} bytes that it may take are used")

    def _seal_frame(self, plan: StreamPlan, frame: OpenFrame, frame_end: int) -> None:
        """Write the frame under way, and reserve ticks up to `frame_end` if there is room for their frame."""
        with self._commit():
            reserved_tick = frame.reserved_tick
            if not self._by_tick and self.frames.make_room(_frame_bytes(plan)):
                reserved_tick = max(reserved_tick, frame_end)
            self._write_frame(plan.stream, frame, reserved_tick)
        self._note_written(frame, reserved_tick)

    def _write_frame(self, stream: str, frame: OpenFrame, reserved_tick: int) -> None:
        last_framed = frame.last_framed
        if frame.outputs:
            last_framed = frame.first + len(frame.outputs) - 1
            self.frames.add(stream, frame.last_framed, last_framed, frame.encode())
            self._db.execute("DELETE FROM pending WHERE stream = ?", (stream,))
        query = "UPDATE streams SET reserved = ?, last_framed = ? WHERE stream = ?"
        self._db.execute(query, (reserved_tick, last_framed, stream))

    def _note_written(self, frame: OpenFrame, reserved_tick: int) -> None:
        if frame.outputs:
            frame.last_framed = frame.first + len(frame.outputs) - 1
            frame.outputs, frame.stored_count = [], 0
        frame.reserved_tick = reserved_tick


def _frame_bytes(plan: StreamPlan) -> int:
    return 64 + plan.frame_ticks * (1 if plan.noise is None or plan.noise.bits else 16)
