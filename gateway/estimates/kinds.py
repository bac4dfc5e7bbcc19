"""Kinds of frames: the protocol by which one recorder and one intake serve all of them, and counts of windows.

Of two noisy counts of one window only the first is stored, so that no reader learns from both.
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
from fugu.contract.windows import noise_half_width
from gateway.estimates.beliefs import SymbolModel
from gateway.store.coverage import FrameSpan, Place
from gateway.store.journal import wall_time
from gateway.store.store import Store

if TYPE_CHECKING:
    from gateway.estimates.catalogue import Catalogue

__all__ = ["Kind", "Windows", "window_count"]


Frame = TypeVar("Frame", SymbolFrame, MeasureFrame, WindowFrame)


class Kind(Protocol[Frame]):
    """Reading, checks, storage and estimates of one kind of frames; the defaults suit frames of a stream's own ticks.

    `counter` begins the names of the counters `stored`, `duplicate` and `conflict`. `ignored_fields` are fields without
    information, with the values that they get before frames are compared.
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
        """Return the name under which a frame is stored, and acknowledged to its device."""
        del frame
        return stream

    @staticmethod
    def span(frame: Frame) -> FrameSpan:
        """Return the interval that a frame accounts for."""
        return FrameSpan(frame.previous, frame.first, frame.last)

    @classmethod
    def has_same_content(cls, stored: Frame, frame: Frame) -> bool:
        """Return whether two frames have the same content, without regard to padding and to the tick before."""
        return replace(stored, **cls.ignored_fields) == replace(frame, **cls.ignored_fields)

    def overlapping(self, place: Place, frame: Frame) -> Frame | None:
        """Return a stored frame that overlaps a frame, `None` if there is none."""

    def add(self, place: Place, frame: Frame, counts: Counter[str], *, late: bool) -> None:
        """Store a frame that overlaps no other, and its consequences; `late` if a stored frame follows it."""

    def revise(self, place: Place, late_firsts: Sequence[int]) -> None:
        """Compute the results of later frames again, as if the late frames, in tick order, had come in time."""
        return

    def report(self, place: Place, frame_key: int) -> Estimate | WindowCount | None:
        """Return the report of the frame at a tick or window index; `None` if it is gone. Raises FuguError."""
        return None


class Windows(Kind[WindowFrame]):
    """The kind of frames of window counts; the frames of each window are a sequence of their own."""

    counter = "windows_"
    ignored_fields: ClassVar = {"previous": -1}

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue

    decode = staticmethod(WindowFrame.decode)

    @staticmethod
    def verify(catalogue: Catalogue, device: str, stream: str, frame: WindowFrame) -> None:
        """Check that the policy has this window, with these ticks and this number of counts."""
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
        """Return the name of the window's own sequence."""
        return sequence_name(stream, frame.window)

    @staticmethod
    def span(frame: WindowFrame) -> FrameSpan:
        """Return the window's index as an interval."""
        return FrameSpan(frame.previous, frame.index, frame.index)

    def overlapping(self, place: Place, frame: WindowFrame) -> WindowFrame | None:
        """Return the stored frame of the same window, `None` if there is none."""
        return self._store.windows.at(place.number, frame.index)

    def add(self, place: Place, frame: WindowFrame, _counts: Counter[str], *, late: bool) -> None:
        """Store a frame, and queue its report."""
        del late  # nothing depends on the order of windows
        self._store.windows.add(place.number, frame)
        self._store.queue_estimates(place.number, frame.index)

    def report(self, place: Place, index: int) -> WindowCount | None:
        """Return the counts of the window with an index, `None` if they are gone."""
        if (frame := self._store.windows.at(place.number, index)) is None:
            return None
        policy_model = self._catalogue.recall(*place.device_and_stream, frame.policy_version, SymbolModel)
        return window_count(policy_model.policy, frame)


def window_count(policy: Policy, frame: WindowFrame) -> WindowCount:
    """Return the report of a window that a device has counted."""
    window = policy.window(frame.window)
    assert window is not None
    labels = policy.discretiser.states
    states = tuple(labels[state] for state in window.counted(labels))
    error_95 = noise_half_width(Fraction(window.scale), CONFIDENCE)

    def time_of(tick: int, shift: int) -> datetime:
        return wall_time(policy.clock, tick - shift)

    return WindowCount.of(frame, window, states, error_95, time_of, policy.guarantee, policy.useful_for)
