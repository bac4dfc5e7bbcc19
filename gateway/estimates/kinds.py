"""Kinds of frames: the protocol by which one recorder and one intake serve all of them, and counts of windows.

Of two noisy counts of one window the first is kept, and what the second would tell beside it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from fugu.contract.errors import Reason, RefusedError
from fugu.contract.frames import SymbolFrame, WindowFrame, sequence_name
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.policy import Policy
from fugu.contract.reports import CONFIDENCE, Estimate, WindowCount
from fugu.contract.windows import noise_within
from gateway.estimates.beliefs import SymbolModel
from gateway.store.coverage import FrameSpan, Place
from gateway.store.journal import wall_time
from gateway.store.store import Store

if TYPE_CHECKING:
    from gateway.estimates.catalogue import Catalogue

__all__ = ["Kind", "Windows", "window_count"]


Frame = TypeVar("Frame", SymbolFrame, MeasureFrame, WindowFrame)


class Kind(Protocol[Frame]):
    """How frames of one kind are read, checked, stored and estimated from; by itself, for a stream's own ticks.

    `counter` begins the names of its counters `stored`, `duplicate` and `conflict`. `ignored_fields` are fields that
    say nothing of their own, as they are put to compare frames.
    """

    counter: str
    ignored_fields: ClassVar[dict[str, Any]] = {"padding": 0, "previous": -1}

    @staticmethod
    def decode(payload: bytes) -> Frame:
        """Parse a frame. Raises the subclass of FrameError that says what is wrong."""

    @staticmethod
    def verify(catalogue: Catalogue, device: str, stream: str, frame: Frame) -> None:
        """Check a frame against the policy that it names. Raises the FuguError that says what is wrong."""

    @staticmethod
    def sequence(stream: str, frame: Frame) -> str:
        """The name under which frames like this one are stored, and reported to their device."""
        del frame
        return stream

    @staticmethod
    def span(frame: Frame) -> FrameSpan:
        """Interval that a frame accounts for."""
        return FrameSpan(frame.previous, frame.first, frame.last)

    @classmethod
    def same(cls, stored: Frame, frame: Frame) -> bool:
        """True if two frames say the same; neither how one was filled up nor what is before it matters."""
        return replace(stored, **cls.ignored_fields) == replace(frame, **cls.ignored_fields)

    def overlapping(self, key: Place, frame: Frame) -> Frame | None:
        """A stored frame that has a part in common with the given one."""

    def add(self, key: Place, frame: Frame, counts: Counter[str], *, late: bool) -> None:
        """Store a frame that overlaps no other, and what it determines; `late` if it is not after all others."""

    def revise(self, key: Place, late: Sequence[int]) -> None:
        """Bring what later frames determine to what it would be had the late ones, ascending, come in time."""
        return

    def report(self, key: Place, first: int) -> Estimate | WindowCount | None:
        """Report about the frame at a tick or window index; `None` if it is gone. Raises FuguError."""
        return None


class Windows(Kind[WindowFrame]):
    """The kind of frames of window counts; each window's are a sequence of their own."""

    counter = "windows_"
    ignored_fields: ClassVar = {"previous": -1}

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._frames = store.windows
        self._catalogue = catalogue

    decode = staticmethod(WindowFrame.decode)

    @staticmethod
    def verify(catalogue: Catalogue, device: str, stream: str, frame: WindowFrame) -> None:
        """Check that the policy has this window, with these ticks and so many counts."""
        policy = catalogue.find(device, stream, frame.policy_version, SymbolModel).policy
        if (window := policy.window(frame.window)) is None:
            raise RefusedError(f"policy version {policy.version} has no window {frame.window}", Reason.UNKNOWN_WINDOW)
        if not window.covers(frame.index, frame.first, frame.length):
            raise RefusedError(
                f"window {frame.index} of {frame.window} has other ticks than its policy says", Reason.WINDOW_MISMATCH
            )
        if len(frame.counts) != len(window.groups(policy.discretiser.states)):
            raise RefusedError(f"{len(frame.counts)} counts in window {frame.window}", Reason.WINDOW_MISMATCH)

    @staticmethod
    def sequence(stream: str, frame: WindowFrame) -> str:
        """The window's own."""
        return sequence_name(stream, frame.window)

    @staticmethod
    def span(frame: WindowFrame) -> FrameSpan:
        """The window's index."""
        return FrameSpan(frame.previous, frame.index, frame.index)

    def overlapping(self, key: Place, frame: WindowFrame) -> WindowFrame | None:
        """The stored frame of the same window."""
        return self._frames.at(key.number, frame.index)

    def add(self, key: Place, frame: WindowFrame, _counts: Counter[str], *, late: bool) -> None:
        """Store a frame, and queue its report."""
        del late  # nothing depends on the order of windows
        self._frames.add(key.number, frame)
        self._store.queue_estimates(key.number, frame.index)

    def report(self, key: Place, first: int) -> WindowCount | None:
        """The counts of the window of an index."""
        if (frame := self._frames.at(key.number, first)) is None:
            return None
        model = self._catalogue.recall(key.device, key.stream, frame.policy_version, SymbolModel)
        return window_count(model.policy, frame)


def window_count(policy: Policy, frame: WindowFrame) -> WindowCount:
    """The report of a window that a device has counted."""
    window = policy.window(frame.window)
    assert window is not None
    labels = policy.discretiser.states
    states = tuple(labels[state] for state in window.counted(labels))
    error_95 = noise_within(Fraction(window.scale), CONFIDENCE)

    def time_of(tick: int, shift: int) -> datetime:
        return wall_time(policy.clock, tick - shift)

    return WindowCount.of(frame, window, states, error_95, time_of, policy.guarantee, policy.useful_for)
