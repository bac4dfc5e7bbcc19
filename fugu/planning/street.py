"""Plan a group of homes of which only sums become known: its noise, its error, and the least useful number of homes.

The noise is that of the home whose class needs the most, as shares of different scales would not add up to one noise.
The error of a sum is compared with two guesses: the best constant, and the habit. The habit is the mean of that part of
the day over other days of the same kind of weekday. Source: docs/proofs/sums.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from functools import partial
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from fugu.attackers.outputs import Outputs, release_counts
from fugu.chains.arrays import Floats
from fugu.contract.calendar import DAY
from fugu.contract.discretisers import Discretiser
from fugu.contract.groups import GroupDocument, SharedWindow, largest_noise, noise_rate
from fugu.contract.guarantee import Guarantee
from fugu.contract.policy import Policy
from fugu.planning.candidates import window_scale
from fugu.planning.errors import PlanningError
from fugu.planning.policy_builder import PolicyHeader, make_policy
from fugu.planning.question import (
    ChosenStates,
    Progress,
    Question,
    choose_states,
    no_progress,
    protected_seconds,
    sample_states,
    three_sets,
)
from fugu.planning.states import states_of
from fugu.planning.true_class import true_class
from fugu.privacy.covering_class import CoveringChains, covering_class
from fugu.recordings.readings import Readings

__all__ = ["SIZES", "Size", "StreetPlan", "plan_street"]

SIZES = (10, 12, 14, 17, 20, 24, 28, 34, 40, 48, 58, 68, 82, 98, 116, 140, 168, 200, 240, 290, 350, 420, 500, 700, 1000)
"""The numbers of homes that are compared."""
MOST_HOMES = 10_000

_TIMES_BETTER, _AWAY_SHARE = 2, 0.2
_DRAWS, _NOISES, _MOST_DATES = 12, 50_000, 90
_HOUR = 3600.0
_LEAST_DATES = 4
_WEEKDAYS = 5


class Home(NamedTuple):
    """One home's recording: its states, the class that covers it, and the scale of the noise that it needs, in ticks.

    `days` holds dates of whole local days with the shares of their parts.
    """

    source: str
    discretiser: Discretiser
    counted: tuple[int, ...]
    chains: CoveringChains
    scale: Fraction
    missing_share: float
    days: tuple[tuple[date, Floats], ...]


class Size(NamedTuple):
    """Mean absolute errors for a number of homes, a fifth of them away: of the sum, a constant, and the habit."""

    homes: int
    off: float
    constant: float
    habit: float

    @property
    def useful(self) -> bool:
        """True if the sum is twice as good as the best constant."""
        return self.off * _TIMES_BETTER <= self.constant

    @property
    def beats_habit(self) -> bool:
        """True if the sum tells more than the habit."""
        return self.off <= self.habit


class StreetPlan(NamedTuple):
    """A plan of a group: its noise, and the errors of its sums.

    `length` is that of a window, in ticks of `period` seconds. `size` holds the errors for the wanted number of homes,
    `sizes` those for other numbers. `shared_dates` is true if homes were compared on the same dates.
    """

    question: Question
    recordings: tuple[Home, ...]
    homes: int
    honest: int
    colluding: int
    noise: int
    period: float
    length: int
    size: Size
    sizes: tuple[Size, ...]
    shared_dates: bool

    @property
    def neediest(self) -> Home:
        """The home that needs the most noise."""
        return max(self.recordings, key=lambda home: home.scale)

    @property
    def least_useful(self) -> int | None:
        """The least compared number of homes whose sum is useful; `None` without any."""
        return next((size.homes for size in self.sizes if size.useful), None)

    @property
    def least_beating_habit(self) -> int | None:
        """The least compared number of homes whose sum tells more than the habit; `None` without any."""
        return next((size.homes for size in self.sizes if size.beats_habit), None)

    def fields(self, name: str, stream: str, epoch: int) -> dict[str, object]:
        """The table of the group in its helper's file; `epoch` is the Unix time of tick 0, in seconds."""
        states = self.recordings[0].discretiser.states
        return {
            **{"name": name, "stream": stream, "states": list(states)},
            **{"count": [states[state] for state in self.recordings[0].counted]},
            **{"epoch_us": epoch * 1_000_000, "period_us": round(self.period * 1_000_000), "length": self.length},
            **{"honest": self.honest, "colluding": self.colluding, "noise": self.noise},
            "deadline": round(max(600.0, self.length * self.period / 6)),
        }

    def policies(self, shared: SharedWindow, names: Sequence[str]) -> list[Policy]:
        """Make a policy for each device name: one of each recording, or all of a single recording.

        Raises:
            PlanningError: the document's clock differs from that of the recordings.
            GuaranteeError: a home's class needs more noise than the document has.
        """
        group = shared.group
        if round(self.period * 1_000_000) != group.period_us:
            raise PlanningError(f"group {group.name} has ticks of {group.period_us / 1e6:g} s, here {self.period:g} s")
        homes = self.recordings if len(self.recordings) > 1 else self.recordings * len(names)
        return [self._home_policy(home, shared, name) for home, name in zip(homes, names, strict=True)]

    def _home_policy(self, home: Home, shared: SharedWindow, name: str) -> Policy:
        group = shared.group
        header = PolicyHeader(
            *(group.fleet, name, group.stream, home.discretiser, self.period),
            epoch=group.epoch_us / 1e6,
            missing_share=None if home.discretiser.missing else home.missing_share or None,
            useful_for="share" if self.size.useful else None,
        )
        stretch = self.question.ticks(self.period)
        promise = Guarantee(epsilon=self.question.epsilon, adversary=self.question.adversary, stretch_ticks=stretch)
        chains = home.chains.for_stream(group.stream, group.period_us, group.rate)
        no_outputs = {"table": None, "windows": (), "windows_guarantee": None}
        return make_policy(header, guarantee=promise, chains=chains, sums=(shared,), **no_outputs)


def plan_street(
    recordings: Sequence[Readings],
    question: Question,
    homes: int,
    *,
    zone: ZoneInfo,
    honest: int | None = None,
    colluding: int | None = None,
    document: GroupDocument | None = None,
    seed: int = 1,
    progress: Progress = no_progress,
) -> StreetPlan:
    """Plan a group from one recording that stands for all homes, or from one recording per home.

    By default `honest` is half of the homes, and `colluding` a tenth. A signed `document` determines both, and the
    noise.

    Raises:
        FuguError: a recording is too short, or has no times, or no such group is possible.
    """
    if document is not None:
        honest, colluding = document.honest, document.colluding
    honest = max(1, homes // 2) if honest is None else honest
    colluding = homes // 10 if colluding is None else colluding
    if not (1 <= homes <= MOST_HOMES and honest >= 1 and colluding >= 0):
        raise PlanningError(f"a group has 1 to {MOST_HOMES} homes, of which at least 1 is honest")
    if honest + colluding > homes:
        raise PlanningError(
            f"{honest} honest homes and {colluding} that collude are more than {homes}: no sum would ever open"
        )
    if len(recordings) > 1 and homes != len(recordings):
        raise PlanningError(f"{len(recordings)} recordings for {homes} homes: give one, or one of each")
    period = recordings[0].period
    length = _window_ticks(question, recordings[0])
    question = replace(question, protect=protected_seconds(question.protect, period))
    rng, covered_homes = np.random.default_rng(seed), []
    for index, readings in enumerate(recordings):
        progress(f"the class of {readings.source}", 0.8 * index / len(recordings))
        covered_homes.append(_covered_home(readings, question, period, length, zone, rng))
    first_home = covered_homes[0]
    for home in covered_homes:
        if (home.discretiser.states, home.counted) != (first_home.discretiser.states, first_home.counted):
            names = ", ".join(home.discretiser.states)
            raise PlanningError(f"{home.source} has the states {names}, {first_home.source} others: give --states")
    scale = max(home.scale for home in covered_homes)
    noise = largest_noise(scale, honest) if document is None else document.noise
    progress("errors", 0.85)
    date_days = _days_by_date(covered_homes)
    error_of = partial(_size_errors, covered_homes, date_days, noise_rate(noise, honest), honest / homes, rng)
    sizes = tuple(map(partial(error_of, length), SIZES))
    size = error_of(length, homes)
    return StreetPlan(
        *(question, tuple(covered_homes), homes, honest, colluding, noise, period, length, size, sizes, bool(date_days))
    )


def _window_ticks(question: Question, readings: Readings) -> int:
    """The ticks of a window: an hour, or as asked. PlanningError: a day is no whole number of windows."""
    if not readings.timed:
        raise PlanningError(f"{readings.source} has no steady times: homes of a group count in the same hours")
    period = readings.period
    span = _HOUR if question.window is None else question.window * (1.0 if question.window_is_time else period)
    ticks = round(span / period, 6)
    if ticks != int(ticks) or ticks < 1 or round(DAY / period, 6) % ticks:
        raise PlanningError(f"a window of {span:g} s is not some ticks of {period:g} s, and a day not some windows")
    return int(ticks)


def _covered_home(
    readings: Readings, question: Question, period: float, length: int, zone: ZoneInfo, rng: np.random.Generator
) -> Home:
    """Find the class that covers a home's recording; attackers of its counts know all other homes."""
    if not readings.timed or readings.period != period:
        raise PlanningError(f"{readings.source}: homes of a group have the same ticks, of {period:g} s, by their times")
    choice = choose_states(readings, question)
    if choice.histogram:
        raise PlanningError(f"{readings.source} has several states, and a group counts one question: give --threshold")
    k, bins = len(choice.discretiser.states), (choice.counted,)
    promise = question.epsilon, question.adversary, bins, question.ticks(period)
    samples = sample_states(readings, choice, three_sets(readings.segments, choice.baseline_ticks))
    samples.refuse_constant(readings.source)
    covered = covering_class(*samples.whole[0], k)

    def draw_counts(chains: CoveringChains, generator: np.random.Generator) -> Outputs:
        return release_counts(*samples.fit, length, window_scale(chains, *promise), bins, generator, k=k)

    class_test = true_class(*samples.fit, covered.chains, question.epsilon, draw_counts, rng)
    if class_test.chains is None:
        raise PlanningError(f"{readings.source}: {class_test.reason}")
    days = tuple(_whole_days(readings, choice, length, zone))
    if not days:
        raise PlanningError(f"{readings.source} has no whole day: there is nothing to compare a sum with")
    scale = window_scale(class_test.chains, *promise)
    return Home(
        *(readings.source, choice.discretiser, choice.counted, class_test.chains, scale, readings.missing_share, days)
    )


def _whole_days(readings: Readings, choice: ChosenStates, length: int, zone: ZoneInfo) -> Iterator[tuple[date, Floats]]:
    """Yield the date and the shares of each whole local day; ticks without a state count as other states."""
    assert readings.moments is not None
    is_counted = np.isin(states_of(choice.discretiser, readings.values, readings.segments), choice.counted)
    ticks_per_day = round(DAY / readings.period)
    tick = 0
    while tick + ticks_per_day <= len(is_counted):
        moment = datetime.fromtimestamp(readings.moments[tick], zone)
        seconds_of_day = moment.hour * 3600 + moment.minute * 60 + moment.second + moment.microsecond / 1e6
        if seconds_of_day >= readings.period:  # go on about the next midnight
            tick += max(1, math.floor((DAY - seconds_of_day) / readings.period))
            continue
        last_tick = tick + ticks_per_day - 1
        if readings.moments[last_tick] - readings.moments[tick] < DAY:
            yield moment.date(), is_counted[tick : tick + ticks_per_day].reshape(-1, length).mean(axis=1)
            tick = last_tick
        tick += 1


def _is_workday(day: date) -> bool:
    return day.weekday() < _WEEKDAYS


def _days_by_date(homes: Sequence[Home]) -> list[dict[date, Floats]]:
    """Each home's days by date, on dates that half of the homes have; empty for one home, or too few such dates."""
    day_maps = [dict(home.days) for home in homes]
    home_counts = Counter(day for home_days in day_maps for day in home_days)
    common_dates = {day for day, home_count in home_counts.items() if 2 * home_count >= len(homes)}
    if len(homes) == 1 or len(common_dates) < _LEAST_DATES:
        return []
    return [{day: shares for day, shares in home_days.items() if day in common_dates} for home_days in day_maps]


def _size_errors(
    homes: Sequence[Home],
    date_days: Sequence[dict[date, Floats]],
    rate: Fraction,
    honest_share: float,
    rng: np.random.Generator,
    length: int,
    home_count: int,
) -> Size:
    """Find the errors of sums over `home_count` homes, a fifth of them away, as means over several draws of homes."""
    turnout = max(1, round((1.0 - _AWAY_SHARE) * home_count))
    dates = sorted({day for days in date_days for day in days} or {day for home in homes for day, _ in home.days})
    dates = dates if len(dates) <= _MOST_DATES else sorted(dates[i] for i in rng.permutation(len(dates))[:_MOST_DATES])
    is_workday = np.array([_is_workday(day) for day in dates])
    averages_of = partial(_date_averages, date_days) if date_days else partial(_kind_averages, homes)
    draws = [_guess_errors(averages_of(dates, turnout, rng), is_workday) for _ in range(_DRAWS)]
    # A share is the difference of two numbers of NB(1/m, p), for m honest homes; n shares add up to NB(n/m, p).
    plus, minus = rng.negative_binomial(turnout / (honest_share * home_count), -math.expm1(-float(rate)), (2, _NOISES))
    noise = float(np.abs(plus - minus).mean() / (length * turnout))
    return Size(home_count, noise, *np.mean(draws, axis=0).tolist())


def _date_averages(
    day_maps: Sequence[dict[date, Floats]], dates: Sequence[date], turnout: int, rng: np.random.Generator
) -> Floats:
    """Average the shares (d, h) of drawn homes on each date, among homes with a recording of the date."""
    is_distinct = turnout <= len(day_maps)
    drawn_homes = rng.permutation(len(day_maps))[:turnout] if is_distinct else rng.integers(len(day_maps), size=turnout)
    averages = []
    for day in dates:
        drawn_days = [day_maps[i][day] for i in drawn_homes if day in day_maps[i]]
        all_days = [home_days[day] for home_days in day_maps if day in home_days]
        averages.append(np.mean(drawn_days or all_days, axis=0))
    return np.array(averages)


def _kind_averages(homes: Sequence[Home], dates: Sequence[date], turnout: int, rng: np.random.Generator) -> Floats:
    """Average the shares (d, h) of homes on each date; each home has a random recorded day of the same weekday kind."""
    days = [home_day for home in homes for home_day in home.days]
    shares = {kind: np.array([share for day, share in days if _is_workday(day) == kind]) for kind in (True, False)}
    kinds = map(_is_workday, dates)
    return np.array([rng.choice(shares[kind], size=turnout).mean(axis=0) for kind in kinds])


def _guess_errors(truth: Floats, is_workday: NDArray[np.bool_]) -> tuple[float, float]:
    """Errors of the best constant, and of the habit; NaN for the habit if no kind of weekday has two days."""
    errors = []
    for kind in (True, False):
        averages = truth[is_workday == kind]
        if len(averages) > 1:
            errors.append(np.abs((averages.sum(axis=0) - averages) / (len(averages) - 1) - averages).ravel())
    habit_error = float(np.concatenate(errors).mean()) if errors else math.nan
    return float(np.abs(truth - np.median(truth)).mean()), habit_error
