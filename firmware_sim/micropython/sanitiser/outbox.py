"""The outbox of a stream on a board: sealed segments, each written once, as a whole, and deleted when it is safe.

A segment holds the frames that ended at one tick, and the state for a restart. The state has the last reserved tick,
the last framed tick and window, the clock's shift, and the newest watermark's counter. The file system littlefs writes
a file at one moment, when it is closed; on other file systems checksums show torn files. So a power cut leaves a whole
segment or none. No tick up to the reserved tick of the newest whole segment is ever drawn again. Each segment has the
state twice, so that a bit that turns in the flash may cost frames, but never the state.

To write a segment with a frame also reserves the ticks of the next frame. The newest segment stays, even if all its
frames are safe elsewhere.
"""

import os
import struct

from fugu.core.trust import short_digest

_MAGIC = b"FGS\x02"
_HEAD = ">4sIqqqqqqQB"
_CHECK = 16
_SPARE_BLOCKS = 4
_READ_TRIES = 8


class OutboxError(Exception):
    """The outbox is that of a stream with another clock."""


class Outbox:
    """The segments of one stream, in a folder that is made.

    OutboxError if its segments are of another clock, OSError if the newest cannot be read. It is not taken for damaged
    then: an older one does not have all reserved ticks.

    No tick above `reserved` was ever drawn. `last_framed` is the last tick of the newest frame. `indices` has, by the
    name of a window, the index of the last one that was released. `clock` is epoch and period in microseconds. Numbers
    are ahead of the wall clock by `shift` ticks from the tick `since` on. `counter` is that of the newest watermark.
    `newest` and `oldest` are the ids of the newest and the oldest segment; `newest` is 0 if there is none.
    """

    def __init__(self, folder: str, policy) -> None:
        self._folder = folder
        self.clock = policy.epoch_us, policy.period_us
        self.expect(policy)
        self.reserved = self.last_framed = -1
        self.indices = {}
        self.shift = self.since = self.counter = self.newest = self._spent = self._failed_reads = 0
        self._waiting = []
        self._covered = {}
        for offset in range(1, len(folder) + 1):
            if folder[offset : offset + 1] in ("", "/"):
                try:
                    os.mkdir(folder[:offset])
                except OSError:
                    pass  # it is there, or writing will say what is wrong
        ids = sorted(int(file[0], 16) for file in os.ilistdir(folder))
        while ids:
            try:
                segment = self._load(ids[-1])
            except OSError:
                raise OSError("newest segment unreadable: flash an image of a new device") from None
            if segment:
                break
            os.remove(self._path(ids.pop()))  # cut off while it was written
        self.oldest = ids[0] if ids else 1
        if ids:
            self.newest, packed_state = ids[-1], segment[0]
            _, _, *clock, self.reserved, self.last_framed, self.shift, self.since, self.counter, windows = (
                struct.unpack_from(_HEAD, packed_state)
            )
            if tuple(clock) != self.clock:
                raise OutboxError("another clock")
            offset = struct.calcsize(_HEAD)
            for _ in range(windows):
                name_length, index = struct.unpack_from(">Bq", packed_state, offset)
                self.indices[packed_state[offset + 9 : offset + 9 + name_length].decode()] = index
                offset += 9 + name_length

    def expect(self, policy) -> None:
        """Let `fits` check for room for a frame of this policy."""
        self._frame_bytes = 256 + policy.frame_ticks * policy.bits // 8

    @property
    def depth(self) -> int:
        """Number of segments whose frames are not known to be safe elsewhere, roughly."""
        return self.newest - self.oldest + 1

    def fits(self) -> bool:
        """True if the file system has room for another segment."""
        block, _, _, free = os.statvfs(self._folder)[:4]
        return free >= _SPARE_BLOCKS + self._frame_bytes // block

    def reserve(self, last_tick: int) -> None:
        """Reserve the ticks up to `last_tick`, so that none is drawn twice; after an OSError they must not be drawn."""
        if last_tick > self.reserved or self._waiting:
            self.seal([], last_tick)

    def set_shift(self, shift: int, since_tick: int) -> None:
        """Store a shift that holds from a tick on."""
        if (shift, since_tick) != (self.shift, self.since):
            self.seal([], self.reserved, shift, since_tick)

    def seal(self, frames: list, reserved: int, shift=None, since_tick=None) -> None:
        """Write a segment with ended frames, each (sequence, previous, last, bytes), and the last reserved tick.

        Raises:
            OSError: nothing was written. The frames stay in memory for the next segment; draw nothing until then.
        """
        self._waiting += frames
        if shift is None:
            shift, since_tick = self.shift, self.since
        last_framed, indices = self.last_framed, dict(self.indices)
        for name, _, last, _ in self._waiting:
            window = name.partition("/")[2]
            if window:
                indices[window] = last
            else:
                last_framed = last
        reserved = max(reserved, self.reserved, last_framed)
        new_id = self.newest + 1
        head = (_MAGIC, new_id) + self.clock + (reserved, last_framed, shift, since_tick, self.counter, len(indices))
        state = bytearray(struct.pack(_HEAD, *head))
        for window in sorted(indices):
            state += struct.pack(">Bq", len(window), indices[window]) + window.encode()
        state += short_digest(state)
        packed_frames = bytearray([len(self._waiting)])
        for name, previous, last, frame in self._waiting:
            packed_frames += struct.pack(">BqqH", len(name), previous, last, len(frame)) + name.encode() + frame
        segment = state + packed_frames + short_digest(packed_frames) + state + struct.pack(">H", len(state))
        with open(self._path(new_id), "wb") as file:
            file.write(segment)
        self._waiting = []
        if self._spent:
            self._remove(self._spent)
            self._spent = 0
        self.newest, self.reserved, self.last_framed, self.indices = new_id, reserved, last_framed, indices
        self.shift, self.since = shift, since_tick

    def next(self, after_id: int):
        """Return the id, and the frames not known to be safe, of the next segment that has any; None without one."""
        segment_id = max(after_id + 1, self.oldest)
        while segment_id <= self.newest:
            segment = self._read(segment_id)
            if segment:
                frames = [frame for frame in segment[1] if not self._is_covered(*frame)]
                if frames:
                    return segment_id, frames
            segment_id += 1
        return None

    def forget_committed(self, commits: list, sent_id: int) -> bool:
        """Forget frames that are durable elsewhere, by (sequence, through, gaps), up to the segment `sent_id`.

        A segment that cannot be read is tried again at the next calls, and is then given up.
        True if the gateway misses the oldest segment that is left, though it has later frames.
        """
        for name, last_tick, gaps in commits:
            self._covered[name] = last_tick, gaps
        while self.oldest <= min(sent_id, self.newest):
            segment = self._read(self.oldest)
            if segment is None and self._failed_reads < _READ_TRIES:
                self._failed_reads += 1
                return False
            self._failed_reads = 0
            frames = segment[1] if segment else []
            if not all(self._is_covered(*frame) for frame in frames):
                return any(last <= self._covered.get(name, (-1, []))[0] for name, _, last, _ in frames)
            self.forget(self.oldest)
        return False

    def _is_covered(self, name: str, previous: int, last: int, _frame: bytes) -> bool:
        last_tick, gaps = self._covered.get(name, (-1, []))
        return last <= last_tick and not any(previous < high and last > low for low, high in gaps)

    def forget(self, segment_id: int) -> None:
        """Forget the segments up to an id, which the broker has."""
        while self.oldest <= segment_id:
            if self.oldest == self.newest:
                self._spent = self.newest  # it is removed when there is a newer one
            else:
                self._remove(self.oldest)
            self.oldest += 1

    def _remove(self, segment_id: int) -> None:
        try:
            os.remove(self._path(segment_id))
        except OSError:
            pass  # it does not exist, or the next start finds it

    def _path(self, segment_id: int) -> str:
        return "%s/%08x" % (self._folder, segment_id)

    def _read(self, segment_id: int):
        """Read a segment as `_load` does; None also if it is missing, or cannot be read."""
        try:
            return self._load(segment_id)
        except OSError:
            return None

    def _load(self, segment_id: int):
        """Read the state and the frames of a segment; None if its state is damaged. OSError if it cannot be read."""
        with open(self._path(segment_id), "rb") as file:
            segment = file.read()
        end = len(segment) - 2
        state, second_state = _read_state(segment, 0), None
        if end > 0:
            begin = end - struct.unpack_from(">H", segment, end)[0]
            second_state = _read_state(segment, begin) if begin > 0 else None
            if second_state and begin + len(second_state) != end:
                second_state = None
        state = state or second_state
        state_length = len(state or b"")
        body = segment[state_length : end - state_length]
        if not state or len(body) <= _CHECK or short_digest(body[:-_CHECK]) != body[-_CHECK:]:
            # Damaged in the middle, or cut off before the end.
            return second_state and (second_state, [])
        return state, _decode_frames(body)


def _read_state(segment: bytes, begin: int):
    """Return the state that begins at an offset, with its checksum; None if it is damaged."""
    offset = begin + struct.calcsize(_HEAD)
    if begin < 0 or segment[begin : begin + 4] != _MAGIC or offset > len(segment):
        return None
    for _ in range(segment[offset - 1]):
        if offset >= len(segment):
            return None
        offset += 9 + segment[offset]
    state = segment[begin : offset + _CHECK]
    return state if state[-_CHECK:] == short_digest(state[:-_CHECK]) else None


def _decode_frames(body: bytes) -> list:
    """Return (sequence, previous, last, bytes) of each frame of a segment."""
    offset, frames = 1, []
    for _ in range(body[0]):
        name_length, previous, last, frame_length = struct.unpack_from(">BqqH", body, offset)
        offset += 19
        start = offset + name_length
        frames.append((body[offset:start].decode(), previous, last, body[start : start + frame_length]))
        offset = start + frame_length
    return frames
