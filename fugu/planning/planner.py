"""Plan a stream: noise for a class of chains, what it costs, and what the same epsilon gives at longer periods."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains import stationary_distribution
from fugu.contract.chains import BoundedChains, ChainClass, odds_ratio
from fugu.contract.errors import FuguError
from fugu.contract.guarantee import StreamOutputs
from fugu.contract.losses import Adversary, Loss
from fugu.contract.noise_table import NoiseTable
from fugu.contract.stretches import Stretch
from fugu.planning.chain_source import Matrix
from fugu.planning.errors import PlanningError
from fugu.planning.question import protected_ticks
from fugu.privacy.accountant.accountant import class_of
from fugu.privacy.accountant.bounded import decimated_odds_ratio, decimated_transition
from fugu.privacy.randomised_response import Objective, Utility, assess, calibrate

__all__ = ["Option", "Refusal", "Request", "StreamPlan", "decimated_class", "make_plan"]


PERIODS = (1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)
"""Sampling periods that may be compared, in ticks of the class of chains."""
_NOTICEABLE = 0.005
_WORTHWHILE = 1.05
_FORGOTTEN = 0.01


@dataclass(frozen=True, slots=True)
class Request:
    """Request for a plan.

    `epsilon` is about any stretch of `protect` seconds, 0 for a single reading. `transition` is a typical member of
    the class, for forecasts only; one reading is taken every D = `every` ticks of `period_seconds`.
    Longer periods are not compared where fewer readings would be of other states.
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
    """A calibrated stream at one sampling period, one reading `every` so many ticks.

    `chains` and `transition` are of the readings. `loss` is about a single reading, `epsilon` about `stretch_ticks` in
    a row, which the plan protects. `flips` is the share of symbols that are not the state, for the typical chain.
    Information is per hour, or per tick of the class if its length is not known. `adversary` is whom it is planned
    against: whoever may know states between the readings is any side information.
    """

    every: int
    adversary: Adversary
    chains: ChainClass
    transition: NDArray[np.float64]
    table: NoiseTable
    loss: Loss
    flips: float
    utility: Utility
    bits_per_hour: float
    stretch_ticks: int
    epsilon: float
    stretches: tuple[Stretch, ...]


class Refusal(NamedTuple):
    """A sampling period for which there is no table."""

    every: int
    reason: str


class StreamPlan(NamedTuple):
    """The plan for a stream, and the same at all compared periods.

    `better` is the longer period that beats `chosen` per reading and per hour. `unaware` is what symbols would be worth
    if nobody could know a state between readings; None if no more is planned for than that.
    """

    request: Request
    chosen: Option
    periods: tuple[Option | Refusal, ...]
    better: Option | None
    unaware: Utility | None


def make_plan(request: Request) -> StreamPlan:
    """Calibrate a stream at the period asked for, and at others to compare; FuguError without a table for that one."""
    chosen = _option(request, request.every)
    periods: list[Option | Refusal] = []
    for every in sorted({*_compared(request), request.every}):
        try:
            periods.append(chosen if every == request.every else _option(request, every))
        except FuguError as error:
            periods.append(Refusal(every, str(error)))
    return StreamPlan(request, chosen, tuple(periods), _better(chosen, periods), _unaware(request, chosen))


def _compared(request: Request) -> list[int]:
    """The periods up to the first at which readings hardly tell of one another; longer ones add nothing."""
    if not request.longer_periods or request.chains.named_streams:
        return []
    moduli = np.sort(np.abs(np.linalg.eigvals(np.array(request.transition))))
    return list(PERIODS[: sum(moduli[-2] ** every > _FORGOTTEN for every in PERIODS) + 1])


def _option(request: Request, every: int) -> Option:
    adversary: Adversary = "universal" if every > 1 and request.adversary == "informed" else request.adversary
    chains = _sampled(request, every, adversary)
    transition = decimated_transition(np.array(request.transition), every)
    ticks = protected_ticks(request.protect, request.period_seconds and every * request.period_seconds)
    calibration = calibrate(chains, request.epsilon, adversary, request.objective, stretch_ticks=ticks, slack=True)
    table, loss = calibration.table, calibration.loss
    distribution = stationary_distribution(transition)
    unchanged = sum(p * row[x] for x, (p, row) in enumerate(zip(distribution, table.weights(), strict=True))) / 2.0**32
    worth = assess(table, transition, chains, request.ticks)
    hours = every if request.period_seconds is None else every * request.period_seconds / 3600.0
    period_us = None if request.period_seconds is None else max(1, round(every * request.period_seconds * 1_000_000))
    bound = StreamOutputs(table).bound(chains, adversary, loss.epsilon)
    bounds = bound.epsilon(ticks), bound.rows(period_us, request.epsilon)
    bits = worth.bits_per_reading / hours
    return Option(
        every, adversary, chains, transition, table, loss, float(1.0 - unchanged), worth, bits, ticks, *bounds
    )


def _unaware(request: Request, chosen: Option) -> Utility | None:
    if chosen.adversary == request.adversary:
        return None
    try:
        chains = decimated_class(request.chains, chosen.every)
        ticks = chosen.stretch_ticks
        calibration = calibrate(
            chains, request.epsilon, request.adversary, request.objective, stretch_ticks=ticks, slack=True
        )
    except FuguError:
        return None
    return assess(calibration.table, chosen.transition, chains, request.ticks)


def _sampled(request: Request, every: int, adversary: Adversary) -> ChainClass:
    """The class of the readings that are taken.

    The universal adversary may know states between them, and steps change from tick to tick. So the class is not that
    of one chain's powers, but of all products with evidence between, by its odds ratio.
    """
    chains = request.chains
    if every == 1 or adversary != "universal" or chains.changes or chains.named_streams:
        return decimated_class(chains, every)
    if not math.isfinite(chains.odds_bound):
        raise PlanningError(f"no stream can be planned for every {every}th tick: a step is all but impossible")
    ratio = decimated_odds_ratio(chains.odds_bound, every)
    power = decimated_transition(np.array(request.transition), every)
    transition = tuple(tuple(float(p) for p in row) for row in power)
    return BoundedChains(states=chains.states, odds_ratio=max(ratio, odds_ratio(transition)), transition=transition)


def decimated_class(chains: ChainClass, step: int) -> ChainClass:
    """Return a class that holds P^D, D = `step` >= 1, for every stationary chain P of a class.

    Of bounded chains it holds every product. Raises ChainClassError if a probability rounds to 0 or 1, or the class is
    of one period.
    """
    return chains if step == 1 else class_of(chains).decimated(step)


def _better(chosen: Option, periods: list[Option | Refusal]) -> Option | None:
    """The period with most information per hour, of those whose estimates are not worse than the chosen one's."""
    candidates = [
        option
        for option in periods
        if isinstance(option, Option)
        and option.every > chosen.every
        and option.utility.accuracy > chosen.utility.accuracy - _NOTICEABLE
        and option.bits_per_hour > chosen.bits_per_hour * _WORTHWHILE
    ]
    return max(candidates, key=lambda option: option.bits_per_hour, default=None)
