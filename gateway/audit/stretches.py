"""Attacks on promised stretches of a path of the class, by attackers who know all other days."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from fugu.attackers.outputs import Outputs, release_counts, release_symbols
from fugu.attackers.stretches import FEWEST, PARTS
from fugu.audit.findings import Finding
from fugu.audit.outputs import Mechanism, paths
from fugu.audit.witness import told_by_tick
from fugu.contract.policy import Policy
from fugu.planning.attacked import StretchTrial, attacked_stretches, unknown_ticks
from gateway.audit.attacks import reach
from gateway.audit.mechanism import JointStreams, mechanism_of, windows, worst_chains

__all__ = ["attack_simulated_stretches", "stretch_findings"]

_FORGETS = 12.0
"""Beyond so many of the times in which a chain forgets, it makes no difference what is known."""


def attack_simulated_stretches(policy: Policy, seed: int) -> list[StretchTrial]:
    """Attack what a policy would release of a path of its class; nothing if its promise is about single ticks."""
    joint, ticks = JointStreams.of([policy]), policy.guarantee.stretch_ticks
    if ticks == 1 or joint.absent:
        return []
    generator = np.random.default_rng([seed, ticks])
    heard = mechanism_of(joint, [policy.table is not None], windows(policy), 0)
    chain = worst_chains(joint, policy.guarantee.adversary, told_by_tick(heard))[0]
    unknown = unknown_ticks(policy, reach(chain, _FORGETS))
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
    return [
        attacked_stretches(policy, "simulated", what, path, segments, one, unknown, chain.transition)
        for what, one in outputs
    ]


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
