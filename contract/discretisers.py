"""Discretisers: how a reading becomes a state; public maps, the same for whoever knows the policy."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from contract._document import Document

__all__ = ["Categories", "Cells", "Discretiser", "Thresholds"]

Label = Annotated[str, Field(min_length=1, max_length=64)]
MAX_STATES = 1024


class Thresholds(Document):
    """Numbers become states: state i for edges[i-1] <= value < edges[i].

    With hysteresis h > 0 the state only changes once the value has passed the edge by more than h.
    """

    kind: Literal["thresholds"] = "thresholds"
    edges: tuple[float, ...] = Field(min_length=1, max_length=MAX_STATES - 1)
    states: tuple[Label, ...]
    hysteresis: float = Field(default=0.0, ge=0.0)
    default: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.states) != len(self.edges) + 1:
            raise ValueError(f"{len(self.edges)} edges make {len(self.edges) + 1} states, not {len(self.states)}")
        if any(low >= high for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("edges must increase strictly")
        if any(self.hysteresis * 2 >= high - low for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("hysteresis must be less than half the distance of neighbouring edges")
        _check_names(self)
        return self


class Categories(Document):
    """Names become states by a map; a name that is not in it counts as a missing reading."""

    kind: Literal["categories"] = "categories"
    categories: dict[str, int] = Field(min_length=1, max_length=10_000)
    states: tuple[Label, ...] = Field(min_length=2, max_length=MAX_STATES)
    default: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not all(0 <= state < len(self.states) for state in self.categories.values()):
            raise ValueError("a category maps to a state that has no name")
        _check_names(self)
        return self


class Cells(Document):
    """Places become states: the cell of a grid that a latitude and longitude lie in.

    A place outside all cells belongs to the nearest one by squared distance in cells, ties to the lowest index.

    Attributes:
        origin: latitude and longitude, in degrees, of the south-west corner of cell (0, 0).
        step: height and width of a cell, in degrees.
        cells: for each state the column (to the east) and row (to the north) of its cell.
    """

    kind: Literal["cells"] = "cells"
    origin: tuple[Annotated[float, Field(ge=-90, le=90)], Annotated[float, Field(ge=-180, le=180)]]
    step: tuple[Annotated[float, Field(gt=0, le=90)], Annotated[float, Field(gt=0, le=180)]]
    cells: tuple[tuple[int, int], ...]
    states: tuple[Label, ...] = Field(min_length=2, max_length=MAX_STATES)
    default: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.cells) != len(self.states):
            raise ValueError(f"{len(self.cells)} cells have {len(self.states)} names")
        if len(set(self.cells)) != len(self.cells):
            raise ValueError("two states have the same cell")
        _check_names(self)
        return self


Discretiser = Annotated[Thresholds | Categories | Cells, Field(discriminator="kind")]


def _check_names(discretiser: Thresholds | Categories | Cells) -> None:
    if discretiser.default >= len(discretiser.states):
        raise ValueError(f"default state {discretiser.default} has no name")
    if len(set(discretiser.states)) != len(discretiser.states):
        raise ValueError("two states have the same name")
