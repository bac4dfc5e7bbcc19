"""Windows: noisy counts, which are stored as they come, and nothing follows from them.

Of two noisy counts of one window the first is kept, and what the second would tell beside it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from contract.errors import FuguError, Reason
from contract.frames import refuse_other_clock
from contract.window_frames import WindowFrame, decode_window, sequence_name
from gateway.service.kinds.kind import Kind, Place, Span
from gateway.service.kinds.symbol_model import SymbolModel
from gateway.service.policies import Catalogue
from gateway.service.store import Store

__all__ = ["Windows"]


class UnknownWindowError(FuguError, reason=Reason.UNKNOWN_WINDOW):
    """The policy that the frame names has no such window."""


class WindowMismatchError(FuguError, reason=Reason.WINDOW_MISMATCH):
    """The window's ticks, or its number of counts, are not those of the policy that the frame names."""


class Windows(Kind[WindowFrame]):
    """The kind of frames of window counts; each window's are a sequence of their own.

    Args:
        store: owned by the thread that calls.
    """

    counter = "windows_"

    def __init__(self, store: Store) -> None:
        self._frames = store.windows

    decode = staticmethod(decode_window)

    @staticmethod
    def verify(catalogue: Catalogue, device: str, stream: str, frame: WindowFrame) -> None:
        """Check that the policy has this window, with these ticks and so many counts."""
        refuse_other_clock(frame.clock_epoch)
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
        """Whether two frames say the same."""
        return stored == frame

    def overlapping(self, place: Place, frame: WindowFrame) -> WindowFrame | None:
        """The stored frame of the same window."""
        return self._frames.at(place.number, frame.window, frame.index)

    def add(self, place: Place, frame: WindowFrame, _counted: Counter[str], *, late: bool) -> None:
        """Store a frame."""
        del late  # nothing depends on the order of windows
        self._frames.add(place.number, frame)

    def estimates(self, _place: Place, _first: int) -> Iterator[bytes]:
        """None: what a device counted is not estimated again."""
        return iter(())
