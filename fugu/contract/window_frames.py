"""Frames of window counts, schema 5: how often a stream was in which states, with noise added on the device.

A window's frames are a sequence of their own. In a `committed` message it is called `{stream}/{window}`, and its
windows are numbered by their index where a stream's symbols are by their tick.
"""

import struct
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from fugu.contract.errors import FrameRangeError
from fugu.contract.frames import MAX_TICK, MAX_WINDOW_NAME, TICK, PolicyVersion, Shift, check_ticks
from fugu.contract.message import Field, Integer, Many, Message, Text, integer

__all__ = [
    "COUNT_HIGH",
    "COUNT_LOW",
    "MAX_COUNTS",
    "MAX_WINDOW_TICKS",
    "WINDOW_NAME_PATTERN",
    "WindowFrame",
    "sequence_name",
]

WINDOW_NAME_PATTERN: Final = f"^[A-Za-z0-9_-]{{1,{MAX_WINDOW_NAME}}}$"
MAX_WINDOW_TICKS: Final = 2**31
MAX_COUNTS: Final = 255
COUNT_LOW, COUNT_HIGH = -(2**63), 2**63 - 1


def sequence_name(stream: str, window: str) -> str:
    """The name of a window's sequence beside the streams of its device."""
    return f"{stream}/{window}"


# Frames of a window have one size, whatever was counted: the integers are written in msgpack's widest forms (0xce:
# 32 bits unsigned, 0xd3: 64 bits signed, 0xd9: string of 8-bit length, 0xdc: array of 16-bit length).
_HEAD = struct.Struct(">BBBIBqBB")
_MIDDLE = struct.Struct(">BqBqBqBIBIBH")
_COUNT = struct.Struct(">Bq")


@dataclass(frozen=True, slots=True)
class WindowFrame(Message):
    """The noisy counts of one window."""

    SCHEMA: ClassVar[int] = 5
    LAYOUT: ClassVar[tuple[str | Field, ...]] = (
        *("policy_version", "shift", "window", "previous", "index", "first", "length", "observed", "counts"),
    )

    policy_version: PolicyVersion
    window: Annotated[str, Text(1, MAX_WINDOW_NAME, WINDOW_NAME_PATTERN), "Which of the policy's windows."]
    previous: Annotated[
        int,
        Integer(-1, MAX_TICK),
        "Index of the device's frame before this one of the same window, -1 for its first; no window between "
        "`previous` and `index` is ever released.",
    ]
    index: Annotated[int, TICK, "Number of this window: `first` = start + index * stride."]
    first: Annotated[int, TICK, "Its first tick."]
    length: Annotated[int, Integer(1, MAX_WINDOW_TICKS), "Its number of ticks."]
    observed: Annotated[
        int,
        Integer(1, MAX_WINDOW_TICKS),
        "Ticks that the device has observed, at most `length`; the others (it did not run, or its baseline had no mean "
        "yet) are in no count.",
    ]
    counts: Annotated[
        tuple[int, ...],
        Many(Integer(COUNT_LOW, COUNT_HIGH), 1, MAX_COUNTS, "a count"),
        "Ticks in the counted states (one count), or in each state (a histogram), each with discrete Laplace noise of "
        "its own, so below zero at times.",
    ]
    shift: Shift = 0

    def _consistent(self) -> None:
        if self.observed > self.length:
            integer(self.observed, 1, self.length, "observed")
        if self.previous >= self.index:
            raise FrameRangeError(f"previous index {self.previous} is not before the index {self.index}")
        check_ticks(-1, self.first, self.last, self.shift)

    @property
    def last(self) -> int:
        """Its last tick."""
        return self.first + self.length - 1

    def encode(self) -> bytes:
        """Bytes of the frame; their number depends only on the window's name and the number of counts."""
        name = self.window.encode()
        head = _HEAD.pack(self.SCHEMA, 0x99, 0xCE, self.policy_version, 0xD3, self.shift, 0xD9, len(name))
        numbers = (0xD3, self.previous, 0xD3, self.index, 0xD3, self.first, 0xCE, self.length, 0xCE, self.observed)
        middle = _MIDDLE.pack(*numbers, 0xDC, len(self.counts))
        return head + name + middle + b"".join(_COUNT.pack(0xD3, count) for count in self.counts)
