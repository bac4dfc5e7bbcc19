"""Discretisers: public maps by which a reading becomes a state, on devices and where policies are planned.

docs/proofs/states-and-ticks.md, "States" and "Missing readings", says which readings are missing, and why a baseline is
as it is. Whatever a sensor returns, the outcome is a state or none: never an exception, and never a word about the
reading.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fugu.contract._document import Document, Printable

__all__ = ["Baseline", "Categories", "Cells", "Discretiser", "Label", "Thresholds"]


Label = Annotated[Printable, Field(min_length=1, max_length=64)]
MAX_STATES = 1024
MAX_BASELINE_TICKS = 1 << 24


class Thresholds(Document):
    """Numbers become states: state i for edges[i-1] <= value < edges[i]; infinities have the outermost states.

    With hysteresis h > 0 the state only changes once the value has passed the edge by more than h.

    Attributes:
        hysteresis_ticks: after more ticks than this in a row without a usable reading, hysteresis starts anew.
    """

    kind: Literal["thresholds"] = "thresholds"
    edges: tuple[float, ...] = Field(min_length=1, max_length=MAX_STATES - 1)
    states: tuple[Label, ...]
    hysteresis: float = Field(default=0.0, ge=0.0)
    hysteresis_ticks: int = Field(default=10, ge=0, le=2**32)
    missing: Label | None = None

    def _check_consistency(self) -> None:
        _check_edges(self)
        if any(self.hysteresis * 2 >= high - low for low, high in pairwise(self.edges)):
            raise ValueError("hysteresis must be less than half the distance of neighbouring edges")

    @property
    def remembers(self) -> bool:
        """True if a state depends on earlier readings, too, so that fewer readings give other states."""
        return self.hysteresis > 0.0


class Baseline(Document):
    """Numbers become states by comparison with the device's own running mean: state i above i of the edges.

    The state tells how a reading compares with the mean of earlier readings, and nothing else of the reading
    (`fugu.core.states` has the arithmetic). The mean is in the device's memory only. After every start it begins again,
    and the first `baseline_ticks` ticks have no state, with or without readings. It also begins again, with the next
    reading, after more ticks than that in a row without a usable reading; no tick loses its state by that.

    Attributes:
        baseline_ticks: M, the ticks that the mean looks back; part of the question, and public.
        lowest, highest: the range of readings; finite readings beyond it count as its ends, others are missing.
        compare: whether edges are differences from the mean, or multiples of it (of readings that are not negative).
        edges: a reading is above one if it is greater than mean + edge, or than mean * edge.
    """

    remembers: ClassVar[bool] = True
    kind: Literal["baseline"] = "baseline"
    baseline_ticks: int = Field(ge=1, le=MAX_BASELINE_TICKS)
    lowest: float
    highest: float
    compare: Literal["difference", "multiple"] = "difference"
    edges: tuple[float, ...] = Field(default=(0.0,), min_length=1, max_length=MAX_STATES - 1)
    states: tuple[Label, ...] = ("below", "above")
    missing: Label | None = None

    def _check_consistency(self) -> None:
        _check_edges(self)
        if self.lowest >= self.highest:
            raise ValueError("lowest must be less than highest")
        if self.compare == "multiple" and (self.lowest < 0.0 or self.edges[0] <= 0.0):
            raise ValueError("multiples of the mean need a range from 0 or more, and edges above 0")


class Categories(Document):
    """Names become states by a map; a name that is not in it is a missing reading."""

    remembers: ClassVar[bool] = False
    kind: Literal["categories"] = "categories"
    categories: dict[Printable, int] = Field(min_length=1, max_length=10_000)
    states: tuple[Label, ...] = Field(min_length=2, max_length=MAX_STATES)
    missing: Label | None = None

    def _check_consistency(self) -> None:
        if not all(0 <= state < len(self.states) for state in self.categories.values()):
            raise ValueError("a category maps to a state that has no name")
        _check_names(self, len(self.states), "")


class Cells(Document):
    """Places become states: the cell of a grid that a latitude and longitude lie in.

    A place outside all cells belongs to the nearest one by squared distance in cells, ties to the lowest index.

    Attributes:
        origin: latitude and longitude, in degrees, of the south-west corner of cell (0, 0).
        step: height and width of a cell, in degrees.
        cells: for each state the column (to the east) and row (to the north) of its cell.
        missing: the state of a cell, or a further state after the states of the cells.
    """

    remembers: ClassVar[bool] = False
    kind: Literal["cells"] = "cells"
    origin: tuple[Annotated[float, Field(ge=-90, le=90)], Annotated[float, Field(ge=-180, le=180)]]
    step: tuple[Annotated[float, Field(gt=0, le=90)], Annotated[float, Field(gt=0, le=180)]]
    cells: tuple[tuple[int, int], ...]
    states: tuple[Label, ...] = Field(min_length=2, max_length=MAX_STATES)
    missing: Label | None = None

    def _check_consistency(self) -> None:
        _check_names(self, len(self.cells), _subject_words("cell", len(self.cells)))
        if len(set(self.cells)) != len(self.cells):
            raise ValueError("two states have the same cell")


Discretiser = Annotated[Thresholds | Baseline | Categories | Cells, Field(discriminator="kind")]
"""`missing` is the name of the state of a tick without a usable reading, if there is one."""


def _check_edges(discretiser: Thresholds | Baseline) -> None:
    _check_names(discretiser, len(discretiser.edges) + 1, _subject_words("edge", len(discretiser.edges)))
    if any(low >= high for low, high in pairwise(discretiser.edges)):
        raise ValueError("edges must increase strictly")


def _subject_words(noun: str, count: int) -> str:
    return f"{count} {noun} makes" if count == 1 else f"{count} {noun}s make"


def _check_names(discretiser: Thresholds | Baseline | Categories | Cells, state_count: int, subject: str) -> None:
    """Refuse names that do not fit the states; `state_count` leaves out a further state for missing readings."""
    names, missing = discretiser.states, discretiser.missing
    if len(set(names)) != len(names):
        raise ValueError("two states have the same name")
    if missing is not None and missing not in names:
        raise ValueError(f"missing names a state {missing!r} that is not among the states")
    has_missing_state = len(names) == state_count + 1 and missing is not None and missing == names[-1]
    if len(names) != state_count and not has_missing_state:
        alternative = "" if missing is None else f", or {state_count + 1} with the last for missing readings"
        raise ValueError(f"{subject} {state_count} states{alternative}, not {len(names)}")
