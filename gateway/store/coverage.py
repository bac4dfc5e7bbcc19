"""The numbers of a sequence that are accounted for, and by how much they are ahead of the wall clock.

Intervals of accounted numbers are half open, (after, through], as in `fugu.contract.frames.Gap`. A frame accounts for
(previous, last]: the device says that numbers in (previous, first) never had a symbol. Watermarks follow from these
intervals.

A number is a device's own tick, or the index of a window. Less its shift, a tick number is the wall tick. Numbers only
go up: a device whose clock went back raises the shift, and never lowers it. So the numbers of one shift lie side by
side. Wall ticks come again after a clock went back; then a wall tick belongs to the newest shift that has begun by it.
A device is a part of a window if all wall ticks of the window belong to one shift.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fugu.contract.errors import FuguError, Reason
from fugu.contract.frames import MAX_GAPS, MAX_TICK, Gap, StreamCommit
from fugu.contract.windows import Window

__all__ = ["Coverage", "FrameSpan", "Place", "ShiftError", "Shifts", "Span"]


class Place(NamedTuple):
    """A sequence of frames in the store: of a stream under its name, or of a window under {stream}/{window}."""

    number: int
    device: str
    name: str

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return self.name.partition("/")[0]

    @property
    def device_and_stream(self) -> tuple[str, str]:
        """The names of device and stream."""
        return self.device, self.stream

    @property
    def window_name(self) -> str:
        """The name of the window; empty for a stream's own sequence."""
        return self.name.partition("/")[2]


class FrameSpan(NamedTuple):
    """The interval (previous, last] of a frame, and its first tick; for a frame of a window, indices of windows."""

    previous: int
    first: int
    last: int


class CoverageChange(NamedTuple):
    """The effect of adding an interval to a set.

    Attributes:
        absorbed: the beginnings of the old intervals that became part of the new one.
        after, through: the new interval (after, through].
    """

    absorbed: tuple[int, ...]
    after: int
    through: int


class Coverage:
    """A set of ticks as disjoint intervals (after, through] that do not touch; made from such pairs in any order."""

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self._after: list[int] = []
        self._through: list[int] = []
        for after, through in intervals:
            self.add(after, through)

    def add(self, after: int, through: int) -> CoverageChange | None:
        """Add the ticks (after, through]. Return the change; `None` if every tick was in the set before."""
        first_index = bisect_left(self._through, after)  # the first interval that reaches `after`
        end_index = bisect_right(self._after, through)  # the first interval that begins beyond `through`
        if first_index < end_index:
            if self._after[first_index] <= after and through <= self._through[first_index]:
                return None
            after = min(after, self._after[first_index])
            through = max(through, self._through[end_index - 1])
        absorbed_begins = tuple(self._after[first_index:end_index])
        self._after[first_index:end_index] = [after]
        self._through[first_index:end_index] = [through]
        return CoverageChange(absorbed_begins, after, through)

    @property
    def last(self) -> tuple[int, int]:
        """The last interval (after, through] of a set that is not empty."""
        return self._after[-1], self._through[-1]

    def extend(self, through: int) -> None:
        """Lengthen the last interval, if there is one, so that it reaches a tick."""
        if self._through and self._through[-1] < through:
            self._through[-1] = through

    def __len__(self) -> int:
        """The number of intervals."""
        return len(self._after)

    def holds(self, first: int, last: int) -> bool:
        """Tell whether all ticks first..last are in the set."""
        return bisect_left(self._through, last) < bisect_left(self._after, first)

    def meets(self, first: int, last: int) -> bool:
        """Tell whether any of the ticks first..last is in the set."""
        return bisect_left(self._through, first) < bisect_left(self._after, last)

    @property
    def end(self) -> int:
        """The last tick of the set, -1 if it is empty."""
        return self._through[-1] if self._through else -1

    @property
    def intervals(self) -> list[tuple[int, int]]:
        """The intervals as pairs (after, through), ascending."""
        return list(zip(self._after, self._through, strict=True))

    def commit(self, stream: str) -> StreamCommit:
        """The watermark of a stream; every tick up to its `through` is in the set or in a listed gap.

        If there are more gaps than a message can list, `through` ends where the first unlisted gap begins.
        """
        most_gaps = MAX_GAPS + 1
        gap_edges = zip([-1, *self._through[:most_gaps]], self._after[: most_gaps + 1], strict=False)
        gaps = [Gap(after, through) for after, through in gap_edges if after < through]
        if len(gaps) > MAX_GAPS:
            return StreamCommit(stream, gaps[MAX_GAPS].after, tuple(gaps[:MAX_GAPS]))
        return StreamCommit(stream, self.end, tuple(gaps))


MOST_SHIFTS = 256
"""Most shifts of a sequence: older ones are removed, and their numbers are in no window of a release."""


class ShiftError(FuguError, reason=Reason.SHIFT_FELL):
    """Raised if a frame's shift is below the shift of an earlier number, or above that of a later one."""


class Span(NamedTuple):
    """The tick numbers of frames under one shift; for the newest shift `last` may be out of date."""

    shift: int
    first: int
    last: int

    @property
    def wall(self) -> int:
        """The wall tick of the first number."""
        return self.first - self.shift


class Shifts:
    """The shifts of one sequence, in the order of its numbers."""

    def __init__(self, spans: Iterable[tuple[int, int, int]] = ()) -> None:
        self._spans = sorted(Span(*span) for span in spans)

    def add(self, shift: int, first: int, last: int, end: int) -> list[Span]:
        """Add the numbers first..last of a new frame. Return the spans that are new or have changed.

        `end` is the last number of any frame so far, or -1. Raises ShiftError if an earlier number has a larger shift,
        or a later one has a smaller shift.
        """
        spans = self._spans
        span_index = bisect_left(spans, (shift,))
        is_same = span_index < len(spans) and spans[span_index].shift == shift
        earlier = spans[span_index - 1] if span_index else None
        later = spans[span_index + is_same] if span_index + is_same < len(spans) else None
        last_before = -1 if earlier is None else end if later is None and not is_same else earlier.last
        if first <= last_before or (later is not None and last >= later.first):
            raise ShiftError("the shift of a stream fell")
        old_span = spans[span_index] if is_same else Span(shift, first, last)
        new_span = Span(shift, min(old_span.first, first), old_span.last if later is None else max(old_span.last, last))
        if is_same and new_span == old_span:
            return []
        changed_spans = [new_span]
        if not is_same and later is None and earlier is not None:
            spans[span_index - 1] = earlier._replace(last=end)  # it is no longer the newest span
            changed_spans.append(spans[span_index - 1])
        spans[span_index : span_index + is_same] = [new_span]
        del spans[: max(len(spans) - MOST_SHIFTS, 0)]
        return changed_spans

    def in_ticks(self, window: Window) -> Shifts:
        """Convert shifts by window index to shifts by the first ticks of these windows."""
        start, stride = window.start, window.stride
        return Shifts((shift, start + low * stride, start + high * stride) for shift, low, high in self._spans)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans of all shifts, oldest first."""
        return tuple(self._spans)

    @property
    def newest(self) -> int:
        """The shift of the newest numbers; 0 without numbers."""
        return self._spans[-1].shift if self._spans else 0

    def at(self, number: int) -> int:
        """The shift of a number, which need not be in any frame."""
        return max((span.shift for span in self._spans if span.first <= number), default=self.oldest)

    @property
    def oldest(self) -> int:
        """The shift of the first numbers; 0 without numbers."""
        return self._spans[0].shift if self._spans else 0

    def owner(self, first: int, last: int) -> tuple[int | None, int]:
        """The shift of the wall ticks first..last, and the first number of that shift.

        The shift is `None` if the wall ticks do not all belong to it, so that the device is no part of the window.
        """
        if not self._spans:
            return None, 0
        newest_span = next((span for span in reversed(self._spans) if span.wall <= last), self._spans[0])
        is_whole = newest_span.wall <= first or newest_span is self._spans[0]
        return newest_span.shift if is_whole else None, newest_span.first

    def possible(self, first: int, last: int) -> list[int]:
        """The shifts, in order, under which a device may have drawn all of the wall ticks first..last; 0 if unknown.

        After a clock was set back, wall ticks come once more: nobody knows which of the two shifts a window had.
        """
        spans = self._spans
        possible = []
        for index, span in enumerate(spans):
            last_before = spans[index - 1].last if index else -1
            first_after = spans[index + 1].first if index + 1 < len(spans) else MAX_TICK + 1
            if last_before < first + span.shift and last + span.shift < first_after:
                possible.append(span.shift)
        return possible or [span.shift for span in spans] or [0]

    def stretches(self, first_wall: int) -> Iterator[tuple[int, int, int]]:
        """Yield stretches of ticks from the wall tick `first_wall` on: first and last number of its ticks, and shift.

        The newest shift comes first. Each wall tick is in one stretch, that of the shift that it belongs to.
        """
        last_wall = MAX_TICK
        for i in range(len(self._spans) - 1, -1, -1):
            span = self._spans[i]
            first = first_wall + span.shift if i == 0 else max(span.first, first_wall + span.shift)
            last = min(last_wall + span.shift, self._spans[i + 1].first - 1 if i + 1 < len(self._spans) else MAX_TICK)
            if first <= last:
                yield first, last, span.shift
            last_wall = min(last_wall, span.wall - 1)
