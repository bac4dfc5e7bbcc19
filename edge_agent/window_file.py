"""Noisy counts of windows under way, on the device's disk: they outlast a restart of the agent.

A count has noise from its first moment, so one look at a count under way is private. Two looks are not: their
difference is exact. So a window has one record of a fixed size in a file of its own, beside the outbox and not in its
log. The record is rewritten in place when the window's quarters end, by the numbers of ticks alone. It is made blank
before the window's frame is made. At any moment the disk has at most one look at a window: its record, or its frame.

A record's checksum covers the outbox's salt, the policy's version, the discretiser, and the window with its noise. A
torn or foreign record, and a record of another policy, count as blank.
Source: docs/proofs/device-windows.md, "Restarts".
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from edge_agent.plan import StreamPlan
from fugu.contract.compiled import AgentWindow
from fugu.contract.frames import MAX_WINDOW_TICKS
from fugu.core.frames import COUNT_HIGH, COUNT_LOW
from fugu.core.windows import Counter, NoisyCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RecordedCounter", "Records", "WindowFile", "WindowRecord"]

_CHECK_BYTES = 16
_HEAD = Struct("<QQQ")
_COUNT_BYTES = 9


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """The noisy counts of a window under way: of its `observed` ticks up to tick `through`."""

    index: int
    through: int
    observed: int
    counts: tuple[int, ...]


Records = dict[tuple[str, str], list[WindowRecord]]
"""Records by stream and window."""


class RecordedCounter(Counter):
    """The windows of one definition under way, with records; windows of records go on if they have not ended.

    After a restart the ticks since a record are in no count, and the window says how many it has observed.

    Attributes:
        to_blank: slots of records, index modulo overlap, that are to be blank before anything is released.
    """

    window: AgentWindow

    def __init__(
        self,
        window: AgentWindow,
        draw: Callable[[int], int],
        last_index: int,
        since: int = 0,
        records: Iterable[WindowRecord] = (),
    ) -> None:
        counted_windows = [(record.index, record.observed, record.counts) for record in records]
        super().__init__(window, draw, last_index, since, counted_windows)
        self.to_blank = set(range(window.overlap)) - {index % window.overlap for index in self.counts}

    def end(self, index: int) -> NoisyCounts:
        """End a window and return its counts; its record is to be blank."""
        self.to_blank.add(index % self.window.overlap)
        return super().end(index)

    def records(self, tick: int) -> list[WindowRecord]:
        """Return the records of the windows whose first, second or third quarter ends at a tick.

        A count outside a record's bounds cannot come back into the bounds of a frame by later ticks.
        """
        bounds = COUNT_LOW - MAX_WINDOW_TICKS, COUNT_HIGH
        return [
            WindowRecord(index, tick, counts.observed, tuple(counts.look(*bounds)))
            for index in self.window.holding(tick)
            if (counts := self.counts.get(index)) is not None
            if self.window.is_recorded(index, tick)
        ]


class _Place(NamedTuple):
    """Place of the records of one definition in the file: `slots` records of `size` bytes from `offset` on."""

    offset: int
    slots: int
    size: int
    key: bytes

    def at(self, slot: int) -> slice:
        return slice(self.offset + slot * self.size, self.offset + (slot + 1) * self.size)

    def encode(self, record: WindowRecord) -> bytes:
        counts = (count.to_bytes(_COUNT_BYTES, "little", signed=True) for count in record.counts)
        record_body = _HEAD.pack(record.index, record.through, record.observed) + b"".join(counts)
        return self._checksum(record_body) + record_body

    def decode(self, record: bytes) -> WindowRecord | None:
        record_body = record[_CHECK_BYTES:]
        if len(record) != self.size or record[:_CHECK_BYTES] != self._checksum(record_body):
            return None
        packed_counts = (record_body[i : i + _COUNT_BYTES] for i in range(_HEAD.size, len(record_body), _COUNT_BYTES))
        index, through, observed = _HEAD.unpack_from(record_body)
        counts = tuple(int.from_bytes(packed, "little", signed=True) for packed in packed_counts)
        return WindowRecord(index, through, observed, counts)

    def _checksum(self, record_body: bytes) -> bytes:
        return sha256(self.key + record_body).digest()[:_CHECK_BYTES]


class WindowFile:
    """The file of records beside an outbox; records count only with the outbox of this salt."""

    def __init__(self, outbox: Path, salt: bytes) -> None:
        self.path = Path(f"{outbox}.windows")
        self._salt = salt
        self._places: dict[tuple[str, str], _Place] = {}

    def begin(self, plans: Sequence[StreamPlan], *, discard: bool = False) -> Records:
        """Return the records of these plans' windows; none if `discard`.

        Everything else in the file becomes blank. Raises OSError.
        """
        self._places, offset = {}, 0
        for plan in plans:
            for window in plan.windows:
                size = _CHECK_BYTES + _HEAD.size + window.counts * _COUNT_BYTES
                self._places[plan.stream, window.name] = _Place(offset, window.overlap, size, self._key(plan, window))
                offset += window.overlap * size
        try:
            old_content = self.path.read_bytes()
        except FileNotFoundError:
            old_content = b""
        new_content, records = bytearray(max(offset, len(old_content))), Records()
        for name, place in self._places.items():
            for slot in range(0 if discard else place.slots):
                slot_bytes = old_content[place.at(slot)]
                if (record := place.decode(slot_bytes)) is not None and record.index % place.slots == slot:
                    records.setdefault(name, []).append(record)
                    new_content[place.at(slot)] = slot_bytes
        if old_content or offset:
            with self._open() as file:
                _write(file, bytes(new_content), 0)
                os.ftruncate(file, offset)
        return records

    def keep(self, plan: StreamPlan, records: Iterable[tuple[AgentWindow, WindowRecord]]) -> None:
        """Force the counts of windows to disk, in the place of their earlier records. Raises OSError."""
        places = [(self._places[plan.stream, window.name], record) for window, record in records]
        self._rewrite((place.at(record.index % place.slots).start, place.encode(record)) for place, record in places)

    def blank(self, plan: StreamPlan, slots: Iterable[tuple[AgentWindow, int]]) -> None:
        """Make records blank, given by window and slot, and force that to disk. Raises OSError."""
        places = [(self._places[plan.stream, window.name], slot) for window, slot in slots]
        self._rewrite((place.at(slot).start, bytes(place.size)) for place, slot in places)

    def _rewrite(self, placed_pieces: Iterable[tuple[int, bytes]]) -> None:
        if sorted_pieces := sorted(placed_pieces):
            with self._open() as file:
                for offset, piece in sorted_pieces:
                    _write(file, piece, offset)

    @contextmanager
    def _open(self) -> Iterator[int]:
        """Open the file that is at the path now, also if it was put back from a copy; force it to disk at the end."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.fchmod(descriptor, 0o600)
                yield descriptor
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None

    def _key(self, plan: StreamPlan, window: AgentWindow) -> bytes:
        clock_fields = plan.epoch_us, plan.period_us
        key_fields = (plan.stream, plan.version, clock_fields, plan.discretiser.hex(), sorted(vars(window).items()))
        return sha256(self._salt + repr(key_fields).encode()).digest()


def _write(descriptor: int, piece: bytes, offset: int) -> None:
    if os.pwrite(descriptor, piece, offset) != len(piece):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
