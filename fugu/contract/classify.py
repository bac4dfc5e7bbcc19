"""Readings of any type as the integers that `fugu.core.states` decides on, on agents and where policies are planned.

A number is an IEEE double, and its place among all doubles is a 64-bit integer: a comparison of doubles is one of
integers. A policy's doubles, and its hysteresis, are compiled to such integers once, exactly. Only NaN, and
what is no number, is unusable as a number; infinities, and numbers beyond floating point, lie beyond every edge. A
baseline leaves out infinities as well, but no number that is finite.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from struct import Struct
from typing import Any

from fugu.contract import compiled
from fugu.contract.compiled import AgentPolicy, read_discretiser
from fugu.core import policy as core
from fugu.core.states import STEPS, Bands, Classifier, Plain, RunningMean

__all__ = ["ON_OFF", "classifier_of", "least_double", "least_integer", "place_of_double"]

_PAIRS = ("off on", "false true", "no yes", "closed open", "clear detected", "not_home home", "idle active")
ON_OFF = {
    spelling: state
    for pair in _PAIRS
    for state, name in enumerate(pair.split())
    for spelling in (name, name.capitalize(), name.upper())
}
"""The names that home automation has for off (0) and on (1); "unavailable" and "unknown" are missing readings."""

_DOUBLE, _BITS = Struct(">d"), Struct(">q")
_MAX_INT64 = (1 << 63) - 1
_MAX_CELLS = 1e15
"""No cell is so many cells away; floats are whole numbers up to there."""


def classifier_of(discretiser: bytes) -> Classifier:
    """The running form of a compiled discretiser; `fugu.core.policy.PolicyError` if it is none."""
    policy = read_discretiser(discretiser)
    match policy.kind:
        case core.CATEGORIES:
            return Classifier(Plain(), lambda raw: policy.categories.get(str(raw).strip()), policy.missing)
        case compiled.CELLS:
            return Classifier(Plain(), _cell_classifier(policy), policy.missing)
        case core.BASELINE:
            rule = RunningMean(policy.patience, policy.edges, policy.multiples, policy.zero)
            return Classifier(rule, _steps(double(policy.lowest), double(policy.highest)), policy.missing)
    bands = Bands(policy.edges, policy.up, policy.down, policy.patience, bisect_right)
    words = ON_OFF if len(policy.edges) == 1 and place_of_double(0.0) < policy.edges[0] <= place_of_double(1.0) else {}
    return Classifier(bands, _place_classifier(words), policy.missing)


def _place_classifier(words: dict[str, int]) -> Callable[[Any], int | None]:
    def place_of_number(raw: Any) -> int | None:
        """The place of a number; of words for off and on where one edge tells 0 from 1."""
        value = (
            raw if raw.__class__ is float else _to_float(words.get(raw.strip(), raw) if isinstance(raw, str) else raw)
        )
        return None if value != value else place_of_double(value)

    return place_of_number


def place_of_double(value: float, pack: Callable[[float], bytes] = _DOUBLE.pack, unpack: Any = _BITS.unpack) -> int:
    """The place of a double among all doubles: x < y exactly if the place of x is less; both zeros have one."""
    bits: int = unpack(pack(value + 0.0))[0]
    return bits if bits >= 0 else bits ^ _MAX_INT64


def double(ordinal: int) -> float:
    """The double at a place."""
    value: float = _DOUBLE.unpack(_BITS.pack(ordinal if ordinal >= 0 else ordinal ^ _MAX_INT64))[0]
    return value


def least_double(holds: Callable[[float], bool]) -> int:
    """The place of the least double for which something holds that holds for all above it, or of infinity."""
    return least_integer(lambda number: holds(double(number)), place_of_double(-math.inf), place_of_double(math.inf))


def least_integer(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least integer from `low` to `high` for which something holds that holds for all above it, or `high`."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _steps(lowest: float, highest: float) -> Callable[[Any], int | None]:
    (low, low_denominator), (high, high_denominator) = lowest.as_integer_ratio(), highest.as_integer_ratio()
    scale = max(low_denominator, high_denominator)  # both are powers of two
    low *= scale // low_denominator
    span = high * (scale // high_denominator) - low

    def step_of(raw: Any) -> int | None:
        value = _to_float(raw)
        if value != value or (math.isinf(value) and _is_infinite(raw)):
            return None
        if value <= lowest:
            return 0
        if value >= highest:
            return STEPS
        numerator, denominator = value.as_integer_ratio()
        return (2 * STEPS * (numerator * scale - low * denominator) + denominator * span) // (2 * denominator * span)

    return step_of


def _cell_classifier(policy: AgentPolicy) -> Callable[[Any], int | None]:
    """The state of the nearest cell, the lowest of equals; a place inside a cell has no distance from it.

    Places beyond the poles or the 180th meridian count as there. All cells are gone through for every reading, so the
    time that this takes does not tell where it was.
    """
    origin, step, cells = policy.origin, policy.step, policy.cells

    def nearest_cell(raw: Any) -> int | None:
        latitude, longitude = map(_to_float, str(raw).replace(",", " ").split())
        if math.isnan(latitude) or math.isnan(longitude):
            return None
        row = _cell_index(min(max(latitude, -90.0), 90.0), origin[0], step[0])
        column = _cell_index(min(max(longitude, -180.0), 180.0), origin[1], step[1])
        squared_distances = [(column - x) ** 2 + (row - y) ** 2 for x, y in cells]
        return squared_distances.index(min(squared_distances))

    return nearest_cell


def _to_float(raw: Any) -> float:
    """A reading as the nearest float, infinite beyond all floats; what is no number raises whatever its type raises."""
    try:
        return float(raw)
    except OverflowError:
        return math.inf if raw > 0 else -math.inf


def _is_infinite(raw: Any) -> bool:
    """True if it is no finite number: of the ways to write a number, only those of infinities and NaN have an n."""
    try:
        float(raw)
    except OverflowError:
        return False
    return "n" in str(raw).lower()


def _cell_index(coordinate: float, origin: float, step: float) -> int:
    return math.floor(min(max((coordinate - origin) / step, -_MAX_CELLS), _MAX_CELLS))
