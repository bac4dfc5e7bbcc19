"""Attacks on whole stretches of a stream whose promise is about stretches, by attackers who know all other days.

Without a truth a path is drawn of a chain of the class, and what the policy would release of it; with one, what was
published is attacked, by the recording's mean chain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.attackers.outputs import CountOutputs, Outputs, SymbolOutputs, release_counts, release_symbols
from fugu.attackers.stretches import FEWEST, PARTS, StretchAttack, attack_stretches
from fugu.audit.findings import Finding
from fugu.audit.outputs import Mechanism, paths
from fugu.audit.witness import told_by_tick
from fugu.chains.arrays import Floats, Ints
from fugu.contract.policy import Policy
from gateway.audit.attacks import reach
from gateway.audit.mechanism import JointStreams, mechanism_of, windows, worst_chains

__all__ = ["StretchTrial", "attack_published_stretches", "attack_simulated_stretches", "stretch_findings"]

_DAY_US = 86_400_000_000
_FOLLOWED = 3000
"""Ticks of a stretch, or of a window, whose courses are followed; it takes long beyond."""
_FORGETS = 12.0
"""Beyond so many of the times in which a chain forgets, it makes no difference what is known."""


class StretchTrial(NamedTuple):
    """Attacks on stretches of so many ticks, one for each secret; without any `why` says why, and is empty otherwise.

    `in_class` says that the believed chain is of the class: then no output moves odds further than is promised.
    """

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


_ROUNDING = 1e-9


def attack_simulated_stretches(policy: Policy, seed: int) -> list[StretchTrial]:
    """Attack what a policy would release of a path of its class; nothing if its promise is about single ticks."""
    joint, ticks = JointStreams.of([policy]), policy.guarantee.stretch_ticks
    if ticks == 1 or joint.absent:
        return []
    generator = np.random.default_rng([seed, ticks])
    heard = mechanism_of(joint, [policy.table is not None], windows(policy), 0)
    chain = worst_chains(joint, policy.guarantee.adversary, told_by_tick(heard))[0]
    unknown = _unknown(policy, reach(chain, _FORGETS))
    lengths = [one.length for one in policy.windows]
    parts = min([FEWEST, *(min(PARTS, max(1, length // ticks)) for length in lengths)])
    size = 2 * unknown + (-(-2 * FEWEST // parts) + 2) * max([ticks, *lengths])
    path = paths(chain, Mechanism(size, 0, chain.states, (), ()), 0, 1, generator)[0]
    segments, k = np.zeros_like(path), chain.states
    outputs: list[tuple[str, Outputs]] = []
    if policy.table is not None:
        outputs.append(("symbols", release_symbols(path, policy.table, generator)))
    for window in policy.windows:
        if window.stride >= window.length and window.query.additive:
            groups = window.groups(policy.discretiser.states)
            counts = release_counts(path, segments, window.length, Fraction(window.scale), groups, generator, k=k)
            outputs.append((f"window {window.name}", counts))
    return [_attacked(policy, what, path, segments, one, unknown, chain.transition) for what, one in outputs]


def attack_published_stretches(
    policy: Policy, states: Ints, segments: Ints, released: Iterable[tuple[str, Outputs]]
) -> list[StretchTrial]:
    """Attack what was published of (n,) states; nothing if the promise is about single ticks."""
    if policy.guarantee.stretch_ticks == 1:
        return []
    unknown = _unknown(policy, _FOLLOWED)
    return [_attacked(policy, what, states, segments, one, unknown, None) for what, one in released]


def stretch_findings(trials: Iterable[StretchTrial]) -> list[Finding]:
    """Findings for promises that are refuted."""
    return [
        Finding(
            "epsilon-refuted",
            f"{one.released}: epsilon {one.epsilon:.6g} is promised about any {one.ticks} ticks in a row, and it is at "
            f"least {one.least:.4g}",
        )
        for one in trials
        if one.least > one.epsilon
    ]


def _attacked(
    policy: Policy, what: str, states: Ints, segments: Ints, outputs: Outputs, unknown: int, chain: Floats | None
) -> StretchTrial:
    ticks = policy.guarantee.stretch_ticks
    bound = policy.bound()
    if isinstance(outputs, CountOutputs):
        bound = policy.windows_bound() or bound
        if ticks > outputs.length:
            ticks = ticks // outputs.length * outputs.length
    trial = StretchTrial(what, ticks, bound.epsilon(ticks), (), "", chain is not None)
    length = outputs.length if isinstance(outputs, CountOutputs) else 1
    if max(ticks, length) > _FOLLOWED:
        return trial._replace(why=f"courses of more than {_FOLLOWED} ticks are not followed")
    counted = (outputs.states - 1,) if isinstance(outputs, SymbolOutputs) else outputs.groups[-1]
    found = attack_stretches(states, segments, outputs, counted, ticks, unknown, trial.epsilon, chain)
    scored = max((one.scored for one in found), default=0)
    if scored < FEWEST:
        return trial._replace(why=f"too short: {scored} stretches could be scored, and it takes {FEWEST}")
    return trial._replace(attacks=tuple(one for one in found if one.scored >= FEWEST))


def _unknown(policy: Policy, far: int) -> int:
    """Ticks that the attacker does not know: a day, but none so far from the stretch that it makes no difference."""
    ticks = policy.guarantee.stretch_ticks
    return max(ticks, min(-(-_DAY_US // policy.clock.period_us), ticks + 2 * far))
