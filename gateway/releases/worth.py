"""The error of a configured release, compared with a guess from the class of chains alone.

The error is the standard error by the mechanism, the symbols and the devices' own noise, for the worst states. A guess
always says the same number and knows the class. Its error is the spread of counts of windows, and the distance between
the means of the class's chains. A release is useful if its error is at most half of the guess's. All of this follows
from policies and promises.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
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
from fugu.privacy.chain_class import ChainClassError, ListedChains, MarkovChain, ReleaseClass, mechanism_chains
from fugu.privacy.quilts import corner_chains
from gateway.estimates.catalogue import Catalogue
from gateway.releases.allowance import smallest_scale, window_sensitivity
from gateway.releases.charges import nats
from gateway.releases.entries import AccountKey, Allowance
from gateway.releases.inputs import symbols_variances
from gateway.releases.jobs import Job, answer_rows
from gateway.releases.statistics import noise_variance, weights_of

__all__ = ["mechanism_notes", "useless_releases"]

_TIMES_BETTER = 2.0
_DOUBLINGS = 17


class _DeviceKind(NamedTuple):
    """Properties of a device that the error depends on; `window` is its own window that answers the release, if any."""

    chains: ChainClass
    table: NoiseTable | None
    window: Window | None


class Worth(NamedTuple):
    """Errors of a release of windows of `length` ticks and of a guess in its place: root mean square, in ticks."""

    length: int
    error: float
    guess: float

    @property
    def is_useful(self) -> bool:
        """Tell whether the release is at least twice as good as the guess."""
        return _TIMES_BETTER * self.error <= self.guess


def useless_releases(jobs: Iterable[Job], grants: Iterable[Allowance], catalogue: Catalogue) -> dict[str, str]:
    """Describe each configured release that is not useful, by name: its error, and what would be useful."""
    free_charges = {grant.key: grant.allowance - grant.base for grant in grants}
    reasons: dict[str, str] = {}
    seen_inputs = set()
    for job in jobs:
        keys = [AccountKey(device, job.plan.stream, job.plan.audience) for device in job.question.devices]
        kinds = count_kinds(job, catalogue)
        budget = min(free_charges.get(key, 0) for key in keys)
        inputs = job.plan.name, frozenset(kinds.items()), budget
        if job.plan.name in reasons or inputs in seen_inputs:  # of another device
            continue
        seen_inputs.add(inputs)
        worth = worth_of(job, kinds, budget, job.plan.length)
        if worth is not None and not worth.is_useful:
            ticks = kinds.total() * worth.length
            reasons[job.plan.name] = (
                f"off by {_tick_text(worth.error)} of {ticks:,} ticks, always saying the same by "
                f"{_tick_text(worth.guess)}: not useful; {_useful_alternatives(job, kinds, budget)}"
            )
    return reasons


def mechanism_notes(jobs: Iterable[Job]) -> dict[str, str]:
    """Describe each release with mechanism "auto", by name: the mechanism chosen, and the noise of each."""
    notes = {}
    for job in jobs:
        scales = [f"{1.0 / nats(allowance):.4g} by {mechanism}" for mechanism, allowance in job.allowances if allowance]
        if len(scales) > 1:
            needs = f"a count of the device's own needs noise of scale {', '.join(scales)}"
            notes[job.plan.name] = f"mechanism {job.question.mechanism}: {needs}"
        elif job.allowances:
            reason = "quilts cover the ignorant adversary and single ticks alone, or have no bound here"
            notes[job.plan.name] = f"mechanism {job.question.mechanism}: {reason}"
    return notes


def count_kinds(job: Job, catalogue: Catalogue) -> Counter[_DeviceKind]:
    """Count a release's devices by kind."""
    policies = (catalogue.planned_policies(device, job.plan.stream)[-1] for device in job.question.devices)
    windows = job.question.windows
    return Counter(_DeviceKind(policy.chains, policy.table, windows.get(policy.device)) for policy in policies)


def worth_of(job: Job, kinds: Counter[_DeviceKind], budget: int, length: int) -> Worth | None:
    """Compute a release's errors for windows of `length` ticks, if each tick may be charged `budget`.

    Returns `None` if the release can never be made, or its error is not known beforehand. The latter is so for dwell
    times, and for the Wasserstein mechanism, whose noise depends on which ticks have symbols.
    """
    query, source = job.question.query, job.question.source
    if query.definition.of_pairs or job.question.mechanism == "wasserstein":
        return None
    variances, paired_variances = np.zeros(len(query.groups)), np.zeros(len(query.groups))
    lone_ticks, paired_ticks = Counter[NoiseTable](), Counter[NoiseTable]()  # with symbols only, and windows, too
    try:
        for kind, device_count in kinds.items():
            window_variances = _window_variances(job, kind, length)
            symbol_variances = None if kind.table is None else symbols_variances(query, {kind.table: length}, None)
            if window_variances is not None and (
                symbol_variances is None or (source == "best" and window_variances.sum() <= symbol_variances.sum())
            ):
                variances += device_count * window_variances
            elif kind.table is not None and window_variances is not None and source == "both":
                paired_variances += device_count * window_variances
                paired_ticks[kind.table] += device_count * length
            elif kind.table is not None:
                lone_ticks[kind.table] += device_count * length
        scale = _noise_scale(job, lone_ticks.keys() | paired_ticks.keys(), budget, length)
        variances += symbols_variances(query, lone_ticks, scale)
        if paired_ticks:
            variances += 1.0 / (1.0 / paired_variances + 1.0 / symbols_variances(query, paired_ticks, scale))
    except (FuguError, ValueError):
        return None
    return Worth(length, math.sqrt(variances.sum()), _guess_error(job, kinds, length))


def _window_variances(job: Job, kind: _DeviceKind, length: int) -> Floats | None:
    """The variances (n,) of the answer of a device's own windows; `None` without windows."""
    if kind.window is None:
        return None
    rows = answer_rows(kind.window, job.question.labels, job.question.query)
    assert rows is not None
    return np.asarray(rows.sum(axis=1) * noise_variance(Fraction(kind.window.scale)) * length / kind.window.length)


def _noise_scale(job: Job, tables: set[NoiseTable], budget: int, length: int) -> Fraction | None:
    """The scale of the noise on counts of symbols; `None` if no symbols are counted."""
    if not tables:
        return None
    noisy_counts = max(weights_of(job.question.query, table).noisy_counts for table in tables)
    if job.question.mechanism in ALONE:
        return Fraction(window_sensitivity(job.question.query.kind, noisy_counts, length)) / Fraction(job.epsilon)
    if job.plan.scale is not None:
        return Fraction(job.plan.scale)
    return smallest_scale(tables, min(noisy_counts, 2), int(Fraction(job.plan.share or 0) * budget))


def _guess_error(job: Job, kinds: Counter[_DeviceKind], length: int) -> float:
    """The error of always guessing the middle of the mean counts of a class's chains, for the worst of them."""
    own_chains, groups = job.question.chains, job.question.query.groups
    classes = {kind: ListedChains(transitions=own_chains) if own_chains else kind.chains for kind in kinds}
    spreads = [(count, *_class_spread(classes[kind], groups, length)) for kind, count in kinds.items()]
    bias = sum(count * width for count, width, _ in spreads)
    return math.sqrt(float(np.sum(bias**2)) + sum(count * float(variances.sum()) for count, _, variances in spreads))


@cache
def _class_spread(chains: ReleaseClass, groups: tuple[tuple[int, ...], ...], length: int) -> tuple[Floats, Floats]:
    """Half of the distance between the chains' mean counts, and their largest variance, for each group of states."""
    try:
        corners = corner_chains(known_chains(mechanism_chains(chains)))
    except ChainClassError:  # the class allows any share of the time
        return np.full(len(groups), length / 2.0), np.zeros(len(groups))
    moments = np.array([[_count_moments(corner, states, length) for states in groups] for corner in corners])
    return np.ptp(moments[..., 0], axis=0) / 2.0, moments[..., 1].max(axis=0)


def _count_moments(chain: MarkovChain, states: tuple[int, ...], length: int) -> tuple[float, float]:
    """The mean and the variance of the ticks, out of `length`, that a stationary chain spends in some states.

    With v = 1_S - pi(S) and G the inverse of I - P on vectors of mean 0, the sums of P^1 v .. P^j v, added up over all
    j below the length T, are G P ((T - 1) v - G P (I - P^(T-1)) v).
    """
    pi, transition = chain.stationary_distribution, chain.transition
    in_states = np.isin(np.arange(len(pi)), states).astype(np.float64)
    share = float(pi @ in_states)
    deviation = in_states - share
    potential = np.linalg.inv(np.eye(len(pi)) - transition + pi) @ transition
    power = np.linalg.matrix_power(transition, length - 1)
    sums = potential @ ((length - 1) * deviation - potential @ (deviation - power @ deviation))
    return length * share, max(length * share * (1.0 - share) + 2.0 * float((pi * in_states) @ sums), 0.0)


def _tick_text(ticks: float) -> str:
    """A number of ticks as text, with three digits or more."""
    return f"{ticks:,.0f}" if ticks >= 100.0 else f"{ticks:.3g}"


def _useful_alternatives(job: Job, kinds: Counter[_DeviceKind], budget: int) -> str:
    """Name the shortest useful windows, of the release and of windows that devices count themselves."""
    lengths = [job.plan.length << doublings for doublings in range(_DOUBLINGS)]
    worths = [worth for length in lengths if (worth := worth_of(job, kinds, budget, length)) is not None]
    useful_worths = [worth for worth in worths if worth.is_useful][:1]
    ways = [f"windows of {worth.length:,} ticks (off by {_tick_text(worth.error)})" for worth in useful_worths]
    if not job.question.windows and job.question.mechanism not in ALONE and budget:
        scale = Fraction(job.question.query.definition.sensitivity) / Fraction(nats(budget))
        error = math.sqrt(kinds.total() * len(job.question.query.groups) * noise_variance(scale))
        counts = (Worth(length, error, _guess_error(job, kinds, length)) for length in lengths)
        ways += [
            f"windows of {window.length:,} ticks that devices count, with noise of scale {float(scale):.4g} (off by "
            f"{_tick_text(error)}; fugu plan window)"
            for window in [worth for worth in counts if worth.is_useful][:1]
        ]
    return f"useful are {', or '.join(ways)}" if ways else "no length of its windows is: raise epsilon, or count more"
