"""The file of a class that was learned from randomised symbols: `fugu gateway learn` writes it, plans are made for it.

format            1
kind              "learned"
source            base name of the store or folder
stream            the stream's name
devices           how many devices have had it
ticks             ticks with a symbol
since, until      of the first and after the last of them, RFC 3339
discretiser       what makes the states, as in the policies
states            k
period_seconds    from tick to tick
transition        k x k, the chain of largest likelihood
low, high         k x k, intervals of its entries; each end holds with 90 %
known             the largest odds ratio of its steps
scales            per length of stretches: ticks, stretches, the odds ratio that covers them, and how likely one chain
                  that does not change differs as much (`fugu.privacy.learned_class`)
chains            the class; null if the symbols tell too little
refused           why there is none, in one line; else null
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fugu.contract._document import Document
from fugu.contract.chains import BoundedChains
from fugu.contract.discretisers import Discretiser
from fugu.contract.topics import NAME_PATTERN
from fugu.privacy.chain_model import Matrix, ModelFile, Probability

__all__ = ["LearnedModel", "LearnedScale"]


class LearnedScale(Document):
    """As `learned_class.Scale`."""

    ticks: int = Field(ge=1)
    stretches: int = Field(ge=1)
    odds_ratio: float = Field(ge=1.0)
    p_value: Probability


class LearnedModel(ModelFile):
    """A learned class; the module's docstring lists the fields."""

    called = "file of a learned class"

    format: Literal[1] = 1
    kind: Literal["learned"] = "learned"
    source: str = Field(max_length=255)
    stream: str = Field(pattern=NAME_PATTERN)
    devices: int = Field(ge=1)
    ticks: int = Field(ge=1)
    since: str = Field(max_length=64)
    until: str = Field(max_length=64)
    discretiser: Discretiser
    states: int = Field(ge=2, le=255)
    period_seconds: float = Field(gt=0.0)
    transition: Matrix
    low: Matrix
    high: Matrix
    known: float = Field(ge=1.0)
    scales: tuple[LearnedScale, ...]
    chains: BoundedChains | None
    refused: str | None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for square in (self.transition, self.low, self.high):
            if len(square) != self.states or any(len(row) != self.states for row in square):
                raise ValueError(f"every matrix needs {self.states} rows of {self.states} numbers")
        if len(self.discretiser.states) != self.states:
            raise ValueError(f"the discretiser has {len(self.discretiser.states)} states, not {self.states}")
        if (self.chains is None) == (self.refused is None):
            raise ValueError("chains or refused: one of them is null")
        if self.chains is not None and self.chains.states != self.states:
            raise ValueError(f"the class of chains has {self.chains.states} states, not {self.states}")
        return self
