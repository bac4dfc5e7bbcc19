"""Windows: noisy counts, which are stored and reported as they come.

Of two noisy counts of one window the first is kept, and what the second would tell beside it is not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fugu.contract.errors import FuguError, Reason
from fugu.contract.frames import WindowFrame, sequence_name
from fugu.contract.reports import WindowCount
from gateway.service.kinds.kind import Kind, Place, Span
from gateway.service.kinds.reporting import window_count
from gateway.service.kinds.symbol_model import SymbolModel
from gateway.service.policies import Catalogue
from gateway.service.store import Store

__all__ = ["Windows"]


class UnknownWindowError(FuguError, reason=Reason.UNKNOWN_WINDOW):
    """The policy that the frame names has no such window."""


class WindowMismatchError(FuguError, reason=Reason.WINDOW_MISMATCH):
    """The window's ticks, or its number of counts, are not those of the policy that the frame names."""


class Windows(Kind[WindowFrame]):
    """The kind of frames of window counts; each window's are a sequence of their own."""

    counter = "windows_"

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
            raise UnknownWindowError(f"policy version {policy.version} has no window {frame.window}")
        if not window.covers(frame.index, frame.first, frame.length):
            raise WindowMismatchError(f"window {frame.index} of {frame.window} has other ticks than its policy says")
        if len(frame.counts) != window.counts(len(policy.discretiser.states)):
            raise WindowMismatchError(f"{len(frame.counts)} counts in window {frame.window}")

    @staticmethod
    def sequence(stream: str, frame: WindowFrame) -> str:
        """The window's own."""
        return sequence_name(stream, frame.window)

    @staticmethod
    def span(frame: WindowFrame) -> Span:
        """The window's index."""
        return Span(frame.previous, frame.index, frame.index)

    @staticmethod
    def same(stored: WindowFrame, frame: WindowFrame) -> bool:
        """Whether two frames say the same; what is before one does not matter."""
        return replace(stored, previous=-1) == replace(frame, previous=-1)

    def overlapping(self, place: Place, frame: WindowFrame) -> WindowFrame | None:
        """The stored frame of the same window."""
        return self._frames.at(place.number, frame.index)

    def add(self, place: Place, frame: WindowFrame, _counted: Counter[str], *, late: bool) -> None:
        """Store a frame, and queue its report."""
        del late  # nothing depends on the order of windows
        self._frames.add(place.number, frame)
        self._store.queue_estimates(place.number, frame.index)

    def report(self, place: Place, first: int) -> WindowCount | None:
        """The counts of the window of an index."""
        if (frame := self._frames.at(place.number, first)) is None:
            return None
        known = self._catalogue.recall(place.device, place.stream, frame.policy_version, SymbolModel)
        return window_count(known.policy, frame)
