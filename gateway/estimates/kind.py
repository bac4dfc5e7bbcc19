"""The protocol of a kind of streams, so that one recorder and one intake serve all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, TypeVar

from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.reports import Estimate, WindowCount
from gateway.estimates.catalogue import Catalogue
from gateway.store.coverage import FrameSpan, Place

__all__ = ["Kind"]


Frame = TypeVar("Frame", SymbolFrame, MeasureFrame, WindowFrame)


class Kind(Protocol[Frame]):
    """How frames of one kind are read, checked, stored and estimated from; by itself, for a stream's own ticks.

    `counter` begins the names of its counters `stored`, `duplicate` and `conflict`.
    """

    counter: str

    @staticmethod
    def decode(payload: bytes) -> Frame:
        """Parse a frame. Raises the subclass of FrameError that says what is wrong."""
        ...

    @staticmethod
    def verify(catalogue: Catalogue, device: str, stream: str, frame: Frame) -> None:
        """Check a frame against the policy that it names. Raises the FuguError that says what is wrong."""
        ...

    @staticmethod
    def sequence(stream: str, frame: Frame) -> str:
        """The name under which frames like this one are stored, and reported to their device."""
        del frame
        return stream

    @staticmethod
    def span(frame: Frame) -> FrameSpan:
        """Interval that a frame accounts for."""
        return FrameSpan(frame.previous, frame.first, frame.last)

    @staticmethod
    def same(stored: Frame, frame: Frame) -> bool:
        """True if two frames say the same; neither how one was filled up nor what is before it matters."""
        ...

    def overlapping(self, place: Place, frame: Frame) -> Frame | None:
        """A stored frame that has a part in common with the given one."""
        ...

    def add(self, place: Place, frame: Frame, counted: Counter[str], *, late: bool) -> None:
        """Store a frame that overlaps no other, and what it determines; `late` if it is not after all others."""
        ...

    def revise(self, place: Place, late: Sequence[int]) -> None:
        """Bring what later frames determine to what it would be had the late ones, ascending, come in time."""
        return

    def report(self, place: Place, first: int) -> Estimate | WindowCount | None:
        """Report about the frame at a tick or window index; `None` if it is gone. Raises FuguError."""
        return None
