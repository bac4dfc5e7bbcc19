"""How far off a configured release will be, beside guessing from the class of chains alone.

The error is the standard error of what the mechanism, the symbols and the devices' own noise do, for the worst states.
A guess always says the same number and knows the class. Its error is how much counts of windows spread, and how far
apart the means of the class's chains are. A release is useful if it is at most half as far off. All of this follows
from policies and promises.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.chains import ChainClass
from fugu.contract.errors import FuguError
from fugu.contract.noise_table import NoiseTable
from fugu.contract.windows import ALONE, Window
from fugu.privacy.accountant.accountant import known_chains
from fugu.privacy.chain_class import ChainClassError, ListedChains, MarkovChain, ReleaseClass, followed
from fugu.privacy.quilts import corner_chains
from gateway.estimates.catalogue import Catalogue
from gateway.releases.allowance import moved_by_all, smallest_scale
from gateway.releases.charges import nats
from gateway.releases.entries import Allowance, Key
from gateway.releases.inputs import symbols_variances
from gateway.releases.jobs import Job, answers
from gateway.releases.statistics import noise_variance, weights_of

__all__ = ["compared", "not_useful"]

_TIMES_BETTER = 2.0
_DOUBLINGS = 17


class _Kind(NamedTuple):
    """Properties of a device that the error depends on; `window` is its own one that answers the release, if any."""

    chains: ChainClass
    table: NoiseTable | None
    window: Window | None


class Worth(NamedTuple):
    """Errors of a release and of a guess in its place: root mean square, in ticks."""

    length: int
    error: float
    guess: float

    @property
    def useful(self) -> bool:
        """True if the release is at least twice as good as the guess."""
        return _TIMES_BETTER * self.error <= self.guess


def not_useful(jobs: Iterable[Job], granted: Iterable[Allowance], catalogue: Catalogue) -> dict[str, str]:
    """By the name of each configured release that is not useful: how far off it will be, and what would be useful."""
    free = {grant.key: grant.allowance - grant.base for grant in granted}
    reasons: dict[str, str] = {}
    seen = set()
    for job in jobs:
        keys = [Key(device, job.plan.stream, job.plan.audience) for device in job.question.devices]
        kinds = kinds_of(job, catalogue)
        budget = min(free.get(key, 0) for key in keys)
        like = job.plan.name, frozenset(kinds.items()), budget
        if job.plan.name in reasons or like in seen:  # of another device
            continue
        seen.add(like)
        here = worth_of(job, kinds, budget, job.plan.length)
        if here is not None and not here.useful:
            ticks = kinds.total() * here.length
            reasons[job.plan.name] = (
                f"off by {_ticks(here.error)} of {ticks:,} ticks, always saying the same by {_ticks(here.guess)}: not "
                f"useful; {_useful_instead(job, kinds, budget)}"
            )
    return reasons


def compared(jobs: Iterable[Job]) -> dict[str, str]:
    """By the name of each release whose mechanism is "auto": which noise each one needs, and which was taken."""
    words = {}
    for job in jobs:
        scales = [f"{1.0 / nats(most):.4g} by {name}" for name, most in job.compared if most]
        if len(scales) > 1:
            needs = f"a count of the device's own needs noise of scale {', '.join(scales)}"
            words[job.plan.name] = f"mechanism {job.question.mechanism}: {needs}"
        elif job.compared:
            alone = "quilts cover the ignorant adversary and single ticks alone, or have no bound here"
            words[job.plan.name] = f"mechanism {job.question.mechanism}: {alone}"
    return words


def kinds_of(job: Job, catalogue: Catalogue) -> Counter[_Kind]:
    """How many of a release's devices there are of each kind."""
    newest = ((device, catalogue.planned(device, job.plan.stream)[-1]) for device in job.question.devices)
    return Counter(_Kind(policy.chains, policy.table, job.question.windows.get(device)) for device, policy in newest)


def worth_of(job: Job, kinds: Counter[_Kind], allowed: int, length: int) -> Worth | None:
    """Errors of a release of windows of a length, if each tick may be charged so much beside devices' own windows.

    `None` if it can never be made, or its error is not known beforehand. That is so for dwell times, and for the
    Wasserstein mechanism, whose noise depends on which ticks have symbols.
    """
    query, source = job.question.query, job.question.source
    if query.asked.pairs or job.question.mechanism == "wasserstein":
        return None
    total, doubled = np.zeros(len(query.groups)), np.zeros(len(query.groups))
    alone, beside = Counter[NoiseTable](), Counter[NoiseTable]()  # ticks of symbols, and of those beside windows
    try:
        for kind, count in kinds.items():
            own = _windows(job, kind, length)
            plain = None if kind.table is None else _symbols(job, {kind.table: length}, None)
            if own is not None and (plain is None or (source == "best" and own.sum() <= plain.sum())):
                total += count * own
            elif kind.table is not None and own is not None and source == "both":
                doubled += count * own
                beside[kind.table] += count * length
            elif kind.table is not None:
                alone[kind.table] += count * length
        scale = _scale(job, alone.keys() | beside.keys(), allowed, length)
        total += _symbols(job, alone, scale)
        if beside:
            total += 1.0 / (1.0 / doubled + 1.0 / _symbols(job, beside, scale))
    except (FuguError, ValueError):
        return None
    return Worth(length, math.sqrt(total.sum()), _guess(job, kinds, length))


def _windows(job: Job, kind: _Kind, length: int) -> Floats | None:
    """Variances of what a device's own windows answer; `None` without any."""
    if kind.window is None:
        return None
    rows = answers(kind.window, job.question.labels, job.question.query)
    assert rows is not None
    return np.asarray(rows.sum(axis=1) * noise_variance(Fraction(kind.window.scale)) * length / kind.window.length)


def _symbols(job: Job, ticks: Mapping[NoiseTable, int], scale: Fraction | None) -> Floats:
    """Variances of what so many ticks of symbols of each table answer; noise is added once for each table."""
    variances = [symbols_variances(job.question.query, table, n, scale) for table, n in ticks.items()]
    return np.asarray(sum(variances, np.zeros(len(job.question.query.groups))))


def _scale(job: Job, tables: set[NoiseTable], allowed: int, length: int) -> Fraction | None:
    """The scale of the noise on counts of symbols; `None` if nobody's are counted."""
    if not tables:
        return None
    counts = max(weights_of(job.question.query, table).noises.shape[1] for table in tables)
    if job.question.mechanism in ALONE:
        return Fraction(moved_by_all(job.question.query.kind, counts, length)) / Fraction(job.epsilon)
    if job.plan.scale is not None:
        return Fraction(job.plan.scale)
    return smallest_scale(tables, min(counts, 2), int(Fraction(job.plan.share or 0) * allowed))


def _guess(job: Job, kinds: Counter[_Kind], length: int) -> float:
    """The error of the number in the middle of what the class's chains expect, for those that it fits least."""
    own, groups = job.question.chains, job.question.query.groups
    classes = {kind: ListedChains(transitions=own) if own else kind.chains for kind in kinds}
    spreads = [(count, *_class_spread(classes[kind], groups, length)) for kind, count in kinds.items()]
    apart = sum(count * width for count, width, _ in spreads)
    return math.sqrt(float(np.sum(apart**2)) + sum(count * float(variances.sum()) for count, _, variances in spreads))


@cache
def _class_spread(chains: ReleaseClass, groups: tuple[tuple[int, ...], ...], length: int) -> tuple[Floats, Floats]:
    """By group of states: half of how far the chains' mean counts lie apart, and their largest variance."""
    try:
        members = corner_chains(known_chains(followed(chains)))
    except ChainClassError:  # any share of the time
        return np.full(len(groups), length / 2.0), np.zeros(len(groups))
    moments = np.array([[_spread(member, states, length) for states in groups] for member in members])
    return np.ptp(moments[..., 0], axis=0) / 2.0, moments[..., 1].max(axis=0)


def _spread(chain: MarkovChain, states: tuple[int, ...], length: int) -> tuple[float, float]:
    """Mean and variance of how many of `length` ticks a stationary chain spends in some states.

    With v = 1_S - pi(S) and G the inverse of I - P on vectors of mean 0, the sums of P^1 v .. P^j v, added up over all
    j below the length T, are G P ((T - 1) v - G P (I - P^(T-1)) v).
    """
    pi, step = chain.stationary_distribution, chain.transition
    inside = np.isin(np.arange(len(pi)), states).astype(np.float64)
    share = float(pi @ inside)
    away = inside - share
    once = np.linalg.inv(np.eye(len(pi)) - step + pi) @ step
    sums = once @ ((length - 1) * away - once @ (away - np.linalg.matrix_power(step, length - 1) @ away))
    return length * share, max(length * share * (1.0 - share) + 2.0 * float((pi * inside) @ sums), 0.0)


def _ticks(number: float) -> str:
    return f"{number:,.0f}" if number >= 100.0 else f"{number:.3g}"


def _useful_instead(job: Job, kinds: Counter[_Kind], allowed: int) -> str:
    """Longer windows that are useful, and those that devices would count themselves within the audience's promise."""
    lengths = [job.plan.length << doubled for doubled in range(_DOUBLINGS)]
    worths = [worth for length in lengths if (worth := worth_of(job, kinds, allowed, length)) is not None]
    ways = [f"windows of {worth.length:,} ticks (off by {_ticks(worth.error)})" for worth in worths if worth.useful][:1]
    if not job.question.windows and job.question.mechanism not in ALONE and allowed:
        scale = Fraction(job.question.query.asked.sensitivity) / Fraction(nats(allowed))
        error = math.sqrt(kinds.total() * len(job.question.query.groups) * noise_variance(scale))
        counted = [worth for length in lengths if (worth := Worth(length, error, _guess(job, kinds, length))).useful]
        ways += [
            f"windows of {window.length:,} ticks that devices count, with noise of scale {float(scale):.4g} (off by "
            f"{_ticks(error)}; fugu plan window)"
            for window in counted[:1]
        ]
    return f"useful are {', or '.join(ways)}" if ways else "no length of its windows is: raise epsilon, or count more"
