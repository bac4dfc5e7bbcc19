"""Plan a group of homes of which only sums are known: its noise, its error, and from how many homes on it is of use.

The noise is that of the home whose class needs the most: homes that scaled their shares would not add up to one noise.
The error of a sum is compared with two guesses: the best constant, and the habit. The habit is the mean of that part of
the day over other days of the same kind of weekday. Source: docs/proofs/sums.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction
from functools import partial
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from fugu.attackers.outputs import Outputs, release_counts
from fugu.chains.arrays import Floats
from fugu.contract.discretisers import Discretiser
from fugu.contract.groups import GroupDocument, SharedWindow, largest_noise, noise_rate
from fugu.contract.guarantee import Guarantee
from fugu.contract.policy import Policy
from fugu.contract.queries import DAY
from fugu.planning.candidates import Bins, window_scale
from fugu.planning.errors import PlanningError
from fugu.planning.policy_builder import PolicyHeader, Whose, make_policy
from fugu.planning.question import Question, choose_states, protected_seconds, sampled, three_sets
from fugu.planning.states import states_of
from fugu.planning.true_class import true_class
from fugu.privacy.covering_class import CoveringChains, covering_class
from fugu.recordings.readings import Readings

__all__ = ["SIZES", "Size", "StreetPlan", "plan_street"]

Progress = Callable[[str, float], None]
SIZES = (10, 12, 14, 17, 20, 24, 28, 34, 40, 48, 58, 68, 82, 98, 116, 140, 168, 200, 240, 290, 350, 420, 500, 700, 1000)
"""Numbers of homes that are compared."""
MOST_HOMES = 10_000

_BETTER, _AWAY = 2, 0.2
_DRAWS, _NOISES, _MOST_DATES = 12, 50_000, 90
_HOUR = 3600.0
_LEAST_DATES = 4
_WEEKDAYS = 5


class Home(NamedTuple):
    """A recording: the states of its stream, the class that covers it, and the noise that it needs, in ticks.

    `days` are whole local days: their dates, and the shares of their parts.
    """

    source: str
    discretiser: Discretiser
    counted: tuple[int, ...]
    chains: CoveringChains
    scale: Fraction
    missing_share: float
    days: tuple[tuple[date, Floats], ...]


class Size(NamedTuple):
    """Mean absolute errors for so many homes, a fifth of them away: of the sum, of a constant, and of the habit."""

    homes: int
    off: float
    constant: float
    habit: float

    @property
    def useful(self) -> bool:
        """True if the sum is twice as good as the best constant."""
        return self.off * _BETTER <= self.constant

    @property
    def beats_habit(self) -> bool:
        """True if the sum tells more than the habit."""
        return self.off <= self.habit


class StreetPlan(NamedTuple):
    """A plan of a group: what it needs, and whether its sums are of use.

    `length` is of a window, in ticks of `period` seconds; `size` is of the homes that were asked for, `sizes` of those
    that are compared. `shared_dates` is true if homes were compared on the same dates.
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
        """The least number of homes that is useful, of those that were compared."""
        return next((size.homes for size in self.sizes if size.useful), None)

    @property
    def least_beside_habit(self) -> int | None:
        """The least number of homes whose sum tells more than the habit."""
        return next((size.homes for size in self.sizes if size.beats_habit), None)

    def fields(self, name: str, stream: str, epoch: int) -> dict[str, object]:
        """The group's table for the file of its helper; `epoch` is of tick 0, in Unix seconds."""
        states = self.recordings[0].discretiser.states
        return {
            **{"name": name, "stream": stream, "states": list(states)},
            **{"count": [states[state] for state in self.recordings[0].counted]},
            **{"epoch_us": epoch * 1_000_000, "period_us": round(self.period * 1_000_000), "length": self.length},
            **{"honest": self.honest, "colluding": self.colluding, "noise": self.noise},
            "deadline": round(max(600.0, self.length * self.period / 6)),
        }

    def policies(self, shared: SharedWindow, whose: Whose, names: Sequence[str]) -> list[Policy]:
        """The policies of homes by their devices' names: of each recording one, or of all from the only one.

        Raises:
            PlanningError: the document is of another stream or clock than the recordings.
            GuaranteeError: a home's class needs more noise than the document has.
        """
        group = shared.group
        if round(self.period * 1_000_000) != group.period_us:
            raise PlanningError(f"group {group.name} has ticks of {group.period_us / 1e6:g} s, here {self.period:g} s")
        homes = self.recordings if len(self.recordings) > 1 else self.recordings * len(names)
        return [self._policy(home, shared, whose, name) for home, name in zip(homes, names, strict=True)]

    def _policy(self, home: Home, shared: SharedWindow, whose: Whose, name: str) -> Policy:
        group = shared.group
        header = PolicyHeader(
            *(group.fleet, name, group.stream, home.discretiser, self.period),
            epoch=group.epoch_us / 1e6,
            missing_share=None if home.discretiser.missing else home.missing_share or None,
            useful_for="share" if self.size.useful else None,
        )
        stretch = self.question.ticks(self.period)
        promise = Guarantee(epsilon=self.question.epsilon, adversary=self.question.adversary, stretch_ticks=stretch)
        chains = home.chains.named(group.stream, group.period_us, group.rate)
        nothing_else = {"table": None, "windows": (), "windows_guarantee": None}
        return make_policy(header, guarantee=promise, chains=chains, sums=(shared,), **nothing_else)


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
    progress: Progress = lambda _part, _share: None,
) -> StreetPlan:
    """Plan a group from a recording that stands for all homes, or from one of each.

    `honest` is half of the homes unless given, `colluding` a tenth. A signed `document` has both, and its noise.

    Raises:
        FuguError: a recording is too short, or has no times; or there is no such group.
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
    length = _length(question, recordings[0], period)
    question = replace(question, protect=protected_seconds(question.protect, period))
    rng, planned = np.random.default_rng(seed), []
    for number, readings in enumerate(recordings):
        progress(f"the class of {readings.source}", 0.8 * number / len(recordings))
        planned.append(_home(readings, question, period, length, zone, rng))
    first = planned[0]
    for home in planned:
        if (home.discretiser.states, home.counted) != (first.discretiser.states, first.counted):
            names = ", ".join(home.discretiser.states)
            raise PlanningError(f"{home.source} has the states {names}, {first.source} others: give --states")
    scale = max(home.scale for home in planned)
    noise = largest_noise(scale, honest) if document is None else document.noise
    progress("errors", 0.85)
    by_date = _by_date(planned)
    find = partial(_size, planned, by_date, noise_rate(noise, honest), honest / homes, rng)
    sizes = tuple(map(partial(find, length), SIZES))
    size = find(length, homes)
    return StreetPlan(
        *(question, tuple(planned), homes, honest, colluding, noise, period, length, size, sizes, bool(by_date))
    )


def _length(question: Question, readings: Readings, period: float) -> int:
    """Ticks of a window: an hour, or as asked; the parts of a day that is whole."""
    if not readings.timed:
        raise PlanningError(f"{readings.source} has no steady times: homes of a group count in the same hours")
    wanted = _HOUR if question.window is None else question.window * (1.0 if question.window_is_time else period)
    ticks = round(wanted / period, 6)
    if ticks != int(ticks) or ticks < 1 or round(DAY / period, 6) % ticks:
        raise PlanningError(f"a window of {wanted:g} s is not some ticks of {period:g} s, and a day not some windows")
    return int(ticks)


def _home(
    readings: Readings, question: Question, period: float, length: int, zone: ZoneInfo, rng: np.random.Generator
) -> Home:
    """Cover a recording, and attack what would be told if all other homes were known."""
    if not readings.timed or readings.period != period:
        raise PlanningError(f"{readings.source}: homes of a group have the same ticks, of {period:g} s, by their times")
    chosen = choose_states(readings, question)
    if chosen.histogram:
        raise PlanningError(f"{readings.source} has several states, and a group counts one question: give --threshold")
    k, bins, ticks = len(chosen.discretiser.states), (chosen.counted,), question.ticks(period)
    data = sampled(readings, chosen, three_sets(readings.segments, chosen.baseline_ticks))
    if np.unique(data.fit.states[data.fit.states >= 0]).size < 2:
        raise PlanningError(f"{readings.source}: the state never changes in the first set: there is nothing to plan")
    covered = covering_class(*data.whole[0], k)

    def released(chains: CoveringChains, generator: np.random.Generator) -> Outputs:
        scale = window_scale(chains, question.epsilon, question.adversary, bins, ticks)
        return release_counts(*data.fit, length, scale, bins, generator, k=k)

    attacked = true_class(*data.fit, k, question.epsilon, released, rng, covered=covered)
    if attacked.chains is None:
        raise PlanningError(f"{readings.source}: {attacked.reason}")
    scale = window_scale(attacked.chains, question.epsilon, question.adversary, bins, ticks)
    days = tuple(_days(readings, chosen.discretiser, bins, length, zone))
    if not days:
        raise PlanningError(f"{readings.source} has no whole day: there is nothing to compare a sum with")
    return Home(
        *(readings.source, chosen.discretiser, chosen.counted, attacked.chains, scale, readings.missing_share, days)
    )


def _days(
    readings: Readings, discretiser: Discretiser, bins: Bins, length: int, zone: ZoneInfo
) -> Iterator[tuple[date, Floats]]:
    """Dates of whole local days, with the shares of their parts; a tick without a state is not counted."""
    assert readings.moments is not None
    inside = np.isin(states_of(discretiser, readings.values, readings.segments), bins[0])
    per_day = round(DAY / readings.period)
    at = 0
    while at + per_day <= len(inside):
        moment = datetime.fromtimestamp(readings.moments[at], UTC).astimezone(zone)
        seconds = moment.hour * 3600 + moment.minute * 60 + moment.second + moment.microsecond / 1e6
        if seconds >= readings.period:  # on to about the next midnight
            at += max(1, math.floor((DAY - seconds) / readings.period))
            continue
        last = at + per_day - 1
        if readings.moments[last] - readings.moments[at] < DAY:
            yield moment.date(), inside[at : at + per_day].reshape(-1, length).mean(axis=1)
            at = last
        at += 1


def _kind(day: date) -> bool:
    return day.weekday() < _WEEKDAYS


def _by_date(homes: Sequence[Home]) -> list[dict[date, Floats]]:
    """The days of several homes that share enough dates for a comparison; none otherwise."""
    days = [dict(home.days) for home in homes]
    dates = {day for dated in days for day in dated}
    common = {day for day in dates if 2 * sum(day in dated for dated in days) >= len(days)}
    if len(homes) == 1 or len(common) < _LEAST_DATES:
        return []
    return [{day: shares for day, shares in dated.items() if day in common} for dated in days]


def _size(
    homes: Sequence[Home],
    by_date: Sequence[dict[date, Floats]],
    rate: Fraction,
    honest: float,
    rng: np.random.Generator,
    length: int,
    number: int,
) -> Size:
    """Errors of sums over so many homes, of which a fifth is away, by several draws of the homes."""
    there = max(1, round((1.0 - _AWAY) * number))
    dates = sorted(
        {day for home_days in by_date for day in home_days} or {day for home in homes for day, _ in home.days}
    )
    dates = dates if len(dates) <= _MOST_DATES else sorted(dates[i] for i in rng.permutation(len(dates))[:_MOST_DATES])
    kinds = np.array([_kind(day) for day in dates])
    off = np.zeros(2)
    for _ in range(_DRAWS):
        off += _guesses(_of_dates(by_date, dates, there, rng) if by_date else _of_days(homes, dates, there, rng), kinds)
    # A share is the difference of two numbers of NB(1/m, p); so many of them are of NB(there/m, p).
    above, below = rng.negative_binomial(there / (honest * number), -math.expm1(-float(rate)), (2, _NOISES))
    noise = float(np.abs(above - below).mean() / (length * there))
    return Size(number, noise, *(float(error) for error in off / _DRAWS))


def _of_dates(
    days: Sequence[dict[date, Floats]], dates: Sequence[date], there: int, rng: np.random.Generator
) -> Floats:
    """(d, h) averages on dates over homes that are drawn, each as it was on that date, if it was there."""
    few = there <= len(days)
    drawn = rng.permutation(len(days))[:there] if few else rng.integers(len(days), size=there)
    rows = []
    for day in dates:
        present = [days[i][day] for i in drawn if day in days[i]] or [
            home_days[day] for home_days in days if day in home_days
        ]
        rows.append(np.mean(present, axis=0))
    return np.array(rows)


def _of_days(homes: Sequence[Home], dates: Sequence[date], there: int, rng: np.random.Generator) -> Floats:
    """(d, h) averages over homes, each with any day of the same kind of weekday of a recording."""
    by_kind: dict[bool, list[Floats]] = {}
    for home in homes:
        for day, shares in home.days:
            by_kind.setdefault(_kind(day), []).append(shares)
    days = {kind: np.array(answers) for kind, answers in by_kind.items()}
    return np.array([days[_kind(day)][rng.integers(len(days[_kind(day)]), size=there)].mean(axis=0) for day in dates])


def _guesses(truth: Floats, kinds: NDArray[np.bool_]) -> tuple[float, float]:
    """Errors of the best constant, and of the mean of that part of the day over other days of the kind."""
    off = []
    for kind in (True, False):
        days = truth[kinds == kind]
        if len(days) > 1:
            off.append(np.abs((days.sum(axis=0) - days) / (len(days) - 1) - days).ravel())
    habit = float(np.concatenate(off).mean()) if off else math.nan
    return float(np.abs(truth - np.median(truth)).mean()), habit
