"""The file `chain.json`: a Markov chain fitted to a recording, with all that is needed to make a class of it.

    format            1
    source            base name of the recording
    column            the column that was read
    threshold         states are "value >= threshold"; null if the column held states
    states            k
    missing_state     the state of rows without a reading, the last one; null if they were left out
    missing_share     share of the rows that had no reading
    n                 rows that were used, after decimation
    decimate          D: every D-th row of each segment was used
    period_seconds    median step of column t, times D; null without a column t
    counts            k x k transition counts (inside segments)
    halves            the counts of the first and of the second half of the rows
    transition        k x k maximum-likelihood estimate, counts / row sums
    initial           its stationary law; null if there are several
    q, r              for k = 2: transition[0][1] and transition[1][0]; otherwise null
    intervals         per confidence level: low and high, k x k, Clopper-Pearson, each cell for itself
    homogeneity       likelihood-ratio test of one chain against one for each half
    order             likelihood-ratio test of a first-order chain against a second-order one
    sojourns          per state: complete stays, their mean and median length in ticks, and a chain's
    warning           what a fitted chain must not be used for

Intervals at any other level follow from `counts`. Loading is strict, and refuses estimates that are not those of the
counts.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from contract._document import Document
from contract.chains import BinaryChains, BoundedChains
from contract.errors import FuguError
from gateway.privacy import model_fit
from gateway.privacy.model_fit import Interval

__all__ = [
    "WARNING",
    "Cells",
    "ChainModel",
    "Counts",
    "LikelihoodRatio",
    "Matrix",
    "ModelError",
    "Stay",
    "interval_cells",
]

WARNING = (
    "a chain fitted to readings that will be released leaks about them: fit on other data than will be released, "
    "or widen the class of chains"
)
_SLACK = 1e-9
_MAX_BYTES = 1 << 24
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Matrix = tuple[tuple[Probability, ...], ...]
Counts = tuple[tuple[Annotated[int, Field(ge=0, le=2**53)], ...], ...]


class ModelError(FuguError):
    """A recording or a chain file cannot be used to describe a chain."""


class LikelihoodRatio(Document):
    """A likelihood-ratio test, as in `model_fit.GTest`."""

    statistic: float = Field(ge=0.0)
    degrees: int = Field(ge=0)
    p_value: Probability
    nats_per_step: float = Field(ge=0.0)


class Stay(Document):
    """How long a state lasts, in ticks, as in `model_fit.Sojourn`."""

    stays: int = Field(ge=0)
    mean: float | None
    median: float | None
    geometric_mean: float | None
    geometric_median: float | None


class Cells(Document):
    """Confidence intervals of every transition probability."""

    confidence: float = Field(gt=0.0, lt=1.0)
    low: Matrix
    high: Matrix


class ModelClass(NamedTuple):
    """A class of chains made from a fitted chain.

    Attributes:
        chains: the class.
        widened: whether the halves' estimates made it wider than the confidence intervals.
        cell_confidence: level of each interval, so that all hold together at the level that was asked for.
    """

    chains: BinaryChains | BoundedChains
    widened: bool
    cell_confidence: float


class ChainModel(Document):
    """A fitted chain; the module's docstring lists the fields."""

    format: Literal[1] = 1
    source: str = Field(max_length=255)
    column: str = Field(max_length=255)
    threshold: float | None
    states: int = Field(ge=2, le=255)
    missing_state: int | None = None
    missing_share: Probability = 0.0
    n: int = Field(ge=2)
    decimate: int = Field(ge=1)
    period_seconds: float | None = Field(gt=0.0)
    counts: Counts
    halves: tuple[Counts, Counts]
    transition: Matrix
    initial: tuple[Probability, ...] | None
    q: Probability | None
    r: Probability | None
    intervals: tuple[Cells, ...]
    homogeneity: LikelihoodRatio
    order: LikelihoodRatio
    sojourns: tuple[Stay, ...]
    warning: str

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        k = self.states
        if self.missing_state not in (None, k - 1):
            raise ValueError("missing_state is not the last state")
        squares = [self.counts, *self.halves, self.transition]
        squares += [matrix for cells in self.intervals for matrix in (cells.low, cells.high)]
        if any(len(square) != k or any(len(row) != k for row in square) for square in squares):
            raise ValueError(f"every matrix needs {k} rows of {k} numbers")
        if len(self.initial or self.sojourns) != k or len(self.sojourns) != k:
            raise ValueError(f"initial and sojourns need {k} entries")
        expected = model_fit.transition_matrix(_array(self.counts))
        if np.max(np.abs(expected - np.array(self.transition))) > _SLACK:
            raise ValueError("transition is not the estimate that belongs to the counts")
        if k == 2 and (self.q, self.r) != (self.transition[0][1], self.transition[1][0]):
            raise ValueError("q and r are not those of the transition matrix")
        return self

    def cells(self, confidence: float) -> Cells:
        """Clopper-Pearson intervals of every transition probability, each for itself."""
        return interval_cells(_array(self.counts), confidence)

    def chain_class(self, confidence: float) -> ModelClass:
        """Make the class that holds this chain with a given confidence, and both halves' estimates.

        The intervals hold together at the level asked for (Bonferroni: the error is shared out among them). A class
        of k > 2 states is bounded by the largest odds ratio that the intervals allow. A half that never showed a
        transition does not say that it is impossible: it counts with the upper end of its own interval.

        Args:
            confidence: inside (0, 1).

        Raises:
            ModelError: a transition never happened, so that the class would not be bounded away from 0 or 1.
        """
        k = self.states
        cell_confidence = 1.0 - (1.0 - confidence) / (k if k == 2 else k * k)
        cells = self.cells(cell_confidence)
        estimates = [_half_estimate(_array(half), cell_confidence) for half in self.halves]
        low = np.fmin.reduce([np.array(cells.low), *estimates])
        high = np.fmax.reduce([np.array(cells.high), *estimates])
        widened = bool((low < np.array(cells.low)).any() or (high > np.array(cells.high)).any())
        self._refuse_unbounded(low, high)
        if k == 2:
            binary = BinaryChains(q=(float(low[0, 1]), float(high[0, 1])), r=(float(low[1, 0]), float(high[1, 0])))
            return ModelClass(binary, widened, cell_confidence)
        bounded = BoundedChains(states=k, odds_ratio=_largest_odds(low, high), transition=self.transition)
        return ModelClass(bounded, widened, cell_confidence)

    def _refuse_unbounded(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
        for x in range(self.states):
            for y in range(self.states):
                never = low[x, y] <= 0.0 or (self.states == 2 and high[x, y] >= 1.0)
                if never and (self.states > 2 or x != y):
                    raise ModelError(
                        f"{self.source}: state {x} was never followed by state {y}, so no guarantee covers "
                        "the chain: merge states, sample less often (--decimate) or give a class"
                    )

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps(self.model_dump(mode="json"), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read the file's text.

        Raises:
            ModelError: one line that names the first field that is wrong.
        """
        if len(text) > _MAX_BYTES:
            raise ModelError(f"chain file of {len(text)} bytes; at most {_MAX_BYTES} are allowed")
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "chain file"
            raise ModelError(f"{where}: {first['msg']}") from None


def interval_cells(counts: NDArray[np.int64], confidence: float) -> Cells:
    """Clopper-Pearson intervals of every transition probability, from (k, k) counts."""
    intervals = [[_interval(row, y, confidence) for y in range(row.size)] for row in counts]
    return Cells(
        confidence=confidence,
        low=tuple(tuple(cell.low for cell in row) for row in intervals),
        high=tuple(tuple(cell.high for cell in row) for row in intervals),
    )


def _interval(row: NDArray[np.int64], outcome: int, confidence: float) -> Interval:
    return model_fit.clopper_pearson(int(row[outcome]), int(row.sum()), confidence)


def _largest_odds(low: NDArray[np.float64], high: NDArray[np.float64]) -> float:
    """Bound P[x,y] P[x',y'] / (P[x,y'] P[x',y]) over all matrices between two, rounded up."""
    k = low.shape[0]
    logs = [
        math.log(high[x, y] / low[x, z]) + math.log(high[w, z] / low[w, y])
        for x in range(k)
        for w in range(x + 1, k)
        for y in range(k)
        for z in range(k)
        if y != z
    ]
    return math.exp(max(logs)) * (1.0 + 1e-12)


def _half_estimate(counts: NDArray[np.int64], confidence: float) -> NDArray[np.float64]:
    """Estimate (k, k) of one half, NaN where it says nothing; a cell at 0 or 1 is at the near end of its interval."""
    estimate = model_fit.transition_matrix(counts)
    estimate[counts.sum(axis=1) == 0] = np.nan
    for x, y in zip(*np.nonzero((estimate == 0.0) | (estimate == 1.0)), strict=True):
        interval = _interval(counts[x], int(y), confidence)
        estimate[x, y] = interval.high if counts[x, y] == 0 else interval.low
    return estimate


def _array(counts: Counts) -> NDArray[np.int64]:
    return np.array(counts, dtype=np.int64)
