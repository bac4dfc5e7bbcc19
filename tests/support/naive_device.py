"""The device's rules as the agent had them before it took the core: the core is held to the same."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

from fugu.contract.classify import ON_OFF

__all__ = ["Classifier", "TickClock", "discrete_laplace", "uniform_below"]


class TickClock:
    """Clock of the streams of one epoch and period; from `since` on, numbers are ahead by `shift` ticks."""

    def __init__(self, epoch_us: int, period_us: int) -> None:
        self.epoch_us = epoch_us
        self.period_us = period_us
        self.shift = 0
        self.since = 0
        self._tick = -1
        self._due_us: int | None = None

    def at(self, now_us: int) -> int:
        """The last tick that has happened at a wall time; below the shift before the epoch."""
        return (now_us - self.epoch_us) // self.period_us + self.shift

    def time_of(self, tick: int) -> int:
        """Wall time of a tick, in microseconds of Unix time."""
        return self.epoch_us + (tick - self.shift) * self.period_us

    def follow(self, shift: int, since: int) -> None:
        """Take over a larger shift."""
        if shift > self.shift:
            self.shift, self.since = shift, since

    def due(self, tick: int, offset_us: int) -> int:
        """Elapsed time at which a tick comes; `offset_us` is what wall time is ahead of elapsed time."""
        if self._due_us is None:
            return self.time_of(tick) - offset_us
        if tick <= self._tick:
            return self._due_us
        return max(self.time_of(tick) - offset_us, self._due_us + self.period_us)

    def begin(self, tick: int, offset_us: int) -> None:
        """A tick has come."""
        if tick > self._tick:
            self._tick, self._due_us = tick, self.due(tick, offset_us)

    def rested(self, elapsed_us: int) -> None:
        """Note that up to now something may have been drawn by an unknown clock."""
        self._due_us = elapsed_us

    def next_wall(self, now_us: int, offset_us: int) -> int:
        """The first wall tick after a wall time, and a period after what was drawn before."""
        after = now_us if self._due_us is None else max(now_us, self._due_us + self.period_us + offset_us - 1)
        return max(0, (after - self.epoch_us) // self.period_us + 1)

    def raised(self, wall: int, last: int, multiple: int) -> int:
        """The least shift, no smaller than this one, with which the number of a wall tick is above `last`."""
        return -(-max(self.shift, last + 1 - wall) // multiple) * multiple


def uniform_below(entropy: Callable[[memoryview], None]) -> Callable[[int], int]:
    """Return draw(below), uniform in range(below) for below >= 1, of a function that fills a buffer with random bytes.

    As few bits as can hold the largest value are taken; a number that is too large is thrown away, never folded back.
    The bytes are uniform and independent, and overwritten before draw returns.
    """

    def draw(below: int) -> int:
        if below < 1:
            raise ValueError(f"no integer is below {below} and at least 0")
        bits = (below - 1).bit_length()
        mask = (1 << bits) - 1
        buffer = bytearray((bits + 7) // 8)
        value = 0
        while bits:
            entropy(memoryview(buffer))
            value = int.from_bytes(buffer, "little") & mask
            if value < below:
                break
        buffer[:] = bytes(len(buffer))
        return value

    return draw


def discrete_laplace(draw: Callable[[int], int], numerator: int, denominator: int) -> int:
    """Draw an integer n with probability (1 - a) / (1 + a) * a^|n|, where a = exp(-1/s), s = numerator / denominator.

    A count of sensitivity 1 that is released with it has the loss 1/s. ValueError: the scale is not positive.
    Source: algorithm 2 with t = numerator and s = denominator. A remainder below t is kept with probability
    exp(-remainder / t) and a quotient counts successes of exp(-1), so t * quotient + remainder is geometric with ratio
    exp(-1/t); its quotient by s is geometric with ratio exp(-s/t). A sign makes that two-sided, once minus zero is
    refused.
    """
    if numerator < 1 or denominator < 1:
        raise ValueError(f"the scale {numerator}/{denominator} is not positive")
    while True:
        remainder = draw(numerator)
        if not _happens(draw, remainder, numerator):
            continue
        quotient = 0
        while _happens(draw, 1, 1):
            quotient += 1
        size = (remainder + numerator * quotient) // denominator
        negative = draw(2) == 1
        if not (negative and size == 0):
            return -size if negative else size


def _happens(draw: Callable[[int], int], numerator: int, denominator: int) -> bool:
    """True if an event of probability exp(-numerator/denominator) happens, for a fraction x in 0..1.

    Source: algorithm 1. The first k at which an event of probability x/k fails is odd with probability 1 - x + x^2/2! -
    ... = exp(-x).
    """
    tries = 1
    while draw(denominator * tries) < numerator:
        tries += 1
    return tries % 2 == 1


STEPS = 1 << 20
UNIT = 1 << 32


class _RunningMean:
    """The mean of what came before, in memory only; `document` is a `Baseline` as plain values."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._lowest, self._highest = float(document["lowest"]), float(document["highest"])
        self._ticks: int = document["baseline_ticks"]
        (low, below), (high, under) = self._lowest.as_integer_ratio(), self._highest.as_integer_ratio()
        self._scale = max(below, under)  # both are powers of two
        self._low = low * (self._scale // below)
        self._span = high * (self._scale // under) - self._low
        ratios = [float(edge).as_integer_ratio() for edge in document["edges"]]
        self._multiples: list[tuple[int, int]] | None = None
        self._edges: list[int] = []
        if document["compare"] == "multiple":
            self._multiples = ratios
        else:  # a reading is above an edge if it is above the greatest whole number of units that is not
            whole = STEPS * UNIT
            self._edges = [top * self._scale * whole // (bottom * self._span) for top, bottom in ratios]
        self._zero = (2 * self._low * STEPS * UNIT + self._span) // (2 * self._span)
        """Units from 0 to the lowest reading, to the nearest."""
        self.forget()

    def forget(self) -> None:
        """Begin anew with the next reading."""
        self._count = 0
        self._mean = 0

    def observe(self, value: float) -> int:
        """The band of a reading, then taken into the mean; an infinity stands for a number beyond all doubles."""
        here = self._steps(value) * UNIT
        if not self._count:
            self._mean = here
        away = here - self._mean
        if self._multiples is None:
            band = bisect_left(self._edges, away)
        else:
            mean, reading = self._mean + self._zero, here + self._zero
            band = sum(reading * bottom > mean * top for top, bottom in self._multiples)
        if self._count < self._ticks:
            self._count += 1
        self._mean += away // self._count if away >= 0 else -(-away // self._count)
        return band

    def _steps(self, value: float) -> int:
        if value <= self._lowest:
            return 0
        if value >= self._highest:
            return STEPS
        top, bottom = value.as_integer_ratio()
        span = bottom * self._span
        return (2 * STEPS * (top * self._scale - self._low * bottom) + span) // (2 * span)


_FAR = 1e15
"""No cell is so many cells away; floats are whole numbers up to there."""


class Classifier:
    """A policy's verified discretiser, as plain values, run tick by tick; its state is gone after a restart.

    Attributes:
        unusable: readings that were no number or place, or in no category.
        beginning: whether the newest tick is one of those after a start that have no state, whatever the reading is.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.unusable = 0
        self.beginning = False
        missing = document["missing"]
        self._last: tuple[int, int] | None = None
        self._missing: int | None = None if missing is None else document["states"].index(missing)
        self._patience, self._warm_up = 0.0, 0
        self._mean: _RunningMean | None = None
        self._mean_since: int | None = None
        self._classify: Callable[[Any], int | None]
        match document["kind"]:
            case "categories":
                self._classify = lambda raw: document["categories"].get(str(raw).strip())
            case "cells":
                self._origin: list[float] = list(document["origin"])
                self._step: list[float] = list(document["step"])
                self._cells: list[tuple[int, int]] = [(column, row) for column, row in document["cells"]]
                self._classify = self._by_cell
            case "baseline":
                self._mean = _RunningMean(document)
                self._warm_up = document["baseline_ticks"]
                # Where missing ticks have a state, no rule may depend on which ticks are missing.
                self._patience = self._warm_up if self._missing is None else math.inf
                self._classify = self._by_baseline
            case _:
                self._edges: list[float] = list(document["edges"])
                self._words = ON_OFF if len(self._edges) == 1 and 0.0 < self._edges[0] <= 1.0 else {}
                self._hysteresis: float = document["hysteresis"]
                self._patience = document["hysteresis_ticks"]
                self._classify = self._by_threshold
        self.restart()

    def restart(self) -> None:
        """Drop its state, as in a new process."""
        self._first: int | None = None
        self._known: tuple[int, int | None] | None = None
        self._forget()

    def observe(self, tick: int, raw: Any) -> int | None:
        """The state of a tick, or `None`; a reading of `None` is missing.

        Ticks ascend; those left out count as ticks without a reading. The newest may be asked for again: its state
        stays.
        """
        if self._known is not None and self._known[0] == tick:
            return self._known[1]
        if self._first is None:
            self._first = tick
        if self._last is not None and tick - self._last[0] - 1 > self._patience:
            self._forget()
        state = None
        if raw is not None:
            try:
                state = self._classify(raw)
            except Exception:  # a reading is of any type, and its methods may raise anything, with the reading in it
                state = None
            if state is None:
                self.unusable += 1
            else:
                self._last = tick, state
                if self._mean_since is None:
                    self._mean_since = tick
        if state is None or not self._comparable(tick):
            state = self._missing
        self.beginning = tick - self._first < self._warm_up  # decided by ticks alone, whatever the readings are
        if self.beginning:
            state = None
        self._known = tick, state
        return state

    def _comparable(self, tick: int) -> bool:
        """True if a reading can have a state: a mean's first is in the same band, whatever it is.

        Where missing ticks have no state, neither have the M ticks from there on, as after a start.
        """
        if self._mean is None or self._mean_since is None:
            return True
        return tick - self._mean_since >= (self._warm_up if self._missing is None else 1)

    def _forget(self) -> None:
        self._last = None
        self._mean_since = None
        if self._mean is not None:
            self._mean.forget()

    def _by_threshold(self, raw: Any) -> int | None:
        """The state of a number; of words for off and on where one edge tells 0 from 1."""
        value = _number(self._words.get(raw.strip(), raw) if isinstance(raw, str) else raw)
        if math.isnan(value):
            return None
        state = bisect_right(self._edges, value)
        if self._last is not None and self._hysteresis:
            before = self._last[1]
            if state > before:
                state = max(before, bisect_right(self._edges, value - self._hysteresis))
            elif state < before:
                state = min(before, bisect_right(self._edges, value + self._hysteresis))
        return state

    def _by_baseline(self, raw: Any) -> int | None:
        assert self._mean is not None
        value = _number(raw)
        return None if math.isnan(value) or (math.isinf(value) and _infinite(raw)) else self._mean.observe(value)

    def _by_cell(self, raw: Any) -> int | None:
        """The state of the nearest cell, the lowest of equals; a place inside a cell has no distance from it.

        Places beyond the poles or the 180th meridian count as there. All cells are gone through for every reading, so
        the time that this takes does not tell where it was.
        """
        latitude, longitude = map(_number, str(raw).replace(",", " ").split())
        if math.isnan(latitude) or math.isnan(longitude):
            return None
        row = _cell(min(max(latitude, -90.0), 90.0), self._origin[0], self._step[0])
        column = _cell(min(max(longitude, -180.0), 180.0), self._origin[1], self._step[1])
        away = [(column - x) ** 2 + (row - y) ** 2 for x, y in self._cells]
        return away.index(min(away))


def _number(raw: Any) -> float:
    """A reading as the nearest float, infinite beyond all floats; what is no number raises whatever its type raises."""
    try:
        return float(raw)
    except OverflowError:
        return math.inf if raw > 0 else -math.inf


def _infinite(raw: Any) -> bool:
    """True if it is no finite number: of the ways to write a number, only those of infinities and NaN have an n."""
    try:
        float(raw)
    except OverflowError:
        return False
    return "n" in str(raw).lower()


def _cell(place: float, origin: float, step: float) -> int:
    return math.floor(min(max((place - origin) / step, -_FAR), _FAR))
