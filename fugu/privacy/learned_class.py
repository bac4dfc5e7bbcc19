"""The class of chains that covers a fleet, learned from randomised symbols only.

A chain is written by its log-ratios theta[x,y] = log(P[x,y] / P[x,x]): every logarithm of an odds ratio of a step is a
sum of four of them. One chain is fitted to all symbols. The deviation of stretches or whole streams from it is partly
noise of known variance, the inverse information of their symbols. The rest is how much probabilities differ; its
variance is taken at its interval's upper end, with 90 %. Each stretch then has the range that this distribution and its
own symbols leave, but for a tenth. The class holds every chain that changes over time with odds ratios no larger than
those of all but 2 % of the stretches of each length. The fitted chain's error is added, at the end of its interval that
holds with 90 %.

So noise makes a class wide, never narrow. No symbols show regimes that are shorter than the shortest stretches.

Sources: one Newton step from an estimate (Le Cam, "On the asymptotic theory of estimation", 1956). The interval of a
normal variance. DerSimonian and Laird, "Meta-analysis in clinical trials" (1986), for probabilities that differ. The
normal distribution of a mean whose own is normal.

The file of a class that was learned from randomised symbols: `fugu gateway learn` writes it, plans are made for it.

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
    scales            per length of stretches: ticks, stretches, the odds ratio that covers them, and how likely one
                      chain that does not change differs as much
    chains            the class; null if the symbols tell too little
    refused           why there is none, in one line; else null
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, permutations, product
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field
from scipy import special

from fugu.chains.arrays import Floats, Ints
from fugu.contract._document import Document
from fugu.contract.chains import BoundedChains
from fugu.contract.discretisers import Discretiser
from fugu.contract.topics import NAME_PATTERN
from fugu.privacy.chain_model import Matrix, ModelFile, check_class
from fugu.privacy.covering_class import bounded_class

__all__ = ["Deviations", "LearnedClass", "LearnedModel", "learned_class", "log_ratios", "transition_of"]


class LearnedScale(Document):
    """Deviation of stretches of one length; `ticks` is the mean of their ticks with a symbol.

    All stretches but a small share have at most `odds_ratio`. `p_value` is the probability of such a deviation if all
    have one chain.
    """

    ticks: int = Field(ge=1)
    stretches: int = Field(ge=1)
    odds_ratio: float = Field(ge=1.0)
    p_value: float = Field(ge=0.0, le=1.0)


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

    @property
    def words(self) -> str:
        """Words for the class: its symbols, and the stretches that it covers."""
        devices = "1 device" if self.devices == 1 else f"{self.devices} devices"
        symbols = f"the symbols of stream {self.stream} of {devices}, {self.ticks} ticks"
        if self.chains is None:
            return symbols
        lengths = sorted(scale.ticks for scale in self.scales)
        return (
            f"{symbols}: steps of odds ratios up to {self.chains.odds_ratio:.4g}, which may change from tick to tick. "
            f"It covers stretches of {lengths[0]} to {lengths[-1]} ticks, as far as the symbols tell"
        )

    def _check_consistency(self) -> None:
        for matrix in (self.transition, self.low, self.high):
            if len(matrix) != self.states or any(len(row) != self.states for row in matrix):
                raise ValueError(f"every matrix needs {self.states} rows of {self.states} numbers")
        if len(self.discretiser.states) != self.states:
            raise ValueError(f"the discretiser has {len(self.discretiser.states)} states, not {self.states}")
        check_class(self.chains, self.refused, self.states)


_SHARE = 0.02
_TAIL = 0.1
_QUANTILE = float(special.ndtri(1.0 - _TAIL))
_AT_ONCE = 1024
_MOST_ERROR = 1.0
_MOST_RATIO = 15.0


class Deviations(NamedTuple):
    """Deviation of s stretches of one length, or of whole streams, from the chain of all symbols.

    Attributes:
        ticks: (s,) with a symbol.
        deviations: (s, d), d = k (k - 1), of each stretch's log-ratios from those of all.
        kinds: (s,) the index of each stretch's noise.
        noise: (g, d, d) covariances of the deviations of a stretch of one tick, if probabilities do not differ.
    """

    ticks: Ints
    deviations: Floats
    kinds: Ints
    noise: Floats

    @property
    def p_value(self) -> float:
        """The probability of such deviations if all stretches have one chain."""
        inverse = np.linalg.inv(self.noise)[self.kinds]
        statistic = np.einsum("si,sij,sj,s->", self.deviations, inverse, self.deviations, self.ticks.astype(np.float64))
        return float(special.chdtrc(self.deviations.size, max(float(statistic), 0.0)))


class LearnedClass(NamedTuple):
    """A learned class; `refused` is the reason why `chains` is `None`, else "".

    The chain of all symbols is `transition`; the ends `low` and `high` of its probabilities each hold with 90 %;
    `known` is the largest odds ratio of its steps.
    """

    transition: Floats
    low: Floats
    high: Floats
    known: float
    scales: tuple[LearnedScale, ...]
    chains: BoundedChains | None
    refused: str


def log_ratios(transition: Floats) -> Floats:
    """Return the log-ratios (k (k - 1),) of a chain (k, k), row by row."""
    ratios = np.log(transition) - np.log(np.diag(transition))[:, None]
    return np.asarray(ratios[_move_indices(len(transition))])


def transition_of(ratios: Floats, k: int) -> Floats:
    """Return the chain (k, k) of log-ratios (k (k - 1),)."""
    log_odds_matrix = np.zeros((k, k))
    log_odds_matrix[_move_indices(k)] = ratios
    return np.asarray(special.softmax(log_odds_matrix, axis=1))


def learned_class(transition: Floats, information: Floats, ticks: int, levels: Sequence[Deviations]) -> LearnedClass:
    """Return the class that covers a fleet, from estimates by its symbols.

    `transition` has the largest likelihood; `information` (d, d) is that of all symbols about its d = k (k - 1)
    log-ratios; `ticks` is the number of symbols; `levels` are deviations of the stretches of each length.
    """
    k, ratios = len(transition), log_ratios(transition)
    log_odds_sums = _log_odds_sums(k)
    largest_odds = math.exp(min(float((log_odds_sums @ ratios).max()), 700.0))
    if refusal := _refuse_uninformed(transition, information, ticks):
        return LearnedClass(transition, np.zeros((k, k)), np.ones((k, k)), largest_odds, (), None, refusal)
    covariance = np.asarray(np.linalg.inv(information), dtype=np.float64)
    spreads = (level.deviations.T @ level.deviations / len(level.ticks) ** 2 for level in levels)
    covariances = [covariance, *(np.asarray(spread, dtype=np.float64) for spread in spreads)]
    errors = np.sqrt(np.max([_variances(log_odds_sums, matrix) for matrix in covariances], axis=0))
    upper_log_odds = log_odds_sums @ ratios + _QUANTILE * errors
    scales, largest_log_odds = [], float(upper_log_odds.max())
    for level in levels:
        bound = _covering_log_odds(level, log_odds_sums, upper_log_odds)
        odds = math.exp(min(bound, 700.0))
        mean_ticks, stretch_count = round(float(level.ticks.mean())), len(level.ticks)
        scales.append(LearnedScale(ticks=mean_ticks, stretches=stretch_count, odds_ratio=odds, p_value=level.p_value))
        largest_log_odds = max(largest_log_odds, bound)
    low, high = _intervals(transition, covariances)
    chains = bounded_class(largest_log_odds, transition)
    return LearnedClass(transition, low, high, largest_odds, tuple(scales), chains, "")


def _refuse_uninformed(transition: Floats, information: Floats, ticks: int) -> str:
    k, ratios = len(transition), log_ratios(transition)
    if np.abs(ratios).max() >= _MOST_RATIO:
        return "as far as the symbols tell, some state is never left, or left at once: longer histories tell more"
    eigenvalues, eigenvectors = np.linalg.eigh(information)
    if eigenvalues[0] <= 0.0:
        return "the symbols do not tell how often states follow one another"
    errors = np.sqrt((eigenvectors**2 / eigenvalues).sum(axis=1))
    if (largest_error := float(errors.max())) <= _MOST_ERROR:
        return ""
    state, required_ticks = int(errors.argmax()) // (k - 1), math.ceil(ticks * largest_error**2)
    return (
        f"the symbols of {ticks} ticks tell how often state {state} is left only within a factor of "
        f"{math.exp(min(largest_error, 50.0)):.3g}: about {required_ticks:.2g} ticks are needed"
    )


def _move_indices(k: int) -> tuple[Ints, Ints]:
    from_states, to_states = np.nonzero(~np.eye(k, dtype=np.bool_))
    return np.asarray(from_states, dtype=np.int64), np.asarray(to_states, dtype=np.int64)


def _log_odds_sums(k: int) -> Floats:
    """Return (c, k (k - 1)): each row sums log-ratios to the logarithm of an odds ratio of a step."""
    positions = np.full((k, k), -1)
    positions[_move_indices(k)] = np.arange(k * (k - 1))
    sum_rows = []
    for (x, w), (y, z) in product(combinations(range(k), 2), permutations(range(k), 2)):
        sum_row = np.zeros(k * (k - 1) + 1)  # the last entry takes terms of the diagonal, which are 0
        for index, sign in ((positions[x, y], 1), (positions[w, z], 1), (positions[x, z], -1), (positions[w, y], -1)):
            sum_row[index] += sign if index >= 0 else 0
        sum_rows.append(sum_row[:-1])
    return np.array(sum_rows)


def _variances(sum_rows: Floats, covariance: Floats) -> Floats:
    return np.asarray(np.einsum("ci,ij,cj->c", sum_rows, covariance, sum_rows))


def _covering_log_odds(level: Deviations, log_odds_sums: Floats, upper_log_odds: Floats) -> float:
    """Return the log odds ratio that all stretches but a small share stay below, at the far ends of their ranges."""
    stretch_count = len(level.ticks)
    kind_variances = np.array([_variances(log_odds_sums, noise_row) for noise_row in level.noise])
    weights = np.bincount(level.kinds, 1.0 / level.ticks, len(kind_variances)) / stretch_count
    mean_noise = weights @ kind_variances
    squared_deviations = _variances(log_odds_sums, level.deviations.T @ level.deviations)
    spread_variance = np.maximum(squared_deviations / special.chdtri(stretch_count, 1.0 - _TAIL) - mean_noise, 0.0)
    bounds = np.empty(stretch_count)
    for first in range(0, stretch_count, _AT_ONCE):
        batch = slice(first, first + _AT_ONCE)
        noise_variance = kind_variances[level.kinds[batch]] / level.ticks[batch, None]
        part = spread_variance / (spread_variance + noise_variance)
        tail_width = _QUANTILE * np.sqrt(spread_variance * (1.0 - part))
        bounds[batch] = (upper_log_odds + part * (level.deviations[batch] @ log_odds_sums.T) + tail_width).max(axis=1)
    return float(np.sort(bounds)[math.ceil(stretch_count * (1.0 - _SHARE)) - 1])


def _intervals(transition: Floats, covariances: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return each probability's interval by the normal distribution of its log-odds, with the largest of the errors."""
    k = len(transition)
    low, high = np.empty((k, k)), np.empty((k, k))
    for x in range(k):
        row = slice(x * (k - 1), (x + 1) * (k - 1))
        for y in range(k):
            slope = np.delete(np.eye(k)[y] - transition[x], x) / (1.0 - transition[x, y])
            width = _QUANTILE * math.sqrt(max(float(slope @ matrix[row, row] @ slope) for matrix in covariances))
            logit = float(special.logit(transition[x, y]))
            low[x, y], high[x, y] = special.expit(logit - width), special.expit(logit + width)
    return low, high
