"""Attackers: what an adversary really achieves against sanitised outputs whose truth is known.

Numbers only; nothing here decides how much noise is added.
"""

from __future__ import annotations

from gateway.attack.attackers import ATTACKERS, COUNT_ATTACKERS, Attacker
from gateway.attack.ceiling import success_bound
from gateway.attack.evaluation import Attack, attack, mean_rates, odds_change
from gateway.attack.knowledge import Knowledge, known_every
from gateway.attack.outputs import CountOutputs, Outputs, SymbolOutputs, release_counts, release_symbols

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
    "known_every",
    "mean_rates",
    "odds_change",
    "release_counts",
    "release_symbols",
    "success_bound",
]
