"""How far the devices of a release are: what decides whether a window is past, and where a schedule begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from fugu.contract.window_frames import sequence_name
from fugu.contract.windows import Window
from gateway.release.question import Question
from gateway.service.recorder import Recorder
from gateway.service.store import Store

__all__ = ["NotKnownError", "Progress", "Reached", "StoreProgress"]


class NotKnownError(Exception):
    """It is not known yet: somebody was asked, and has not answered."""


class Reached(NamedTuple):
    """The newest wall tick of the device that is furthest behind, and of the one that is furthest ahead."""

    low: int
    high: int


class Progress(Protocol):
    """Where devices are; everything may raise `NotKnownError`, and what a store raises."""

    def reached(self, question: Question) -> Reached:
        """How far the devices are."""

    def complete(self, question: Question, first: int, end: int) -> bool:
        """Whether no frame of any device is missing in the wall ticks first..end."""

    def next_frame(self, question: Question, tick: int) -> int | None:
        """The first wall tick of the first stored frame of any device that ends at a wall tick or later."""

    def wall_tick(self, question: Question, numbers: Mapping[str, int]) -> int:
        """The last wall tick that any of these numbers stands for: tick numbers of devices, 0 where none is given."""

    def done(self, question: Question) -> None:
        """A window is dealt with."""


class StoreProgress:
    """Where the devices of a store are.

    Args:
        store: owned by the thread that calls.
        recorder: of the store.
    """

    def __init__(self, store: Store, recorder: Recorder) -> None:
        self._store = store
        self._recorder = recorder

    def reached(self, question: Question) -> Reached:
        """As in `Progress`."""
        found = [self._reached(question, device) for device in question.devices]
        return Reached(min(found), max(found))

    def complete(self, question: Question, first: int, end: int) -> bool:
        """As in `Progress`."""
        return all(self._complete(question, device, first, end) for device in question.devices)

    def next_frame(self, question: Question, tick: int) -> int | None:
        """As in `Progress`."""
        found: list[int] = []
        for device in question.devices:
            name, window = _sequence(question, device)
            frames = self._store.symbols if window is None else self._store.windows
            number, shifts = self._store.stream_id(device, name), self._recorder.shifts(device, name)
            for low, high, shift in shifts.owned(tick) if window is None else shifts.in_ticks(window).owned(tick):
                first = None if number is None else frames.next_first(number, low)
                if first is not None and first <= high:
                    found.append(first - shift)
        return min(found, default=None)

    def wall_tick(self, question: Question, numbers: Mapping[str, int]) -> int:
        """As in `Progress`."""
        return max(self._wall_tick(question, device, numbers.get(device, 0)) for device in question.devices)

    def done(self, question: Question) -> None:
        """Nothing was asked of anybody."""

    def _wall_tick(self, question: Question, device: str, number: int) -> int:
        name, window = _sequence(question, device)
        shifts = self._recorder.shifts(device, name)
        return number - (shifts if window is None else shifts.in_ticks(window)).at(number)

    def _reached(self, question: Question, device: str) -> int:
        """The newest wall tick of a device; of one with windows only, that after the last one that it counted."""
        name, window = _sequence(question, device)
        number = self._recorder.reached(device, name)
        if window is not None and number >= 0:
            number = window.start + number * window.stride + window.length
        return number - self._recorder.shifts(device, name).newest

    def _complete(self, question: Question, device: str, first: int, end: int) -> bool:
        """Whether no frame of a device is missing, neither of its symbols nor of the windows that answer the query."""
        stream, window = question.stream, question.windows.get(device)
        if device not in question.silent:
            shift, begun = self._recorder.shifts(device, stream).owner(first, end)
            low, high = (begun - 1, begun - 1) if shift is None else (first + shift, end + shift)
            if not self._recorder.complete(device, stream, low, high):
                return False
        if window is None:
            return True
        name = sequence_name(stream, window.name)
        shift, begun = self._recorder.shifts(device, name).in_ticks(window).owner(first, end)
        first, end = (begun - 1, begun - 1) if shift is None else (first + shift, end + shift)
        low = max(0, (first - window.start) // window.stride)
        high = (end + 1 - window.length - window.start) // window.stride
        return self._recorder.complete(device, name, low, max(low, high))


def _sequence(question: Question, device: str) -> tuple[str, Window | None]:
    """The sequence that says how far a device is, and the window that its numbers are indices of, if they are."""
    if device not in question.silent:
        return question.stream, None
    window = question.windows[device]
    return sequence_name(question.stream, window.name), window
