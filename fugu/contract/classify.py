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

__all__ = ["ON_OFF", "classifier_of", "least", "least_double", "place"]

_PAIRS = ("off on", "false true", "no yes", "closed open", "clear detected", "not_home home", "idle active")
ON_OFF = {
    spelling: state
    for pair in _PAIRS
    for state, name in enumerate(pair.split())
    for spelling in (name, name.capitalize(), name.upper())
}
"""The names that home automation has for off (0) and on (1); "unavailable" and "unknown" are missing readings."""

_DOUBLE, _BITS = Struct(">d"), Struct(">q")
_MOST = (1 << 63) - 1
_FAR = 1e15
"""No cell is so many cells away; floats are whole numbers up to there."""


def classifier_of(discretiser: bytes) -> Classifier:
    """The running form of a compiled discretiser; `fugu.core.policy.PolicyError` if it is none."""
    policy = read_discretiser(discretiser)
    match policy.kind:
        case core.CATEGORIES:
            return Classifier(Plain(), lambda raw: policy.categories.get(str(raw).strip()), policy.missing)
        case compiled.CELLS:
            return Classifier(Plain(), _cells(policy), policy.missing)
        case core.BASELINE:
            rule = RunningMean(policy.patience, policy.edges, policy.multiples, policy.zero)
            return Classifier(rule, _steps(double(policy.lowest), double(policy.highest)), policy.missing)
    bands = Bands(policy.edges, policy.up, policy.down, policy.patience, bisect_right)
    words = ON_OFF if len(policy.edges) == 1 and place(0.0) < policy.edges[0] <= place(1.0) else {}
    return Classifier(bands, _place_of(words), policy.missing)


def _place_of(words: dict[str, int]) -> Callable[[Any], int | None]:
    def number(raw: Any) -> int | None:
        """The place of a number; of words for off and on where one edge tells 0 from 1."""
        value = raw if raw.__class__ is float else _number(words.get(raw.strip(), raw) if isinstance(raw, str) else raw)
        return None if value != value else place(value)

    return number


def place(value: float, pack: Callable[[float], bytes] = _DOUBLE.pack, unpack: Any = _BITS.unpack) -> int:
    """The place of a double among all doubles: x < y exactly if the place of x is less; both zeros have one."""
    bits: int = unpack(pack(value + 0.0))[0]
    return bits if bits >= 0 else bits ^ _MOST


def double(number: int) -> float:
    """The double at a place."""
    value: float = _DOUBLE.unpack(_BITS.pack(number if number >= 0 else number ^ _MOST))[0]
    return value


def least_double(holds: Callable[[float], bool]) -> int:
    """The place of the least double for which something holds that holds for all above it, or of infinity."""
    return least(lambda number: holds(double(number)), place(-math.inf), place(math.inf))


def least(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least integer from `low` to `high` for which something holds that holds for all above it, or `high`."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _steps(lowest: float, highest: float) -> Callable[[Any], int | None]:
    (low, below), (high, under) = lowest.as_integer_ratio(), highest.as_integer_ratio()
    scale = max(below, under)  # both are powers of two
    low *= scale // below
    span = high * (scale // under) - low

    def number(raw: Any) -> int | None:
        value = _number(raw)
        if value != value or (math.isinf(value) and _infinite(raw)):
            return None
        if value <= lowest:
            return 0
        if value >= highest:
            return STEPS
        top, bottom = value.as_integer_ratio()
        return (2 * STEPS * (top * scale - low * bottom) + bottom * span) // (2 * bottom * span)

    return number


def _cells(policy: AgentPolicy) -> Callable[[Any], int | None]:
    """The state of the nearest cell, the lowest of equals; a place inside a cell has no distance from it.

    Places beyond the poles or the 180th meridian count as there. All cells are gone through for every reading, so the
    time that this takes does not tell where it was.
    """
    origin, step, cells = policy.origin, policy.step, policy.cells

    def state(raw: Any) -> int | None:
        latitude, longitude = map(_number, str(raw).replace(",", " ").split())
        if math.isnan(latitude) or math.isnan(longitude):
            return None
        row = _cell(min(max(latitude, -90.0), 90.0), origin[0], step[0])
        column = _cell(min(max(longitude, -180.0), 180.0), origin[1], step[1])
        away = [(column - x) ** 2 + (row - y) ** 2 for x, y in cells]
        return away.index(min(away))

    return state


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
