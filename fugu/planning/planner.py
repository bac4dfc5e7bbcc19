"""Plan a symbol stream: noise for a class of chains, its cost, and the same epsilon at longer periods."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.model import stationary_distribution
from fugu.contract.chains import BoundedChains, ChainClass, odds_ratio
from fugu.contract.errors import FuguError
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.stretches import Stretch
from fugu.planning.errors import PlanningError
from fugu.planning.question import microseconds, protected_ticks
from fugu.planning.window_plan import JointPlan, symbol_plan
from fugu.privacy.accountant.accountant import class_of
from fugu.privacy.accountant.bounded import decimated_odds_ratio, decimated_transition
from fugu.privacy.chain_class import matrix_rows
from fugu.privacy.chain_model import Matrix
from fugu.privacy.randomised_response import Objective, Utility, assess

__all__ = ["Option", "Refusal", "Request", "StreamPlan", "decimated_class", "make_plan"]


PERIODS = (1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)
"""The sampling periods that are compared, in ticks of the class of chains."""
_NOTICEABLE = 0.005
_WORTHWHILE = 1.05
_FORGOTTEN = 0.01


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a plan.

    `epsilon` is about any stretch of `protect` seconds, 0 for a single reading. `transition` is a typical member of
    the class, used for forecasts only. One reading is taken per `every` ticks of `period_seconds`. `longer_periods`
    must be false if the states of fewer readings differ. `ticks` is the length of a simulation.
    """

    chains: ChainClass
    transition: Matrix
    epsilon: float
    adversary: Adversary
    objective: Objective
    every: int = 1
    period_seconds: float | None = None
    longer_periods: bool = True
    ticks: int = 200_000
    protect: int = 0


class Option(NamedTuple):
    """A calibrated stream at one sampling period, with one reading per `every` ticks.

    `release` is planned for the class of the readings, with the typical member `transition`; `table` is its noise. If
    the adversary may know states between readings, the release is planned against any side information. The loss of
    `release` is about a single reading, `epsilon` about the protected stretch. `flips` is the share of symbols that
    differ from the state, for the typical chain. `bits_per_hour` is the information per hour, or per tick of the class
    if a tick's length is unknown.
    """

    every: int
    release: JointPlan
    table: NoiseTable
    transition: NDArray[np.float64]
    flips: float
    utility: Utility
    bits_per_hour: float
    epsilon: float
    stretches: tuple[Stretch, ...]


class Refusal(NamedTuple):
    """A sampling period for which no table exists, and the reason."""

    every: int
    reason: str


class StreamPlan(NamedTuple):
    """The plan for a stream at the period asked for, and at all compared periods.

    `better` is the longer period that beats `chosen` per reading and per hour. `unaware` is the utility if nobody could
    know a state between readings; `None` if the plan assumes just that.
    """

    request: Request
    chosen: Option
    periods: tuple[Option | Refusal, ...]
    better: Option | None
    unaware: Utility | None


def make_plan(request: Request) -> StreamPlan:
    """Calibrate a stream at the period asked for and at others. FuguError: the period asked for has no table."""
    option = _plan_option(request, request.every)
    periods: list[Option | Refusal] = []
    for every in sorted({*_compared_periods(request), request.every}):
        try:
            periods.append(option if every == request.every else _plan_option(request, every))
        except FuguError as error:
            periods.append(Refusal(every, str(error)))
    return StreamPlan(request, option, tuple(periods), _better_option(option, periods), _asked_utility(request, option))


def _compared_periods(request: Request) -> list[int]:
    """The periods to compare, up to the first at which readings hardly depend on one another."""
    if not request.longer_periods or request.chains.named_streams:
        return []
    moduli = np.sort(np.abs(np.linalg.eigvals(np.array(request.transition))))
    return list(PERIODS[: sum(moduli[-2] ** every > _FORGOTTEN for every in PERIODS) + 1])


def _plan_option(request: Request, every: int) -> Option:
    adversary: Adversary = "universal" if every > 1 and request.adversary == "informed" else request.adversary
    chains = _sampled_class(request, every, adversary)
    transition = decimated_transition(np.array(request.transition), every)
    seconds = None if request.period_seconds is None else every * request.period_seconds
    ticks = protected_ticks(request.protect, seconds)
    release = symbol_plan(chains, request.epsilon, adversary, ticks, request.objective)
    table = release.table
    assert table is not None
    true_symbols = stationary_distribution(transition) @ np.diagonal(table.weights()) / SCALE
    utility = assess(table, transition, chains, request.ticks)
    return Option(
        every=every,
        release=release,
        table=table,
        transition=transition,
        flips=float(1.0 - true_symbols),
        utility=utility,
        bits_per_hour=utility.bits_per_reading / (every if seconds is None else seconds / 3600.0),
        epsilon=release.bound.epsilon(ticks),
        stretches=release.bound.rows(microseconds(seconds), request.epsilon),
    )


def _asked_utility(request: Request, option: Option) -> Utility | None:
    """The utility of symbols if nobody could know a state between readings; `None` if the plan assumes just that."""
    guarantee = option.release.guarantee
    if guarantee.adversary == request.adversary:
        return None
    try:
        chains = decimated_class(request.chains, option.every)
        release = symbol_plan(chains, request.epsilon, request.adversary, guarantee.stretch_ticks, request.objective)
    except FuguError:
        return None
    assert release.table is not None
    return assess(release.table, option.transition, chains, request.ticks)


def _sampled_class(request: Request, every: int, adversary: Adversary) -> ChainClass:
    """The class of the readings, one per `every` ticks.

    The universal adversary may know states between them, and steps may change from tick to tick. So the class does not
    hold one chain's powers, but all products with evidence between, by their odds ratio.
    """
    chains = request.chains
    if every == 1 or adversary != "universal" or chains.changes or chains.named_streams:
        return decimated_class(chains, every)
    if not math.isfinite(chains.odds_bound):
        raise PlanningError(f"no stream can be planned for every {every}th tick: a step is all but impossible")
    ratio = decimated_odds_ratio(chains.odds_bound, every)
    transition = matrix_rows(decimated_transition(np.array(request.transition), every))
    return BoundedChains(states=chains.states, odds_ratio=max(ratio, odds_ratio(transition)), transition=transition)


def decimated_class(chains: ChainClass, stride: int) -> ChainClass:
    """The class of every `stride`-th reading: it holds P^stride for every stationary chain P of a class.

    For bounded chains it holds every product. ChainClassError: a probability rounds to 0 or 1, or the class is of one
    period.
    """
    return chains if stride == 1 else class_of(chains).decimate(stride)


def _better_option(chosen: Option, periods: list[Option | Refusal]) -> Option | None:
    """The longer period with the most information per hour and estimates no worse; `None` without a gain."""
    candidates = [
        option
        for option in periods
        if isinstance(option, Option)
        and option.every > chosen.every
        and option.utility.accuracy > chosen.utility.accuracy - _NOTICEABLE
        and option.bits_per_hour > chosen.bits_per_hour * _WORTHWHILE
    ]
    return max(candidates, key=lambda option: option.bits_per_hour, default=None)
