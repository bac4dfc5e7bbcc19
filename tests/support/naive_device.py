"""The device's rules as the agent had them before it took the core: the core is held to the same."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

from fugu.contract.classify import ON_OFF

__all__ = ["Classifier"]


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
