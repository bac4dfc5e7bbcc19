"""Plan a stream: noise for a class of chains, what it costs, and what the same epsilon gives at longer periods."""

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
from fugu.contract.noise_table import NoiseTable
from fugu.contract.stretches import Stretch
from fugu.planning.chain_source import Matrix
from fugu.planning.errors import PlanningError
from fugu.planning.question import protected_ticks
from fugu.planning.window_plan import JointPlan, symbol_plan
from fugu.privacy.accountant.accountant import class_of
from fugu.privacy.accountant.bounded import decimated_odds_ratio, decimated_transition
from fugu.privacy.randomised_response import Objective, Utility, assess

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

    `release` is planned for the class of the readings, whose typical member is `transition`; `table` is its noise. Its
    adversary is whom it is planned against: whoever may know states between the readings is any side information. Its
    loss is about a single reading, `epsilon` about the stretch that it protects. `flips` is the share of symbols that
    are not the state, for the typical chain. Information is per hour, or per tick of the class if its length is not
    known.
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
    seconds = None if request.period_seconds is None else every * request.period_seconds
    ticks = protected_ticks(request.protect, seconds)
    release = symbol_plan(chains, request.epsilon, adversary, ticks, request.objective)
    table = release.table
    assert table is not None
    distribution = stationary_distribution(transition)
    unchanged = sum(p * row[x] for x, (p, row) in enumerate(zip(distribution, table.weights(), strict=True))) / 2.0**32
    worth = assess(table, transition, chains, request.ticks)
    return Option(
        every=every,
        release=release,
        table=table,
        transition=transition,
        flips=float(1.0 - unchanged),
        utility=worth,
        bits_per_hour=worth.bits_per_reading / (every if seconds is None else seconds / 3600.0),
        epsilon=release.bound.epsilon(ticks),
        stretches=release.bound.rows(None if seconds is None else max(1, round(seconds * 1_000_000)), request.epsilon),
    )


def _unaware(request: Request, chosen: Option) -> Utility | None:
    """The worth of symbols if nobody could know a state between readings; None if that is what is planned for."""
    promise = chosen.release.guarantee
    if promise.adversary == request.adversary:
        return None
    try:
        chains = decimated_class(request.chains, chosen.every)
        unaware = symbol_plan(chains, request.epsilon, request.adversary, promise.stretch_ticks, request.objective)
    except FuguError:
        return None
    assert unaware.table is not None
    return assess(unaware.table, chosen.transition, chains, request.ticks)


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
