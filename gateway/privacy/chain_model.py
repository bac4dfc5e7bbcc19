"""The file `chain.json`: a Markov chain fitted to a recording, with all that is needed to make a class of it.

    format            1
    source            base name of the recording
    column            the column that was read
    threshold         states are "value >= threshold"; null if the column held states
    states            k
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
from gateway.chain import stationary_law
from gateway.privacy import model_fit
from gateway.privacy.model_fit import Interval

__all__ = ["WARNING", "ChainModel", "ModelError", "fit"]

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

    reason = "model"


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
        return _cells(_array(self.counts), confidence)

    def chain_class(self, confidence: float) -> ModelClass:
        """Make the class that holds this chain with a given confidence, and both halves' estimates.

        The intervals hold together at the level asked for (Bonferroni: the error is shared out among them). A class
        of k > 2 states is bounded by the largest odds ratio that the intervals allow.

        Args:
            confidence: inside (0, 1).

        Raises:
            ModelError: a transition never happened, so that the class would not be bounded away from 0 or 1.
        """
        k = self.states
        cell_confidence = 1.0 - (1.0 - confidence) / (k if k == 2 else k * k)
        cells = self.cells(cell_confidence)
        estimates = [model_fit.transition_matrix(_array(half)) for half in self.halves if _every_row(half)]
        low = np.min([np.array(cells.low), *estimates], axis=0)
        high = np.max([np.array(cells.high), *estimates], axis=0)
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
                        f"{self.source}: state {x} was never followed by state {y} (in one half at least), so no "
                        "guarantee covers the chain: merge states, sample less often (--decimate) or give a class"
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


def fit(
    states: NDArray[np.int64],
    segments: NDArray[np.int64],
    *,
    decimate: int = 1,
    period_seconds: float | None = None,
    source: str = "",
    column: str = "",
    threshold: float | None = None,
    confidences: tuple[float, ...] = (0.9, 0.95, 0.99, 0.999),
) -> ChainModel:
    """Fit a chain to a recording.

    Args:
        states: (n,) states in 0..k-1.
        segments: (n,) segment numbers; no transition is counted from one segment to the next.
        decimate: D >= 1, keep every D-th row of each segment.
        period_seconds: of the recording, before decimation.
        source, column, threshold: noted in the file.
        confidences: levels of the intervals in the file.

    Raises:
        ModelError: fewer than two states, or no transition at all.
    """
    states, segments = model_fit.decimate(states, segments, decimate)
    k = int(states.max()) + 1 if states.size else 0
    if k < 2 or np.unique(states).size < 2:
        raise ModelError(f"{source}: {states.size} row(s) with fewer than two different states tell nothing of a chain")
    if k > 255:
        raise ModelError(f"{source}: state {k - 1} is above 254, the largest state")
    counts = model_fit.count_transitions(states, segments, k)
    if not counts.sum():
        raise ModelError(f"{source}: no two neighbouring rows, so there is no transition to count")
    middle = states.size // 2
    halves = [model_fit.count_transitions(states[part], segments[part], k) for part in (np.s_[:middle], np.s_[middle:])]
    transition = model_fit.transition_matrix(counts)
    return ChainModel(
        source=source,
        column=column,
        threshold=threshold,
        states=k,
        n=int(states.size),
        decimate=decimate,
        period_seconds=None if period_seconds is None else period_seconds * decimate,
        counts=_counts(counts),
        halves=(_counts(halves[0]), _counts(halves[1])),
        transition=_matrix(transition),
        initial=_stationary(transition),
        q=float(transition[0, 1]) if k == 2 else None,
        r=float(transition[1, 0]) if k == 2 else None,
        intervals=tuple(_cells(counts, confidence) for confidence in confidences),
        homogeneity=LikelihoodRatio(**model_fit.homogeneity_test(halves)._asdict()),
        order=LikelihoodRatio(**model_fit.order_test(model_fit.count_triples(states, segments, k))._asdict()),
        sojourns=tuple(Stay(**stay._asdict()) for stay in model_fit.sojourns(states, segments, counts)),
        warning=WARNING,
    )


def _cells(counts: NDArray[np.int64], confidence: float) -> Cells:
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


def _stationary(transition: NDArray[np.float64]) -> tuple[float, ...] | None:
    try:
        return tuple(float(p) for p in stationary_law(transition))
    except ValueError:
        return None


def _every_row(half: Counts) -> bool:
    """Whether every state was left or kept at least once, so that the half has an estimate of its own."""
    return all(sum(row) for row in half)


def _array(counts: Counts) -> NDArray[np.int64]:
    return np.array(counts, dtype=np.int64)


def _counts(counts: NDArray[np.int64]) -> Counts:
    return tuple(tuple(int(n) for n in row) for row in counts)


def _matrix(values: NDArray[np.float64]) -> Matrix:
    return tuple(tuple(float(p) for p in row) for row in values)
