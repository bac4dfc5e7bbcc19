"""Attackers: what an adversary really achieves against sanitised outputs whose truth is known; no noise is set here."""

from __future__ import annotations

from fugu.attack.evaluation import (
    ATTACKERS,
    COUNT_ATTACKERS,
    Attack,
    Attacker,
    attack,
    furthest_learner,
    mean_transitions,
    odds_change,
    success_bound,
)
from fugu.attack.outputs import (
    CountOutputs,
    Knowledge,
    Outputs,
    SymbolOutputs,
    known_every,
    release_counts,
    release_symbols,
)

__all__ = [
    "ATTACKERS",
    "COUNT_ATTACKERS",
    "Attack",
    "Attacker",
    "CountOutputs",
    "Knowledge",
    "Outputs",
    "SymbolOutputs",
    "attack",
    "furthest_learner",
    "known_every",
    "mean_transitions",
    "odds_change",
    "release_counts",
    "release_symbols",
    "success_bound",
]
