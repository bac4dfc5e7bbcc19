"""Paths of chains, for devices whose readings are known."""

from __future__ import annotations

import random
from collections.abc import Sequence

from fugu.chains.model import stationary_distribution


def simulate_states(transition: Sequence[Sequence[float]], length: int, generator: random.Random) -> list[int]:
    """A path of an irreducible chain (k rows of k probabilities) that starts from its stationary distribution."""
    states = range(len(transition))
    path = generator.choices(states, stationary_distribution(transition))
    for _ in range(length - 1):
        path.append(generator.choices(states, transition[path[-1]])[0])
    return path
