"""Attacking what a recording would have released by a policy: ticks, and stretches where these are what is promised."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.attackers.evaluation import Attack, attack
from fugu.attackers.outputs import CountOutputs, Outputs, SymbolOutputs, known_every, release_counts, release_symbols
from fugu.attackers.stretches import FEWEST, StretchAttack, attack_stretches
from fugu.chains.arrays import Floats, Ints
from fugu.contract.policy import Policy
from fugu.planning.errors import PlanningError
from fugu.planning.own_clock import states_by
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import Recorded

__all__ = [
    "StretchTrial",
    "Trial",
    "attack_policy",
    "attack_policy_stretches",
    "attack_published_stretches",
    "attacked_stretches",
    "unknown_ticks",
]

_DAY_US = 86_400_000_000
_FOLLOWED = 3000
"""Ticks of a stretch, or of a window, whose courses are followed; it takes long beyond."""
_ROUNDING = 1e-9


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


def attack_policy(
    policy: Policy, recording: Recorded, options: ReadOptions, known: int | None = None
) -> Iterator[Trial]:
    """Attack what a policy releases of a recording: symbols, each tumbling window alone, and each beside the symbols.

    The recording is read at the policy's clock; attackers are given the true state of every `known`-th tick.

    Raises:
        PlanningError: no reading has a state, or the policy releases nothing that can be attacked.
        RecordingError: the recording cannot be read.
        QuestionError: it can be read in more than one way.
    """
    source, states, segments, releases = _released(policy, recording, options)
    k = len(policy.discretiser.states)
    chains = f"class of the policy ({policy.guarantee.adversary})"
    for released, noise, epsilon, outputs in releases:
        found = attack(states, segments, outputs, epsilon, known=known_every(states, known))
        yield Trial(source, f"{k} states of the policy", chains, released, noise, epsilon, found)


def attack_policy_stretches(policy: Policy, recording: Recorded, options: ReadOptions) -> list[StretchTrial]:
    """Attack the same releases of a recording in stretches; nothing if the promise is about single ticks."""
    source, states, segments, releases = _released(policy, recording, options)
    alone = [(what, one) for what, _, _, one in releases if isinstance(one, SymbolOutputs) or one.beside is None]
    return attack_published_stretches(policy, source, states, segments, alone)


def _released(
    policy: Policy, recording: Recorded, options: ReadOptions
) -> tuple[str, Ints, Ints, list[tuple[str, float, float, Outputs]]]:
    """The states of a recording, and what is released of them: a name, noise and epsilon about a tick of each."""
    readings, states, segments = states_by(policy, recording, options)
    names = policy.discretiser.states
    generator, k = np.random.default_rng(1), len(names)
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
    return readings.source, states, segments, releases


class StretchTrial(NamedTuple):
    """Attacks on stretches of so many ticks, one for each secret; without any `why` says why, and is empty otherwise.

    `source` is whose states they are.

    `in_class` says that the believed chain is of the class: then no output moves odds further than is promised.
    """

    source: str
    released: str
    ticks: int
    epsilon: float
    attacks: tuple[StretchAttack, ...]
    why: str
    in_class: bool

    @property
    def least(self) -> float:
        """Epsilon is at least this, by what was true and, in the class, by how far odds moved."""
        shown = [one.epsilon_low for one in self.attacks]
        if self.in_class:
            shown += [math.log(one.furthest) - _ROUNDING for one in self.attacks]
        return max(shown, default=0.0)


def attack_published_stretches(
    policy: Policy, source: str, states: Ints, segments: Ints, released: Iterable[tuple[str, Outputs]]
) -> list[StretchTrial]:
    """Attack what was released of (n,) states; nothing if the promise is about single ticks."""
    if policy.guarantee.stretch_ticks == 1:
        return []
    unknown = unknown_ticks(policy, _FOLLOWED)
    return [attacked_stretches(policy, source, what, states, segments, one, unknown, None) for what, one in released]


def attacked_stretches(
    policy: Policy,
    source: str,
    what: str,
    states: Ints,
    segments: Ints,
    outputs: Outputs,
    unknown: int,
    chain: Floats | None,
) -> StretchTrial:
    """Attack one output, by a chain of the class or the mean chain of the states; so many ticks are not known."""
    ticks = policy.guarantee.stretch_ticks
    bound = policy.bound()
    if isinstance(outputs, CountOutputs):
        bound = policy.windows_bound() or bound
        if ticks > outputs.length:
            ticks = ticks // outputs.length * outputs.length
    trial = StretchTrial(source, what, ticks, bound.epsilon(ticks), (), "", chain is not None)
    length = outputs.length if isinstance(outputs, CountOutputs) else 1
    if max(ticks, length) > _FOLLOWED:
        return trial._replace(why=f"courses of more than {_FOLLOWED} ticks are not followed")
    counted = (outputs.states - 1,) if isinstance(outputs, SymbolOutputs) else outputs.groups[-1]
    found = attack_stretches(states, segments, outputs, counted, ticks, unknown, trial.epsilon, chain)
    scored = max((one.scored for one in found), default=0)
    if scored < FEWEST:
        return trial._replace(why=f"too short: {scored} stretches could be scored, and it takes {FEWEST}")
    return trial._replace(attacks=tuple(one for one in found if one.scored >= FEWEST))


def unknown_ticks(policy: Policy, far: int) -> int:
    """Ticks that the attacker does not know: a day, but none so far from the stretch that it makes no difference."""
    ticks = policy.guarantee.stretch_ticks
    return max(ticks, min(-(-_DAY_US // policy.clock.period_us), ticks + 2 * far))
