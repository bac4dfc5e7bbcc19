"""A Markov chain fitted to a recording, and its file `chain.json`.

Its states show those of one stream, of two or three streams, or of one stream at two ticks.

    format            1
    kind              "fitted"
    streams           name, source (base name of the recording), column, discretiser (as a policy has it; null if the
                      column held states), states k, missing_state (of rows without a reading, the last one; null if
                      they were left out) and missing_share (of the rows) of each stream
    order             1; or 2, of one stream: a state of the chain is its state at the tick before and at this one
    n                 rows that were used
    segments          stretches without a gap
    longest_segment   rows of the longest of them
    period_seconds    from row to row; null if that is not known
    shows             per state of the chain, the state of each stream; several streams have those that occurred
    counts            K x K transition counts (inside segments)
    transition        K x K maximum-likelihood estimate, counts / row sums
    initial           its stationary distribution; null if there are several
    chains            the class that covers the stretches, and that attackers did not refute; null if there is none
    refused           why there is none, in one line; else null
    alone             of several streams, the odds ratio of the class that covers each by itself; null if there is none
    stretches         per length: stretches, the odds ratio that covers them, the share of them inside the class that
                      covers all lengths, dispersion of each row's transitions (1 for a chain that does not change),
                      whether they change
    attacked          what attackers reached, and what widening cost; null if they were not run
    independent       likelihood-ratio test of independent streams against this chain; null for one stream
    more              likelihood-ratio test of this chain against one of the next order
    warning           what a fitted chain must not be used for

Loading is strict, and refuses estimates that are not those of the counts.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from fugu.contract._document import Document, first_problem
from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.discretisers import Discretiser
from fugu.contract.errors import FuguError
from fugu.contract.topics import NAME_PATTERN
from fugu.privacy.transitions import LikelihoodRatio, transition_matrix

__all__ = [
    "MOST_STREAMS",
    "Attacked",
    "ChainModel",
    "Counts",
    "Matrix",
    "ModelError",
    "ModelFile",
    "StreamStates",
    "Stretches",
    "Tried",
    "covered_words",
    "shown_states",
]


_SLACK = 1e-9
_MAX_BYTES = 1 << 24
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Matrix = tuple[tuple[Probability, ...], ...]
Counts = tuple[tuple[Annotated[int, Field(ge=0, le=2**53)], ...], ...]


class ModelError(FuguError):
    """A recording or a chain file cannot be used to describe a chain."""


class Stretches(Document):
    """Statistics of the stretches of one length, as in `covering_class.Length`."""

    ticks: int = Field(ge=1)
    stretches: int = Field(ge=1)
    odds_ratio: float = Field(ge=1.0)
    covered: Probability
    dispersion: tuple[tuple[float, ...], ...]
    changes: bool


class Tried(Document):
    """A class that was attacked, and the strongest attacker's success; as in `true_class.Step`."""

    odds_ratio: float = Field(ge=1.0)
    count_scale: float = Field(gt=0.0)
    attacker: str
    success: Probability
    low: Probability
    high: Probability
    ceiling: Probability
    guess: Probability


class Attacked(Document):
    """Attacks on the symbols or counts that would be released at some epsilon, universal adversary."""

    epsilon: float = Field(gt=0.0)
    attackers: int = Field(ge=1)
    steps: tuple[Tried, ...]

    @property
    def words(self) -> str:
        """Sentence about what attackers reached and what is proven."""
        last = self.steps[-1]
        return (
            f"proven if the readings are in the class; on that recording the strongest of {self.attackers} attackers "
            f"named {last.success:.3f} of the states at epsilon {self.epsilon:g} ({last.low:.3f} to {last.high:.3f}; "
            f"{last.guess:.3f} without what was released, {last.ceiling:.3f} allowed)"
        )


class ModelFile(Document):
    """A fitted chain as a file.

    Attributes:
        called: what errors call such a file.
    """

    called: ClassVar[str]

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps(self.model_dump(mode="json"), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read the file's text; a ModelError names, in one line, the first field that is wrong."""
        if len(text) > _MAX_BYTES:
            raise ModelError(f"{cls.called} of {len(text)} bytes; at most {_MAX_BYTES} are allowed")
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ModelError(first_problem(error, cls.called)) from None


MOST_STREAMS = 3
_State = Annotated[int, Field(ge=0, le=254)]


class StreamStates(Document):
    """States of a stream; the module's docstring lists the fields."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    source: str = Field(max_length=255)
    column: str = Field(max_length=255)
    discretiser: Discretiser | None
    states: int = Field(ge=2, le=255)
    missing_state: int | None = None
    missing_share: Probability = 0.0

    @model_validator(mode="after")
    def _last(self) -> Self:
        if self.missing_state not in (None, self.states - 1):
            raise ValueError("missing_state is not the last state")
        return self


class ChainModel(ModelFile):
    """A fitted chain; the module's docstring lists the fields."""

    called = "chain file"

    format: Literal[1] = 1
    kind: Literal["fitted"] = "fitted"
    streams: Annotated[tuple[StreamStates, ...], Field(min_length=1, max_length=MOST_STREAMS)]
    order: Literal[1, 2]
    n: int = Field(ge=2)
    segments: int = Field(ge=1)
    longest_segment: int = Field(ge=1)
    period_seconds: float | None = Field(gt=0.0)
    shows: Annotated[tuple[tuple[_State, ...], ...], Field(min_length=2, max_length=255)]
    counts: Counts
    transition: Matrix
    initial: tuple[Probability, ...] | None
    chains: BinaryChains | BoundedChains | None = Field(discriminator="kind")
    refused: str | None
    alone: tuple[Annotated[float, Field(ge=1.0)] | None, ...]
    stretches: tuple[Stretches, ...]
    attacked: Attacked | None = None
    independent: LikelihoodRatio | None
    more: LikelihoodRatio
    warning: str

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        size, streams = len(self.shows), len(self.streams)
        if not self.longest_segment + self.segments - 1 <= self.n <= self.longest_segment * self.segments:
            raise ValueError("so many segments of at most that many rows are not n rows")
        squares = self.counts, self.transition
        if any(len(square) != size or any(len(row) != size for row in square) for square in squares):
            raise ValueError(f"every matrix needs {size} rows of {size} numbers")
        if any(len(row) != streams for row in self.shows):
            raise ValueError("shows needs a column for each stream")
        for column, one in zip(zip(*self.shows, strict=True), self.streams, strict=True):
            if max(column) >= one.states:
                raise ValueError("shows names a state that a stream does not have")
        if len(self.alone) != streams * (streams > 1):
            raise ValueError("alone needs an entry for each of several streams")
        if len({one.name for one in self.streams}) != streams:
            raise ValueError("two streams have the same name")
        if self.order == 2 and streams > 1:
            raise ValueError("order 2 is for one stream")
        if streams == 1 and self.shows != shown_states(self.streams[0].states, self.order):
            raise ValueError("one stream has all its states, or all pairs of them, the one before first")
        if self.initial is not None and len(self.initial) != size:
            raise ValueError(f"initial needs {size} entries")
        expected = transition_matrix(np.array(self.counts, dtype=np.int64))
        if np.max(np.abs(expected - np.array(self.transition))) > _SLACK:
            raise ValueError("transition is not the estimate that belongs to the counts")
        if (self.chains is None) == (self.refused is None):
            raise ValueError("chains or refused: one of them is null")
        if self.chains is not None and self.chains.states != size:
            raise ValueError(f"the class of chains has {self.chains.states} states, not {size}")
        return self

    @property
    def class_words(self) -> str:
        """The class, which it has, in a few words."""
        lengths = [stretch.ticks for stretch in self.stretches]
        over = f"{lengths[0]} to {lengths[-1]}" if len(lengths) > 1 else f"{lengths[0]}"
        assert self.chains is not None
        if not self.chains.changes:
            return f"q and r do not change over stretches of {over} ticks; each end of their intervals holds with 90 %"
        return (
            f"{'joint ' * (len(self.streams) > 1)}steps of odds ratios up to {self.chains.odds_bound:.4g}, which may "
            f"change from tick to tick; it covers {covered_words(min(stretch.covered for stretch in self.stretches))} "
            f"of {over} ticks"
        )


def shown_states(states: int, order: int) -> tuple[tuple[int], ...]:
    """The state of one stream in each state of its chain: all of them, or of all pairs the one now."""
    return tuple((state,) for state in range(states)) * (states if order == 2 else 1)


def covered_words(share: float) -> str:
    """The share of stretches that a class covers, rounded down."""
    return "all stretches" if share == 1.0 else f"{math.floor(1000.0 * share) / 10.0:g} % of the stretches"
