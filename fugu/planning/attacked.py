"""Attacking what a recording would have released, by a policy, or by the noise that a class of chains asks for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.attack import (
    Attack,
    Outputs,
    attack,
    known_every,
    release_counts,
    release_symbols,
)
from fugu.chains.arrays import Ints
from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.discretisers import Baseline, Discretiser, Thresholds
from fugu.contract.guarantee import Adversary
from fugu.contract.policy import Policy
from fugu.contract.windows import EACH, Each
from fugu.planning.errors import PlanningError
from fugu.planning.readings import Readings
from fugu.planning.recording import states_of
from fugu.privacy.covering_class import covering_class
from fugu.privacy.randomised_response import allowed_ratios, calibrate

__all__ = ["Trial", "attack_classes", "attack_policy", "tried", "two_states"]

WINDOW_TICKS = 300


class Trial(NamedTuple):
    """One release of a recording's states, attacked, the most successful attack first.

    `noise` is a flip probability (the larger of two), or the scale of a count in ticks.
    """

    source: str
    state: str
    chains: str
    released: str
    noise: float
    epsilon: float
    attacks: tuple[Attack, ...]

    @property
    def known_chain(self) -> Attack:
        """The attacker who believes the recording's mean chain, and uses every output (forward-backward)."""
        return next(one for one in self.attacks if one.attacker == "forward-backward")


def two_states(readings: Readings, baseline: int | None, threshold: float | None) -> tuple[str, Ints]:
    """Two states of a recording of numbers (-1: none): above its running mean, or at a threshold and above.

    The baseline is in ticks, None for a threshold, which is by default the mean. PlanningError if the readings are
    names.
    """
    if isinstance(readings.values, list):
        raise PlanningError(f"{readings.source}: column {readings.column} holds names, not numbers")
    known = readings.values[readings.present]
    discretiser: Discretiser
    if baseline is not None:
        low, high = math.floor(known.min()), math.ceil(known.max())
        discretiser = Baseline(baseline_ticks=baseline, lowest=low, highest=max(high, low + 1))
        name = f"above the running mean of {baseline}"
    else:
        edge = float(known.mean()) if threshold is None else threshold
        discretiser = Thresholds(edges=(edge,), states=("below", "above"))
        name = "above its own mean" if threshold is None else f"{threshold:g} or more"
    return name, states_of(discretiser, readings.values, readings.segments)


def class_of_halves(states: Ints, segments: Ints) -> BinaryChains:
    """The class that holds the mean chain of a recording and of its halves: what slow regimes are not in."""
    half = states.size // 2
    parts = [(states, segments), (states[:half], segments[:half]), (states[half:], segments[half:])]
    means = []
    for part, where in parts:
        before, after = part[:-1], part[1:]
        follows = (before >= 0) & (after >= 0) & (where[:-1] == where[1:])
        for x in (0, 1):
            moves = after[follows & (before == x)] != x
            if not 0 < moves.sum() < moves.size:
                raise PlanningError(f"a half of the recording never leaves state {x}, or never stays in it")
            means.append(float(moves.mean()))
    return BinaryChains(q=(min(means[::2]), max(means[::2])), r=(min(means[1::2]), max(means[1::2])))


def attack_classes(
    source: str, state: str, states: Ints, segments: Ints, epsilon: float, known: int | None = None
) -> Iterator[Trial]:
    """Attack symbols and counts of 300 ticks, with the noise for independent readings, the mean chain, every stretch.

    `states` are (n,), -1 where there is none; attackers are given the true one of every `known`-th tick.

    Raises:
        FuguError: the recording is too short to tell, or no noise has this epsilon.
    """
    informed: Adversary = "informed"
    classes: list[tuple[str, BinaryChains | BoundedChains, Adversary]] = [
        ("independent readings", BinaryChains(q=(0.5, 0.5), r=(0.5, 0.5)), informed),
        ("mean chain", class_of_halves(states, segments), informed),
        ("every stretch", covering_class(states, segments, 2).chains, "universal"),
    ]
    for name, chains, adversary in classes:
        table = calibrate(chains, epsilon, adversary)
        scale = Fraction(math.ceil(100 / math.log(min(allowed_ratios(chains, epsilon, adversary)))), 100)
        generator = np.random.default_rng(1)
        symbols = release_symbols(states, table.table, generator)
        counts = release_counts(states, segments, WINDOW_TICKS, scale, (1,), generator, k=2)
        releases: list[tuple[str, float, Outputs]] = [("symbols", max(table.rho0, table.rho1), symbols)]
        if counts.counts.size:
            releases.append((f"counts of {WINDOW_TICKS}", float(scale), counts))
        for released, noise, outputs in releases:
            found = tried(states, segments, outputs, epsilon, known)
            yield Trial(source, state, name, released, noise, epsilon, found)


def attack_policy(policy: Policy, readings: Readings, known: int | None = None) -> Iterator[Trial]:
    """Attack what a policy releases of a recording: symbols, each tumbling window alone, and each beside the symbols.

    Rows are the policy's ticks; attackers are given the true state of every `known`-th one.

    Raises:
        PlanningError: no reading has a state, or the policy releases nothing that can be attacked.
    """
    segments, names = readings.segments, policy.discretiser.states
    states = states_of(policy.discretiser, readings.values, segments)
    if not (states >= 0).any():
        raise PlanningError(f"{readings.source}: no reading has a state under this policy")
    generator, k = np.random.default_rng(1), len(names)
    chains = f"class of the policy ({policy.guarantee.adversary})"
    seen = None if policy.table is None else release_symbols(states, policy.table, generator)
    releases: list[tuple[str, float, float, Outputs]] = []
    if seen is not None:
        noise = float(1 - seen.emission.diagonal().min()) if seen.emission.shape[1] == k else math.nan
        releases.append(("symbols", noise, policy.guarantee.epsilon, seen))
    for window in policy.windows:
        if window.stride < window.length or policy.windows_alone is None or not window.query.adds_up:
            continue
        scale, ticks = Fraction(window.scale), window.length
        counted: tuple[int, ...] | Each = EACH if window.query.each else window.counted(names)
        alone = release_counts(states, segments, ticks, scale, counted, generator, k=k)
        if not alone.counts.size:
            continue
        releases.append((f"window {window.name}", float(scale), policy.windows_alone.epsilon, alone))
        if seen is not None:
            both = release_counts(states, segments, ticks, scale, counted, generator, k=k, beside=seen)
            releases.append((f"symbols, {window.name}", float(scale), policy.guarantee.epsilon, both))
    if not releases:
        raise PlanningError("the policy releases nothing of this recording that can be attacked")
    for released, noise, epsilon, outputs in releases:
        found = tried(states, segments, outputs, epsilon, known)
        yield Trial(readings.source, f"{k} states of the policy", chains, released, noise, epsilon, found)


def tried(states: Ints, segments: Ints, outputs: Outputs, epsilon: float, known: int | None) -> tuple[Attack, ...]:
    """Attack outputs whose truth is known, as `fugu.attack.attack` does, with every so many states given."""
    return attack(states, segments, outputs, epsilon, known=None if known is None else known_every(states, known))
