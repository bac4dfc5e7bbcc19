"""Discretisers: how a reading becomes a state, on devices and where policies are planned; public maps.

Which readings are missing, and why a baseline is as it is, stands in docs/proofs/states-and-ticks.md, "States" and
"Missing readings". Whatever a sensor hands over, the outcome is a state or none: never an exception, and never a word
about the reading.

The running mean is in integers, the same on every device, bit for bit. A reading (an IEEE double, exactly as it is) is
clamped to the policy's range and becomes the nearest of STEPS + 1 equally spaced integers, 0 for the lowest and STEPS
for the highest, halves upward. The mean is an integer number of units, UNIT to a step. The n-th reading x since the
mean began changes it by (x * UNIT - mean) / min(n, M), rounded towards 0.
Rounding is off by less than one unit a reading, and later ones shrink that by 1 - 1/min(n, M), so the mean is never M
units or more away from the one without rounding: at most 2^-8 of a step for the largest M.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from fugu.contract._document import Document

__all__ = [
    "ON_OFF",
    "STEPS",
    "UNIT",
    "Baseline",
    "Categories",
    "Cells",
    "Classifier",
    "Discretiser",
    "Thresholds",
    "remembers",
]


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


Label = Annotated[str, Field(min_length=1, max_length=64)]
MAX_STATES = 1024


class Thresholds(Document):
    """Numbers become states: state i for edges[i-1] <= value < edges[i]; infinities and beyond are the outermost.

    With hysteresis h > 0 the state only changes once the value has passed the edge by more than h.

    Attributes:
        hysteresis_ticks: after more ticks than this in a row without a usable reading, hysteresis starts anew.
        missing: name of the state of a tick without a usable reading, if there is one.
    """

    kind: Literal["thresholds"] = "thresholds"
    edges: tuple[float, ...] = Field(min_length=1, max_length=MAX_STATES - 1)
    states: tuple[Label, ...]
    hysteresis: float = Field(default=0.0, ge=0.0)
    hysteresis_ticks: int = Field(default=10, ge=0, le=2**32)
    missing: Label | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _check_names(self, len(self.edges) + 1, f"{len(self.edges)} edges make")
        if any(low >= high for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("edges must increase strictly")
        if any(self.hysteresis * 2 >= high - low for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("hysteresis must be less than half the distance of neighbouring edges")
        return self


class Baseline(Document):
    """Numbers become states by how they compare with the device's own running mean: state i above i of the edges.

    The state tells whether a reading is above one's own mean of before, and nothing else of the reading
    (this module has the arithmetic). The mean is in the device's memory only. After every start it begins
    anew, and the first `baseline_ticks` ticks have no state, with or without readings. It also begins anew, with the
    next reading, after more ticks than that in a row without a usable one; no tick loses its state by that.

    Attributes:
        baseline_ticks: M, ticks that the mean looks back; belongs to the question that is asked, and is public.
        lowest, highest: the range of readings; finite ones beyond it count as its ends, others as none.
        compare: whether edges are differences from the mean, or multiples of it (of readings that are not negative).
        edges: a reading is above one if it is greater than mean + edge, or than mean * edge.
        missing: name of the state of a tick without a usable reading, if there is one.
    """

    kind: Literal["baseline"] = "baseline"
    baseline_ticks: int = Field(ge=1, le=MAX_BASELINE_TICKS)
    lowest: float
    highest: float
    compare: Literal["difference", "multiple"] = "difference"
    edges: tuple[float, ...] = Field(default=(0.0,), min_length=1, max_length=MAX_STATES - 1)
    states: tuple[Label, ...] = ("below", "above")
    missing: Label | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _check_names(self, len(self.edges) + 1, f"{len(self.edges)} edges make")
        if self.lowest >= self.highest:
            raise ValueError("lowest must be less than highest")
        if any(low >= high for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("edges must increase strictly")
        if self.compare == "multiple" and (self.lowest < 0.0 or self.edges[0] <= 0.0):
            raise ValueError("multiples of the mean need a range from 0 or more, and edges above 0")
        return self


class Categories(Document):
    """Names become states by a map; a name that is not in it is a missing reading.

    Attributes:
        missing: name of the state of a tick without a usable reading, if there is one.
    """

    kind: Literal["categories"] = "categories"
    categories: dict[str, int] = Field(min_length=1, max_length=10_000)
    states: tuple[Label, ...] = Field(min_length=2, max_length=MAX_STATES)
    missing: Label | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not all(0 <= state < len(self.states) for state in self.categories.values()):
            raise ValueError("a category maps to a state that has no name")
        _check_names(self, len(self.states), "")
        return self


class Cells(Document):
    """Places become states: the cell of a grid that a latitude and longitude lie in.

    A place outside all cells belongs to the nearest one by squared distance in cells, ties to the lowest index.

    Attributes:
        origin: latitude and longitude, in degrees, of the south-west corner of cell (0, 0).
        step: height and width of a cell, in degrees.
        cells: for each state the column (to the east) and row (to the north) of its cell.
        missing: name of the state of a tick without a usable reading, if there is one: a cell that stands in for it, or
            a state after those of the cells.
    """

    kind: Literal["cells"] = "cells"
    origin: tuple[Annotated[float, Field(ge=-90, le=90)], Annotated[float, Field(ge=-180, le=180)]]
    step: tuple[Annotated[float, Field(gt=0, le=90)], Annotated[float, Field(gt=0, le=180)]]
    cells: tuple[tuple[int, int], ...]
    states: tuple[Label, ...] = Field(min_length=2, max_length=MAX_STATES)
    missing: Label | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _check_names(self, len(self.cells), f"{len(self.cells)} cells make")
        if len(set(self.cells)) != len(self.cells):
            raise ValueError("two states have the same cell")
        return self


Discretiser = Annotated[Thresholds | Baseline | Categories | Cells, Field(discriminator="kind")]


def _check_names(discretiser: Thresholds | Baseline | Categories | Cells, made: int, what: str) -> None:
    """Every state has a name of its own; `made` is how many there are without one for missing readings."""
    names, missing = discretiser.states, discretiser.missing
    if len(set(names)) != len(names):
        raise ValueError("two states have the same name")
    if missing is not None and missing not in names:
        raise ValueError(f"missing names a state {missing!r} that is not among the states")
    extra = len(names) == made + 1 and missing is not None and missing == names[-1]
    if len(names) != made and not extra:
        more = "" if missing is None else f", or {made + 1} with the last for missing readings"
        raise ValueError(f"{what} {made} states{more}, not {len(names)}")


def remembers(discretiser: Thresholds | Baseline | Categories | Cells) -> bool:
    """Whether a state depends on earlier readings, too: who sees fewer of them then has other states."""
    return discretiser.kind == "baseline" or (discretiser.kind == "thresholds" and discretiser.hysteresis > 0.0)


_PAIRS = ("off on", "false true", "no yes", "closed open", "clear detected", "not_home home", "idle active", "0 1")
ON_OFF = Categories(
    categories={
        spelt: state
        for pair in _PAIRS
        for state, name in enumerate(pair.split())
        for spelt in (name, name.capitalize(), name.upper())
    },
    states=("off", "on"),
)
"""The names that home automation has for off and on; "unavailable" and "unknown" are missing readings."""


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
        self._patience = 0.0
        self._warm_up = 0
        self._mean: RunningMean | None = None
        self._mean_since: int | None = None
        self._classify: Callable[[Any], int | None]
        match document["kind"]:
            case "categories":
                self._categories: dict[str, int] = document["categories"]
                self._classify = self._by_name
            case "cells":
                self._origin: list[float] = list(document["origin"])
                self._step: list[float] = list(document["step"])
                self._cells: list[tuple[int, int]] = [(column, row) for column, row in document["cells"]]
                self._classify = self._by_cell
            case "baseline":
                self._mean = RunningMean(document)
                self._warm_up = document["baseline_ticks"]
                # Where missing ticks have a state, no rule may depend on which ticks are missing.
                self._patience = self._warm_up if self._missing is None else math.inf
                self._classify = self._by_baseline
            case _:
                self._edges: list[float] = list(document["edges"])
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
        """Whether a reading can have a state: a mean's first is in the same band, whatever it is.

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
    """Whether it is no finite number: of the ways to write a number, only those of infinities and NaN have an n."""
    try:
        float(raw)
    except OverflowError:
        return False
    return "n" in str(raw).lower()


def _cell(place: float, origin: float, step: float) -> int:
    return math.floor(min(max((place - origin) / step, -_FAR), _FAR))
