"""Readings become states; a tick without a usable reading has none, or the state that the policy names for it.

Whatever a sensor hands over, the outcome is a state or none: never an exception, and never a word about the reading.
Numbers beyond floating point, and infinities, lie beyond every edge; only NaN, and what is no number, is missing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from edge_agent.reading import Reading

__all__ = ["Discretiser"]

_FAR = 1e15
"""No cell is so many cells away; floats are whole numbers up to there."""


class Discretiser:
    """The running form of a policy's discretiser.

    Attributes:
        unusable: readings that were no number or place, or in no category.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        """Build from the policy's (verified) discretiser document."""
        self.unusable = 0
        missing = document["missing"]
        self._missing: int | None = None if missing is None else document["states"].index(missing)
        self._last: tuple[int, int] | None = None
        self._patience = 0
        self._classify: Callable[[Any], int | None]
        if document["kind"] == "categories":
            self._categories: dict[str, int] = document["categories"]
            self._classify = self._by_name
        elif document["kind"] == "cells":
            self._origin: list[float] = list(document["origin"])
            self._step: list[float] = list(document["step"])
            self._cells: list[tuple[int, int]] = [(column, row) for column, row in document["cells"]]
            self._classify = self._by_cell
        else:
            self._edges: list[float] = list(document["edges"])
            self._hysteresis: float = document["hysteresis"]
            self._patience = document["hysteresis_ticks"]
            self._classify = self._by_threshold

    def observe(self, tick: int, reading: Reading | None) -> int | None:
        """The state of a tick that is later than every one before, or none.

        Args:
            tick: ticks that were left out count as ticks without a reading.
            reading: none if there is none.
        """
        if self._last is not None and tick - self._last[0] - 1 > self._patience:
            self._last = None
        if reading is None:
            return self._missing
        try:
            state = self._classify(reading.reveal())
        except Exception:  # a reading is of any type, and its methods may raise anything, with the reading in it
            state = None
        if state is None:
            self.unusable += 1
            return self._missing
        self._last = tick, state
        return state

    def _by_name(self, raw: Any) -> int | None:
        return self._categories.get(str(raw).strip())

    def _by_threshold(self, raw: Any) -> int | None:
        value = _number(raw)
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

    def _by_cell(self, raw: Any) -> int | None:
        """The state of the nearest cell, the lowest of equals; a place inside a cell has no distance from it.

        A place beyond the poles or the 180th meridian is taken for the one there. All cells are gone through for every
        reading, so the time that this takes does not tell where it was.
        """
        latitude, longitude = map(_number, str(raw).replace(",", " ").split())
        if math.isnan(latitude) or math.isnan(longitude):
            return None
        row = _cell(min(max(latitude, -90.0), 90.0), self._origin[0], self._step[0])
        column = _cell(min(max(longitude, -180.0), 180.0), self._origin[1], self._step[1])
        away = [(column - x) ** 2 + (row - y) ** 2 for x, y in self._cells]
        return away.index(min(away))


def _number(raw: Any) -> float:
    """A reading as a float; infinite where it is beyond all floats.

    Raises:
        Exception: whatever the reading's type raises, if it is no number.
    """
    try:
        return float(raw)
    except OverflowError:
        return math.inf if raw > 0 else -math.inf


def _cell(place: float, origin: float, step: float) -> int:
    return math.floor(min(max((place - origin) / step, -_FAR), _FAR))
