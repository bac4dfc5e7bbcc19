"""The file of a joint chain: its states show those of two or three streams, or of one stream at two ticks.

    format            1
    kind              "joint"
    streams           name, source, column, discretiser, states k, missing_state and missing_share of each stream, as in
                      the file of one stream (`fugu.privacy.chain_model`)
    order             1; or 2, of one stream: a joint state is its state at the tick before and at this one
    n                 rows that were used, after decimation
    decimate          1: every row was used
    period_seconds    from tick to tick; null if it is not known
    shows             per joint state, the state of each stream; those that never occurred are left out
    counts            K x K transition counts
    transition        K x K maximum-likelihood estimate
    odds_ratio        of the class of chains that covers every stretch of the recording; null if there is none
    alone             per stream, the odds ratio of the class that covers it by itself; null if there is none
    refused           why there is none, in one line; else null
    stretches         per length: as in the file of one stream
    regimes           likewise
    attacked          what attackers reached on symbols of all streams; null if they were not run
    independent       likelihood-ratio test of independent streams against the joint chain; null for one stream
    more              likelihood-ratio test of the joint chain against one of the next order
    warning           what a fitted chain must not be used for

Loading is strict, and refuses estimates that are not those of the counts.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fugu.contract._document import Document
from fugu.contract.discretisers import Discretiser
from fugu.contract.topics import NAME_PATTERN
from fugu.privacy import chain_model
from fugu.privacy.chain_model import (
    Attacked,
    Counts,
    LikelihoodRatio,
    Matrix,
    ModelFile,
    Probability,
    SlowRegime,
    Stretches,
)

__all__ = ["MOST_STREAMS", "JointModel", "StreamStates"]

MOST_STREAMS = 3
_SLACK = 1e-9
_State = Annotated[int, Field(ge=0, le=254)]


class StreamStates(Document):
    """States of a stream, as in `ChainModel`."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    source: str = Field(max_length=255)
    column: str = Field(max_length=255)
    discretiser: Discretiser | None
    states: int = Field(ge=2, le=255)
    missing_state: int | None = None
    missing_share: Probability = 0.0


class JointModel(ModelFile):
    """A fitted joint chain; the module's docstring lists the fields."""

    called = "file of a joint chain"

    format: Literal[1] = 1
    kind: Literal["joint"] = "joint"
    streams: Annotated[tuple[StreamStates, ...], Field(min_length=1, max_length=MOST_STREAMS)]
    order: Literal[1, 2]
    n: int = Field(ge=2)
    decimate: int = Field(ge=1)
    period_seconds: float | None = Field(gt=0.0)
    shows: Annotated[tuple[tuple[_State, ...], ...], Field(min_length=2, max_length=255)]
    counts: Counts
    transition: Matrix
    odds_ratio: float | None = Field(ge=1.0)
    alone: tuple[Annotated[float, Field(ge=1.0)] | None, ...]
    refused: str | None
    stretches: tuple[Stretches, ...]
    regimes: tuple[SlowRegime, ...]
    attacked: Attacked | None = None
    independent: LikelihoodRatio | None
    more: LikelihoodRatio
    warning: str

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        size = len(self.shows)
        if any(len(square) != size or any(len(row) != size for row in square) for square in self._squares()):
            raise ValueError(f"every matrix needs {size} rows of {size} numbers")
        columns = list(zip(*self.shows, strict=False))
        if any(len(row) != len(self.streams) for row in self.shows):
            raise ValueError("shows needs a column for each stream")
        if any(max(column) >= one.states for column, one in zip(columns, self.streams, strict=True)):
            raise ValueError("shows names a state that a stream does not have")
        if len(self.alone) != len(self.streams):
            raise ValueError("alone needs an entry for each stream")
        if len({one.name for one in self.streams}) != len(self.streams):
            raise ValueError("two streams have the same name")
        if self.order == 2 and len(self.streams) > 1:
            raise ValueError("order 2 is for one stream")
        expected = chain_model.transition_matrix(np.array(self.counts, dtype=np.int64))
        if np.max(np.abs(expected - np.array(self.transition))) > _SLACK:
            raise ValueError("transition is not the estimate that belongs to the counts")
        if (self.odds_ratio is None) == (self.refused is None):
            raise ValueError("odds_ratio or refused: one of them is null")
        return self

    def _squares(self) -> list[tuple[tuple[float, ...], ...]]:
        return [self.counts, self.transition, *(regime.transition for regime in self.regimes)]
