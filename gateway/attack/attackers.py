"""The attackers, by name. All have one signature: outputs and knowledge in, probabilities of every tick's state out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gateway.attack.chains import path, single, smoothing
from gateway.attack.knowledge import Knowledge
from gateway.attack.learning import learned, learned_path, regimes
from gateway.attack.levels import learned_levels
from gateway.attack.outputs import Outputs
from gateway.attack.supervised import folded, supervised
from gateway.chain.arrays import Floats

__all__ = ["ATTACKERS", "COUNT_ATTACKERS", "Attacker"]

Attacker: TypeAlias = Callable[[Outputs, Knowledge], Floats]
"""From n ticks of outputs and what else is known to (n, k) probabilities; the same input gives the same answer."""

ATTACKERS: dict[str, Attacker] = {
    "single symbol": single,
    "forward-backward": smoothing,
    "Viterbi": path,
    "learned chain": learned,
    "learned chain, Viterbi": learned_path,
    "2 learned regimes": regimes(2),
    "3 learned regimes": regimes(3),
    "supervised": folded(supervised, 5),
}
"""Those who read symbols."""

COUNT_ATTACKERS: dict[str, Attacker] = {
    "single window": single,
    "forward-backward": smoothing,
    "learned levels": learned_levels,
    "supervised": folded(supervised, 5),
}
"""Those who read counts of windows."""
