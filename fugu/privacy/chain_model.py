"""A Markov chain fitted to a recording, and its file `chain.json`.

Its states show those of one stream, of two or three streams, or of one stream at two ticks.

    format            1
    kind              "fitted"
    streams           name, source (base name of the recording), column, discretiser (as a policy has it) and
                      missing_share (of the rows) of each stream
    order             1; or 2, of one stream: a state of the chain is its state at the tick before and at this one
    longest_segment   ticks of the longest stretch without a gap
    period_seconds    from tick to tick; null if that is not known
    shows             per state of the chain, the state of each stream; several streams have those that occurred
    counts            K x K transition counts (inside segments)
    chains            the class that covers the stretches, and that attackers did not refute; null if there is none
    refused           why there is none, in one line; else null
    stretches         ticks of the shortest and longest, and the least share of those of one length that the class
                      covers; null without a class
    alone             of several streams, the odds ratio of the class that covers each by itself; null if there is none
    attacked          what attackers reached; null if they were not run
    more              likelihood-ratio test of this chain against one of the next order
    warning           what a fitted chain must not be used for

Loading is strict.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, ValidationError

from fugu.chains.arrays import Floats
from fugu.contract._document import Document, first_problem
from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.discretisers import Discretiser
from fugu.contract.topics import NAME_PATTERN
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.transitions import LikelihoodRatio, transition_matrix

__all__ = [
    "MOST_STREAMS",
    "Attacked",
    "ChainModel",
    "Counts",
    "Matrix",
    "ModelFile",
    "StreamStates",
    "Stretches",
    "check_class",
    "covered_words",
    "shown_states",
]


_MAX_BYTES = 1 << 24
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Matrix = tuple[tuple[Probability, ...], ...]
Counts = tuple[tuple[Annotated[int, Field(ge=0, le=2**53)], ...], ...]


class Stretches(Document):
    """Lengths of stretches of a recording, in ticks, and the least share of one length's stretches in the class."""

    shortest: int = Field(ge=1)
    longest: int = Field(ge=1)
    covered: Probability


class Attacked(Document):
    """Attacks on the symbols or counts that would be released at an epsilon against the universal adversary.

    `success` is the strongest attacker's, for the last class that was tried.
    """

    epsilon: float = Field(gt=0.0)
    attackers: int = Field(ge=1)
    success: Probability
    low: Probability
    high: Probability
    ceiling: Probability
    guess: Probability

    @property
    def words(self) -> str:
        """Words for the proven guarantee and the strongest attacker's success."""
        return (
            f"proven if the readings are in the class. On that recording the strongest of {self.attackers} attackers "
            f"named {self.success:.3f} of the states ({self.low:.3f} to {self.high:.3f}, {self.guess:.3f} without what "
            f"was released). Epsilon {self.epsilon:g} allows {self.ceiling:.3f}"
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
        """Read the file's text; a ChainClassError names the first wrong field."""
        if len(text) > _MAX_BYTES:
            raise ChainClassError(f"{cls.called} of {len(text)} bytes; at most {_MAX_BYTES} are allowed")
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ChainClassError(first_problem(error, cls.called)) from None


def check_class(chains: BinaryChains | BoundedChains | None, refused: str | None, states: int) -> None:
    """Raise ValueError unless a file has either a class of chains with `states` states or the reason for none."""
    if (chains is None) == (refused is None):
        raise ValueError("chains or refused: one of them is null")
    if chains is not None and chains.states != states:
        raise ValueError(f"the class of chains has {chains.states} states, not {states}")


MOST_STREAMS = 3
_State = Annotated[int, Field(ge=0, le=254)]


class StreamStates(Document):
    """States of a stream; the module's docstring lists the fields."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    source: str = Field(max_length=255)
    column: str = Field(max_length=255)
    discretiser: Discretiser
    missing_share: Probability = 0.0

    @property
    def states(self) -> int:
        """The number of the stream's states."""
        return len(self.discretiser.states)

    @property
    def missing_state(self) -> int | None:
        """The state of ticks without a reading, if they have one."""
        discretiser = self.discretiser
        return None if discretiser.missing is None else discretiser.states.index(discretiser.missing)


class ChainModel(ModelFile):
    """A fitted chain; the module's docstring lists the fields."""

    called = "chain file"

    format: Literal[1] = 1
    kind: Literal["fitted"] = "fitted"
    streams: Annotated[tuple[StreamStates, ...], Field(min_length=1, max_length=MOST_STREAMS)]
    order: Literal[1, 2]
    longest_segment: int = Field(ge=1)
    period_seconds: float | None = Field(gt=0.0)
    shows: Annotated[tuple[tuple[_State, ...], ...], Field(min_length=2, max_length=255)]
    counts: Counts
    chains: BinaryChains | BoundedChains | None = Field(discriminator="kind")
    refused: str | None
    stretches: Stretches | None
    alone: tuple[Annotated[float, Field(ge=1.0)] | None, ...]
    attacked: Attacked | None = None
    more: LikelihoodRatio
    warning: str

    def _check_consistency(self) -> None:
        state_count, streams = len(self.shows), len(self.streams)
        if len(self.counts) != state_count or any(len(row) != state_count for row in self.counts):
            raise ValueError(f"counts need {state_count} rows of {state_count} numbers")
        if any(len(row) != streams for row in self.shows):
            raise ValueError("shows needs a column for each stream")
        for column, stream in zip(zip(*self.shows, strict=True), self.streams, strict=True):
            if max(column) >= stream.states:
                raise ValueError("shows names a state that a stream does not have")
        if len(self.alone) != streams * (streams > 1):
            raise ValueError("alone needs an entry for each of several streams")
        if len({stream.name for stream in self.streams}) != streams:
            raise ValueError("two streams have the same name")
        if self.order == 2 and streams > 1:
            raise ValueError("order 2 is for one stream")
        if streams == 1 and self.shows != shown_states(self.streams[0].states, self.order):
            raise ValueError("one stream has all its states, or all pairs of them, the one before first")
        check_class(self.chains, self.refused, state_count)
        if self.chains is not None and self.stretches is None:
            raise ValueError("stretches are null, and there is a class")

    @property
    def transition(self) -> Floats:
        """The maximum-likelihood transition matrix (K, K)."""
        return transition_matrix(np.array(self.counts, dtype=np.int64))

    @property
    def class_words(self) -> str:
        """Words for the class of the chain, which must have one."""
        assert self.chains is not None
        assert self.stretches is not None
        shortest, longest, covered = self.stretches.shortest, self.stretches.longest, self.stretches.covered
        ticks = f"{shortest} to {longest}" if longest > shortest else f"{longest}"
        if not self.chains.changes:
            return f"q and r do not change over stretches of {ticks} ticks; each end of their intervals holds with 90 %"
        return (
            f"{'joint ' * (len(self.streams) > 1)}steps of odds ratios up to {self.chains.odds_bound:.4g}, which may "
            f"change from tick to tick; it covers {covered_words(covered)} of {ticks} ticks"
        )


def shown_states(states: int, order: int) -> tuple[tuple[int], ...]:
    """Return the present state that each state of a chain shows; a state of order 2 is a pair, the earlier first."""
    return tuple((state,) for state in range(states)) * (states if order == 2 else 1)


def covered_words(share: float) -> str:
    """Return words for the share of stretches that a class covers, rounded down."""
    return "all stretches" if share == 1.0 else f"{math.floor(1000.0 * share) / 10.0:g} % of the stretches"
