"""The hidden Markov models of streams of symbols and of points, as their policies give them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains import predict, stationary_distribution
from fugu.chains.arrays import Floats, Ints
from fugu.chains.model import likelihood_rows
from fugu.chains.tracking import Followed, fixed_lag, follow, moves_of
from fugu.contract.chains import ChainClass
from fugu.contract.descriptions import place_grid
from fugu.contract.errors import PolicyError
from fugu.contract.frames import symbol_bits
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import StaircaseNoise, TimedTable
from fugu.contract.measurement import ConstraintSets
from fugu.contract.noise_table import MAX_TABLE_STATES, SCALE, NoiseTable
from fugu.contract.policy import Policy

if TYPE_CHECKING:
    from fugu.places.tables import Emission

__all__ = [
    "MeasureModel",
    "Model",
    "PointEstimates",
    "SymbolModel",
    "Tables",
    "model_of",
]


Beliefs = NDArray[np.float64]
Symbols = NDArray[np.int64]


class Model(NamedTuple):
    """Numbers to estimate with, and what its states mean.

    Attributes:
        transition: (k, k), row-stochastic.
        emission: (k, m), row-stochastic; a column of ones where there are no symbols.
        rows: (m + 1, k), likelihoods of each symbol, and of none.
        initial: (k,), the stationary distribution.
        meaning: models of equal meaning have the same states on the same clock, so that a belief carries over.
        shown: (k, s), 1 for the stream's state that each state of a joint chain shows; None if they are the same.
    """

    transition: Beliefs
    emission: Beliefs
    rows: Beliefs
    initial: Beliefs
    meaning: object
    shown: Beliefs | None = None


class SymbolModel(NamedTuple):
    """One policy of symbols, windows, or both: the symbols that its frames may hold, and the bits of each."""

    policy: Policy
    allowed: bytes
    bits: int
    numbers: Model

    @classmethod
    def of(cls, policy: Policy) -> SymbolModel:
        """The model of a policy."""
        symbols = 0 if policy.table is None else policy.table.symbols
        return cls(policy, bytes(range(symbols)), symbol_bits(symbols), model_of(policy))


def model_of(policy: Policy) -> Model:
    """The model that a policy's chains and table stand for; one object for equal policies."""
    chains = policy.chains
    column = chains.column(policy.device, policy.stream)
    return _model(chains, column, policy.table, (policy.discretiser.model_dump_json(), policy.clock))


@cache
def _model(chains: ChainClass, column: int, table: NoiseTable | None, meaning: object) -> Model:
    shown = None
    states = chains.stream_sizes[column]
    if chains.typical:
        transition = np.asarray(np.mean([_rows(matrix) for matrix in chains.typical], axis=0))
        if chains.named_streams:
            shown = np.eye(states)[list(chains.shown(column))]
            meaning = meaning, tuple(map(chains.shown, range(len(chains.named_streams)))), column
    else:
        ratio = math.sqrt(chains.odds_bound)
        weights = np.ones((states, states)) + (ratio - 1.0) * np.eye(states)
        transition = np.asarray(weights / (ratio + states - 1.0), dtype=np.float64)
    weights = np.full((states, 1), SCALE) if table is None else np.array(table.weights())
    emission = weights.astype(np.float64) / SCALE
    if shown is not None:
        emission = np.ascontiguousarray(shown @ emission)
    return Model(transition, emission, likelihood_rows(emission), stationary_distribution(transition), meaning, shown)


def _rows(transition: tuple[tuple[float, ...], ...]) -> Beliefs:
    matrix = np.array(transition, dtype=np.float64)
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True), dtype=np.float64)


_REMEMBERED = 32
Tables = Callable[[int], TimedTable | None]
"""The table of a number of one policy version, none if it is not known."""


class PointEstimates(NamedTuple):
    """Estimates of a measurement at consecutive ticks, given the points released up to `lag` ticks after each.

    Attributes, by tick from `first` on:
        means: the posterior means, d numbers in the policy's unit.
        covariances: the entries on and above the diagonal of the posterior covariance, row by row.
        protection: the least number of possible states that any one is hidden among; 0: nothing was released.
        log_likelihoods: that of what was released, given all before; 0 if nothing was.
        shift: by how many ticks the rows' numbers are ahead of the wall clock.
    """

    lag: int
    first: int
    means: tuple[tuple[float, ...], ...]
    covariances: tuple[tuple[float, ...], ...]
    protection: tuple[int, ...]
    log_likelihoods: tuple[float, ...]
    shift: int = 0


def moments(beliefs: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Means (n, d) and covariances of a measurement (N, d) under each of n distributions (n, N).

    Covariances are (n, d (d + 1) / 2): the entries on and above the diagonal, row by row.
    """
    means = beliefs @ values
    upper = np.triu_indices(values.shape[1])
    centred = values[None, :, :] - means[:, None, :]
    covariances = np.einsum("tn,tni,tnj->tij", beliefs, centred, centred)
    return means, covariances[:, *upper]


class MeasureModel:
    """One verified policy of a measured stream; a PolicyError if there are too many states and points to estimate with.

    `values` are f, (N, d) integers. `reach` has the sets of possible states, tick by tick. `grid` is where on the earth
    the states are, if the policy says so. For `meaning` see `Model`.
    """

    def __init__(self, policy: MeasurePolicy) -> None:
        self.policy = policy
        self.measurement = policy.measurement
        self.values = np.array(policy.coordinates, dtype=np.int64)
        self._shows = np.array(policy.shows or range(len(self.values)), dtype=np.int64)
        matrices: list[Floats] = [np.array(matrix, dtype=np.float64) for matrix in policy.matrices]
        self._matrices = [matrix / matrix.sum(axis=1, keepdims=True) for matrix in matrices]
        self._moves = moves_of(self._matrices)
        self._changes = [one.tick for one in policy.changes]
        self.reach = ConstraintSets(self.measurement)
        self.grid = place_grid(policy)
        self.meaning = (policy.discretiser.model_dump_json(), policy.clock, policy.coordinates, policy.shows)
        self._initial = np.array(policy.initial) / sum(policy.initial)
        self._emissions: OrderedDict[int, Emission] = OrderedDict()
        self._degrees: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._refuse_large()

    def _refuse_large(self) -> None:
        if len(self.values) <= MAX_TABLE_STATES:
            return
        from fugu.places.tables import MOST_CELLS

        boxes = [np.ptp(self.values, axis=0).tolist()]
        for table in self.policy.measure_tables:
            if isinstance(table.noise, StaircaseNoise):
                boxes.append([high - low for low, high in zip(table.noise.low, table.noise.high, strict=True)])
        most = max(math.prod(side + 1 for side in box) for box in boxes)
        if len(self.values) * most > MOST_CELLS:
            raise PolicyError(f"{len(self.values)} states and {most} points are too many: measure on a coarser lattice")

    def start(self, tick: int) -> Floats:
        """The distribution of the chain's state at a tick of which nothing is known."""
        return self.ahead(self._initial, 0, tick)

    def ahead(self, distribution: Floats, tick: int, ticks: int) -> Floats:
        """The distribution so many ticks after a tick, without points in between."""
        cycles, ticks = divmod(ticks, self.policy.cycle) if self._changes else (0, ticks)
        if cycles:
            whole = self._carried(np.eye(len(distribution)), tick, self.policy.cycle)
            distribution = predict(distribution, whole / whole.sum(axis=1, keepdims=True), cycles)
        distribution = self._carried(distribution, tick, ticks)
        return np.asarray(distribution / distribution.sum())

    def _carried(self, distributions: Floats, tick: int, ticks: int) -> Floats:
        """Distributions (N,) or (n, N) so many ticks after a tick, at most a cycle of which changes."""
        while ticks > 0:
            _, until = self.measurement.steps(tick)
            some = min(until - tick, ticks) if self._changes else ticks
            matrix = self._matrices[self._part(tick)]
            if some > len(matrix):  # then powers of the matrix are quicker
                distributions = distributions @ np.linalg.matrix_power(matrix, some)
            else:
                for _ in range(some):
                    distributions = distributions @ matrix
            tick, ticks = tick + some, ticks - some
        return distributions

    def _part(self, tick: int) -> int:
        return bisect_right(self._changes, tick % self.policy.cycle)

    def measured(self, distribution: Floats) -> Floats:
        """The distribution (N,) of the state that is measured, of that of the chain."""
        return np.asarray(np.bincount(self._shows, distribution, len(self.values)), dtype=np.float64)

    def possible(self, tick: int) -> NDArray[np.bool_]:
        """The states (N,) that an adversary can hold possible at a tick."""
        constraint = self.reach.at(tick)
        return np.array([bool(constraint >> state & 1) for state in range(len(self.values))])

    def follow(self, distribution: Floats, first: int, released: Sequence[Released | None], tables: Tables) -> Followed:
        """Beliefs at consecutive ticks, from the distribution of the first; unknown points count as none."""
        likelihoods = [one and self._likelihood(one, tables) for one in released]
        return follow(distribution, self._moves, self._kinds(first, len(likelihoods)), likelihoods)

    def estimate(
        self,
        distribution: Floats,
        frame: MeasureFrame,
        tables: Tables,
        later: Sequence[Released | None] = (),
        lag: int = 0,
        ticks: slice = slice(None),
    ) -> PointEstimates:
        """The estimates of some `ticks` of a frame, from 0 on, from the distribution of its first.

        `later` is what was released after it, tick by tick; each estimate sees `lag` ticks of that.
        """
        found = self.follow(distribution, frame.first, (*frame.released, *later), tables)
        chosen = range(len(frame.released))[ticks]
        rows = slice(chosen.start, chosen.stop)
        kinds = self._kinds(frame.first, len(found.beliefs))
        beliefs = fixed_lag(found, self._moves, kinds, lag, rows)
        means, covariances = moments(beliefs, (self.values * np.array(self.policy.resolution))[self._shows])
        protection = [self.degree(frame.released[at].table, frame.first + at, tables) for at in chosen]
        return PointEstimates(
            lag,
            frame.first + chosen.start,
            tuple(map(tuple, means.tolist())),
            tuple(map(tuple, covariances.tolist())),
            tuple(protection),
            tuple(found.log_likelihoods[rows].tolist()),
            frame.shift,
        )

    def _kinds(self, first: int, ticks: int) -> Ints:
        return np.array([self._part(tick) for tick in range(first, first + ticks - 1)], dtype=np.int64)

    def degree(self, number: int, tick: int, tables: Tables) -> int:
        """The least number of states among which a table hides any possible one at a tick; 0 for an unknown table."""
        constraint = self.reach.at(tick)
        key = (number, constraint)
        if key not in self._degrees:
            if (table := tables(number)) is None:
                return 0
            from fugu.places.tables import noise_pairs

            possible = self.possible(tick)
            pairs = noise_pairs(table.noise, self.values, possible, self.policy.epsilon)
            self._degrees[key] = int(pairs[possible].sum(axis=1).min()) + 1
            if len(self._degrees) > _REMEMBERED * _REMEMBERED:
                self._degrees.popitem(last=False)
        return self._degrees[key]

    def has_point(self, released: Released, tables: Tables) -> bool:
        """True if a released point is one of its table's."""
        return self._likelihood(released, tables) is not None

    def _likelihood(self, released: Released, tables: Tables) -> Floats | None:
        """The probability (N,) of a released point given each state; none if its table or the point is not known."""
        known = self._emission(released.table, tables)
        column = None if known is None else known.points.get(released.point)
        return None if known is None or column is None else known.probabilities[self._shows, column]

    def _emission(self, number: int, tables: Tables) -> Emission | None:
        if number not in self._emissions:
            if (table := tables(number)) is None:
                return None
            from fugu.places.tables import emission

            self._emissions[number] = emission(table.noise, self.values)
            if len(self._emissions) > _REMEMBERED:
                self._emissions.popitem(last=False)
        self._emissions.move_to_end(number)
        return self._emissions[number]
