"""Beliefs and fixed-lag estimates of one stream, frame by frame; pure, no I/O.

What is computed for a frame is a function of that frame and of the frames before it in tick order, never of the order
in which they arrived:

- its belief: the law of the state at its last tick, given all symbols up to there;
- its runs: the laws of those ticks t that it determines, i.e. whose t + lag lies in (end of the frame before, its
  end], given all symbols up to t + lag.

So a late frame only has to be replayed: a track is set up as it was before that frame, and extended again by it and by
the frames after it, until the stored beliefs agree bit for bit and nothing later can differ.

A *segment* is a run of ticks that one window of the model can hold. A new one begins where the ticks without a frame
are as many as the lag (they are crossed by a power of the transition matrix, and get no estimates), and where the
model changes: then the belief carries over if the states and the clock mean the same, and the stationary law of the
new model stands in if not; symbols of the new model do not count for ticks of the old one. It stands in, too, where
the device's clock was set: how much time lies between the two numbers, nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from contract.frames import SymbolFrame
from gateway.service.kinds.symbol_model import Beliefs, Model, Symbols, filtered, fixed_lag, prior, told

__all__ = ["Replayed", "Run", "Track", "Tracked", "Update", "replay"]


class Tracked(NamedTuple):
    """A frame, and the belief (k,) at its last tick."""

    frame: SymbolFrame
    belief: Beliefs


class Run(NamedTuple):
    """Probabilities (n, k) of n consecutive ticks."""

    first: int
    probabilities: Beliefs


class Update(NamedTuple):
    """What one frame brings: the belief at its last tick, and the runs of ticks that it determines (at least one)."""

    frame: SymbolFrame
    belief: Beliefs
    runs: tuple[Run, ...]


class Replayed(NamedTuple):
    """An update, and whether its belief differs from the stored one."""

    update: Update
    changed: bool


@dataclass
class _Segment:
    """Consecutive ticks of one model; `law` is the law of the first, given all symbols before it.

    Where ticks before it are in the same segment, the first is the last of those, with its symbol left out: the law
    has seen that already.
    """

    model: Model
    law: Beliefs
    first: int
    parts: list[Symbols] = field(default_factory=list)


class Track:
    """The newest frames of a stream: as many as the next one's runs depend on.

    Args:
        lag: ticks of later symbols that each estimate has seen.
        models: the model of a policy version of this stream.
        window: the newest frames in tick order, back to one that ends `lag` ticks before the newest one's end, or
            to the stream's first.
    """

    def __init__(self, lag: int, models: Callable[[int], Model], window: Iterable[Tracked] = ()) -> None:
        self.lag = lag
        self._models = models
        self._window = list(window)

    @property
    def newest(self) -> Tracked | None:
        """The frame that ends last, none before the first."""
        return self._window[-1] if self._window else None

    @property
    def base(self) -> Tracked | None:
        """The frame whose belief the next update starts from; none at the beginning of the stream."""
        if self._window and self._window[0].frame.last <= self._window[-1].frame.last - self.lag:
            return self._window[0]
        return None

    def extend(self, frame: SymbolFrame) -> Update:
        """Append a frame that begins after the newest one ends."""
        low = self._window[-1].frame.last - self.lag + 1 if self._window else frame.first
        high = frame.last - self.lag
        *closed, current = self._segments(frame)
        runs = []
        for segment in closed:
            symbols = np.concatenate([*segment.parts, _unobserved(self.lag)])
            beliefs = filtered(segment.model, segment.law, symbols)
            runs.append(_run(segment, symbols, beliefs, self.lag, low, high))
        symbols = np.concatenate(current.parts)
        beliefs = filtered(current.model, current.law, symbols)
        runs.append(_run(current, symbols, beliefs, self.lag, low, high))
        belief = beliefs[-1].copy()
        self._window.append(Tracked(frame, belief))
        while len(self._window) > 1 and self._window[1].frame.last <= high:
            del self._window[0]
        some = tuple(run for run in runs if len(run.probabilities))
        return Update(frame, belief, some or (Run(frame.first, np.empty((0, len(told(current.model, belief))))),))

    def _segments(self, newest: SymbolFrame) -> list[_Segment]:
        """The segments from the base to the end of the newest frame."""
        start: list[Tracked | None] = [] if self.base is not None else [None]
        chain = [*start, *self._window]
        following = [tracked.frame for tracked in self._window[1 - len(start) :]]
        segments: list[_Segment] = []
        for before, frame in zip(chain, [*following, newest], strict=True):
            self._place(segments, before, frame, self._models(frame.policy_version))
            segments[-1].parts.append(np.frombuffer(frame.symbols, dtype=np.uint8).astype(np.int64))
        return segments

    def _place(self, segments: list[_Segment], before: Tracked | None, frame: SymbolFrame, model: Model) -> None:
        """Make the last segment the one that the frame belongs to, up to the tick before it."""
        old = None if before is None else self._models(before.frame.policy_version)
        if before is None or old is None or old.meaning != model.meaning or before.frame.shift != frame.shift:
            segments.append(_Segment(model, model.initial, frame.first))
            return
        gap = frame.first - before.frame.last - 1
        if old is not model or gap >= max(self.lag, 1):
            segments.append(_Segment(model, prior(model, before.belief, gap + 1), frame.first))
            return
        if not segments:
            segments.append(_Segment(model, before.belief, before.frame.last, [_unobserved(1)]))
        segments[-1].parts.append(_unobserved(gap))


def replay(track: Track, following: Iterable[tuple[SymbolFrame, Beliefs | None]]) -> Iterator[Replayed]:
    """Extend a track by frames that were tracked before, among new ones, until nothing later can differ.

    Args:
        track: as it was before the first of the frames.
        following: frames in tick order with the beliefs stored for them, none for a new frame.

    Yields:
        Each frame's update, and whether its belief is new.
    """
    changed_through = -1
    for frame, belief in following:
        update = track.extend(frame)
        changed = belief is None or belief.tobytes() != update.belief.tobytes()
        if changed:
            changed_through = frame.last
        yield Replayed(update, changed)
        if track.base is not None and track.base.frame.first > changed_through:
            return


def _run(segment: _Segment, symbols: Symbols, beliefs: Beliefs, lag: int, low: int, high: int) -> Run:
    """The estimates of those ticks low..high of a segment whose symbols reach `lag` ticks further."""
    start = max(low - segment.first, 0)
    stop = min(high - segment.first + 1, len(symbols) - lag)
    if start >= stop:
        return Run(low, np.empty((0, len(segment.law))))
    if start == 0:
        return Run(segment.first, fixed_lag(segment.model, segment.law, symbols[: stop + lag], lag))
    window = symbols[start - 1 : stop + lag].copy()
    window[0] = -1  # the belief that stands for everything before has seen this symbol
    return Run(segment.first + start, fixed_lag(segment.model, beliefs[start - 1], window, lag)[1:])


def _unobserved(ticks: int) -> Symbols:
    return np.full(ticks, -1, dtype=np.int64)
