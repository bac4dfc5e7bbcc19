"""Discretisers: how a reading becomes a state; public maps, the same for whoever knows the policy.

A reading without a state (none came, or it is NaN, or no number or known name) is missing. By default such a tick
releases something without any state. Where readings fail because of what they measure, a policy names a state for it in
`missing`, which is then protected like the others: one more, after those that readings have, or one of them.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from contract._document import Document

__all__ = ["Categories", "Cells", "Discretiser", "Thresholds"]

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


Discretiser = Annotated[Thresholds | Categories | Cells, Field(discriminator="kind")]


def _check_names(discretiser: Thresholds | Categories | Cells, made: int, what: str) -> None:
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
