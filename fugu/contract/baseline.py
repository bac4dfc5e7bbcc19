"""A running mean in integers, and the band around it that a reading is in: the same on every device, bit for bit.

A reading (an IEEE double, exactly as it is) is clamped to the policy's range and becomes the nearest of STEPS + 1
equally spaced integers, 0 for the lowest and STEPS for the highest, halves upward. The mean is an integer number of
units, UNIT to a step. The n-th reading x since the mean began changes it by (x * UNIT - mean) / min(n, M), rounded
towards 0: the plain mean of the first M readings, and from then on the exponential one, whose weights shrink by
1 - 1/M a reading.

Rounding is off by less than one unit a reading, and later ones shrink that by 1 - 1/min(n, M), so the mean is never M
units or more away from the one without rounding: at most 2^-8 of a step for the largest M. It cannot stall further off.

A reading is compared with the mean of the readings *before* it, so that it is not measured by itself; with the default
edge, the mean, the other choice would give the same states. The first reading is compared with itself.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

__all__ = ["MAX_BASELINE_TICKS", "STEPS", "UNIT", "RunningMean"]

STEPS = 1 << 20
UNIT = 1 << 32
MAX_BASELINE_TICKS = 1 << 24


class RunningMean:
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
