"""Attacking what a recording would have released by a policy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.attackers.evaluation import Attack, attack
from fugu.attackers.outputs import Outputs, known_every, release_counts, release_symbols
from fugu.contract.policy import Policy
from fugu.planning.errors import PlanningError
from fugu.planning.readings import Readings
from fugu.planning.recording import states_of

__all__ = ["Trial", "attack_policy"]


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
    whole, counts = policy.bound().epsilon(1), policy.windows_bound()  # what is attacked are ticks
    if seen is not None:
        noise = float(1 - seen.emission.diagonal().min()) if seen.emission.shape[1] == k else math.nan
        releases.append(("symbols", noise, whole, seen))
    for window in policy.windows:
        if window.stride < window.length or counts is None or not window.query.additive:
            continue
        scale, ticks = Fraction(window.scale), window.length
        groups = window.groups(names)
        alone = release_counts(states, segments, ticks, scale, groups, generator, k=k)
        if not alone.counts.size:
            continue
        releases.append((f"window {window.name}", float(scale), counts.epsilon(1), alone))
        if seen is not None:
            both = release_counts(states, segments, ticks, scale, groups, generator, k=k, beside=seen)
            releases.append((f"symbols, {window.name}", float(scale), whole, both))
    if not releases:
        raise PlanningError("the policy releases nothing of this recording that can be attacked")
    for released, noise, epsilon, outputs in releases:
        found = attack(states, segments, outputs, epsilon, known=known_every(states, known))
        yield Trial(readings.source, f"{k} states of the policy", chains, released, noise, epsilon, found)
