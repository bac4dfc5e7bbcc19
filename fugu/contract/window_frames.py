"""Frames of window counts, schema 5: how often a stream was in which states, with noise added on the device.

A window's frames are a sequence of their own. In a `committed` message it is called `{stream}/{window}`, and its
windows are numbered by their index where a stream's symbols are by their tick.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from fugu.contract._wire import each, fields, identity, integer, length, text
from fugu.contract.errors import FrameRangeError
from fugu.contract.frames import MAX_TICK, MAX_WINDOW_NAME

__all__ = [
    "MAX_COUNTS",
    "MAX_WINDOW_TICKS",
    "WINDOW_NAME_PATTERN",
    "WindowFrame",
    "decode_window",
    "encode_window",
    "sequence_name",
]

WINDOW = 5
WINDOW_NAME_PATTERN = f"^[A-Za-z0-9_-]{{1,{MAX_WINDOW_NAME}}}$"
MAX_WINDOW_TICKS = 2**31
MAX_COUNTS = 255
COUNT_LOW, COUNT_HIGH = -(2**63), 2**63 - 1
_NAME = re.compile(WINDOW_NAME_PATTERN)


def sequence_name(stream: str, window: str) -> str:
    """What a window's sequence is called beside the streams of its device."""
    return f"{stream}/{window}"


@dataclass(frozen=True, slots=True)
class WindowFrame:
    """The noisy counts of one window.

    Attributes:
        policy_version: version of the policy that says what is counted, and with how much noise.
        window: name of the window in that policy.
        previous: index of the device's frame before this one of the same window, -1 for its first; windows between
            `previous` and `index` are never released.
        index: number of this window; it begins at tick start + index * stride.
        first: its first tick.
        length: its number of ticks.
        observed: ticks on which the device was running; what the others were in is not counted.
        counts: ticks in the states that are counted, or in each state; with noise, so below zero at times.
        shift: by how many ticks the numbers are ahead of the wall clock: tick t is that of wall tick t - shift.
    """

    policy_version: int
    window: str
    previous: int
    index: int
    first: int
    length: int
    observed: int
    counts: tuple[int, ...]
    shift: int = 0

    def __post_init__(self) -> None:
        """Refuse values that no frame can hold."""
        integer(self.policy_version, 1, 2**32 - 1, "policy_version")
        text(self.window, 1, MAX_WINDOW_NAME, "window")
        integer(self.previous, -1, MAX_TICK, "previous")
        integer(self.index, 0, MAX_TICK, "index")
        integer(self.first, 0, MAX_TICK, "first")
        integer(self.length, 1, MAX_WINDOW_TICKS, "length")
        integer(self.observed, 1, self.length, "observed")
        length(self.counts, 1, MAX_COUNTS, "counts")
        integer(self.shift, 0, MAX_TICK, "shift")
        for count in self.counts:
            integer(count, COUNT_LOW, COUNT_HIGH, "a count")
        if not _NAME.fullmatch(self.window):
            raise FrameRangeError("the window's name holds more than letters, digits, '_' and '-'")
        if self.previous >= self.index:
            raise FrameRangeError(f"previous index {self.previous} is not before the index {self.index}")
        if self.shift > self.first:
            raise FrameRangeError(f"shift {self.shift} is above the first tick {self.first}")
        if self.last > MAX_TICK:
            raise FrameRangeError(f"last tick {self.last} is above {MAX_TICK}")

    @property
    def last(self) -> int:
        """Its last tick."""
        return self.first + self.length - 1


# Frames of a window have one size, whatever was counted: the integers are written in msgpack's widest forms (0xce:
# 32 bits unsigned, 0xd3: 64 bits signed, 0xd9: string of 8-bit length, 0xdc: array of 16-bit length).
_HEAD = struct.Struct(">BBBIBqBB")
_MIDDLE = struct.Struct(">BqBqBqBIBIBH")
_COUNT = struct.Struct(">Bq")


def encode_window(frame: WindowFrame) -> bytes:
    """Bytes of a window frame; their number depends only on the window's name and the number of counts."""
    name = frame.window.encode()
    head = _HEAD.pack(WINDOW, 0x99, 0xCE, frame.policy_version, 0xD3, frame.shift, 0xD9, len(name))
    numbers = (0xD3, frame.previous, 0xD3, frame.index, 0xD3, frame.first, 0xCE, frame.length, 0xCE, frame.observed)
    middle = _MIDDLE.pack(*numbers, 0xDC, len(frame.counts))
    return head + name + middle + b"".join(_COUNT.pack(0xD3, count) for count in frame.counts)


def decode_window(payload: bytes) -> WindowFrame:
    """Parse a window frame.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    version, shift, window, previous, index, first, ticks, observed, counts = fields(payload, WINDOW, 9)
    noisy = each(counts, identity, "counts")
    return WindowFrame(version, window, previous, index, first, ticks, observed, noisy, shift)
