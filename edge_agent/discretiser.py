"""Readings become states; the last state is kept for ticks without a usable reading."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from edge_agent.reading import Reading

__all__ = ["Discretiser"]


class Discretiser:
    """The running form of a policy's discretiser.

    Attributes:
        state: the current state; the declared default before the first usable reading.
        unusable: readings that were no number or place, not finite, or in no category.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        """Build from the policy's (verified) discretiser document."""
        self.state: int = document["default"]
        self.unusable = 0
        self._started = False
        self._classify: Callable[[float | str], int | None]
        if document["kind"] == "categories":
            categories: dict[str, int] = document["categories"]
            self._classify = lambda value: categories.get(str(value).strip())
        elif document["kind"] == "cells":
            self._origin: list[float] = list(document["origin"])
            self._step: list[float] = list(document["step"])
            self._cells: list[tuple[int, int]] = [(column, row) for column, row in document["cells"]]
            self._classify = self._by_cell
        else:
            self._edges: list[float] = list(document["edges"])
            self._hysteresis: float = document["hysteresis"]
            self._classify = self._by_threshold

    def observe(self, reading: Reading | None) -> int:
        """The state of a tick: of its reading if that is usable, else the last one."""
        if reading is not None:
            state = self._classify(reading.reveal())
            if state is None:
                self.unusable += 1
            else:
                self.state = state
                self._started = True
        return self.state

    def _by_threshold(self, raw: float | str) -> int | None:
        try:
            value = float(raw)
        except (TypeError, ValueError):
            return None
        if value - value != 0.0:  # NaN and infinities
            return None
        state = bisect_right(self._edges, value)
        if self._started and self._hysteresis and state != self.state:
            if state > self.state:
                state = max(self.state, bisect_right(self._edges, value - self._hysteresis))
            else:
                state = min(self.state, bisect_right(self._edges, value + self._hysteresis))
        return state

    def _by_cell(self, raw: float | str) -> int | None:
        """The state of the nearest cell, the lowest of equals; a place inside a cell has no distance from it.

        All cells are gone through for every reading, so the time that this takes does not tell where it was.
        """
        try:
            latitude, longitude = map(float, str(raw).replace(",", " ").split())
            if not (abs(latitude) <= 90.0 and abs(longitude) <= 180.0):  # NaN is no place either
                return None
            row = math.floor((latitude - self._origin[0]) / self._step[0])
            column = math.floor((longitude - self._origin[1]) / self._step[1])
        except (ValueError, OverflowError):
            return None
        away = [(column - x) ** 2 + (row - y) ** 2 for x, y in self._cells]
        return away.index(min(away))
