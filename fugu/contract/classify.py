"""Readings of any type as the integers of `fugu.core.states`, on agents and where policies are planned.

A number is an IEEE double, and its place among all doubles is a 64-bit integer: comparing doubles is comparing
integers. A policy's doubles, and its hysteresis, are compiled to such integers once, exactly. Only NaN, and values that
are no numbers, are unusable; infinities, and numbers beyond floating point, lie beyond every edge. For a baseline
infinities are unusable as well, but no finite number is.
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
"""The words of home automation for off (0) and on (1); "unavailable" and "unknown" are missing readings."""

_DOUBLE, _BITS = Struct(">d"), Struct(">q")
_MAX_INT64 = (1 << 63) - 1
_MAX_CELLS = 1e15
"""No cell is this many cells away; up to this number floats hold all whole numbers."""


def classifier_of(discretiser: bytes) -> Classifier:
    """Make the classifier of a compiled discretiser; `fugu.core.policy.PolicyError` if it cannot be read."""
    policy = read_discretiser(discretiser)
    match policy.kind:
        case core.CATEGORIES:
            return Classifier(Plain(), lambda raw: policy.categories.get(str(raw).strip()), policy.missing)
        case compiled.CELLS:
            return Classifier(Plain(), _cell_classifier(policy), policy.missing)
        case core.BASELINE:
            rule = RunningMean(policy.patience, policy.edges, policy.multiples, policy.zero)
            step_of = _step_classifier(double_at(policy.lowest), double_at(policy.highest))
            return Classifier(rule, step_of, policy.missing)
    bands = Bands(policy.edges, policy.up, policy.down, policy.patience, bisect_right)
    is_on_off = len(policy.edges) == 1 and place_of_double(0.0) < policy.edges[0] <= place_of_double(1.0)
    return Classifier(bands, _place_classifier(ON_OFF if is_on_off else {}), policy.missing)


def _place_classifier(word_states: dict[str, int]) -> Callable[[Any], int | None]:
    def place_of_number(reading: Any) -> int | None:
        """Return the place of a number, or of the number that a word stands for; None for NaN."""
        number = word_states.get(reading.strip(), reading) if isinstance(reading, str) else reading
        value = number if number.__class__ is float else _to_float(number)
        return None if value != value else place_of_double(value)

    return place_of_number


def place_of_double(value: float, pack: Callable[[float], bytes] = _DOUBLE.pack, unpack: Any = _BITS.unpack) -> int:
    """Return the place of a double: x < y exactly if the place of x is less; both zeros have the same place."""
    bits: int = unpack(pack(value + 0.0))[0]
    return bits if bits >= 0 else bits ^ _MAX_INT64


def double_at(place: int) -> float:
    """Return the double at a place."""
    value: float = _DOUBLE.unpack(_BITS.pack(place if place >= 0 else place ^ _MAX_INT64))[0]
    return value


def least_double(condition: Callable[[float], bool]) -> int:
    """Return the place of the least double from which on a condition holds, or of infinity."""
    low, high = place_of_double(-math.inf), place_of_double(math.inf)
    return least_integer(lambda place: condition(double_at(place)), low, high)


def least_integer(condition: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least integer in low..high from which on a condition holds, or `high`."""
    while low < high:
        middle = (low + high) // 2
        if condition(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _step_classifier(lowest: float, highest: float) -> Callable[[Any], int | None]:
    (low, low_denominator), (high, high_denominator) = lowest.as_integer_ratio(), highest.as_integer_ratio()
    scale = max(low_denominator, high_denominator)  # both are powers of two
    low *= scale // low_denominator
    span = high * (scale // high_denominator) - low

    def step_of(reading: Any) -> int | None:
        """Return the nearest of the steps 0 to `STEPS` from lowest to highest, or None if the reading is not finite."""
        value = _to_float(reading)
        if value != value or (math.isinf(value) and _is_infinite(reading)):
            return None
        if value <= lowest:
            return 0
        if value >= highest:
            return STEPS
        numerator, denominator = value.as_integer_ratio()
        return (2 * STEPS * (numerator * scale - low * denominator) + denominator * span) // (2 * denominator * span)

    return step_of


def _cell_classifier(policy: AgentPolicy) -> Callable[[Any], int | None]:
    """Return the function from a place to the state of the nearest cell, ties to the lowest index.

    A place inside a cell has no distance from it. Places beyond the poles or the 180th meridian count as lying on them.
    Every place goes through all cells, so that the time taken does not tell it. NaN is no place: None.
    """
    origin, step, cells = policy.origin, policy.step, policy.cells

    def nearest_cell(reading: Any) -> int | None:
        latitude, longitude = map(_to_float, str(reading).replace(",", " ").split())
        if math.isnan(latitude) or math.isnan(longitude):
            return None
        row = _cell_index(min(max(latitude, -90.0), 90.0), origin[0], step[0])
        column = _cell_index(min(max(longitude, -180.0), 180.0), origin[1], step[1])
        squared_distances = [(column - x) ** 2 + (row - y) ** 2 for x, y in cells]
        return squared_distances.index(min(squared_distances))

    return nearest_cell


def _to_float(reading: Any) -> float:
    """Convert a reading to the nearest float, infinite beyond all floats; the exceptions of its type are passed on."""
    try:
        return float(reading)
    except OverflowError:
        return math.inf if reading > 0 else -math.inf


def _is_infinite(reading: Any) -> bool:
    """True if a reading is infinite or NaN: in all spellings of numbers, only these have an n."""
    try:
        float(reading)
    except OverflowError:
        return False
    return "n" in str(reading).lower()


def _cell_index(coordinate: float, origin: float, step: float) -> int:
    return math.floor(min(max((coordinate - origin) / step, -_MAX_CELLS), _MAX_CELLS))
