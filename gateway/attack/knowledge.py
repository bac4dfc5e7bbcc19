"""What an attacker knows or believes beside the outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gateway.chain import stationary_law
from gateway.chain.arrays import Floats, Ints

__all__ = ["Knowledge", "known_every"]


@dataclass(frozen=True)
class Knowledge:
    """What an attacker knows or believes beside the outputs.

    Attributes:
        transition: (k, k) the chain that is believed.
        segments: (n,) equal inside a stretch without gaps.
        known: (n,) true states that are known, -1 elsewhere.
        truth: (n,) true states of a time to learn from, -1 where they are held back; the same person's.
    """

    transition: Floats
    segments: Ints
    known: Ints | None = None
    truth: Ints | None = None

    @property
    def law(self) -> Floats:
        """The stationary law (k,) of the believed chain."""
        return stationary_law(self.transition)

    @property
    def lengths(self) -> Ints:
        """Ticks of each stretch without gaps."""
        edges = np.flatnonzero(np.diff(self.segments)) + 1
        return np.diff(np.concatenate([[0], edges, [self.segments.size]]))

    def learn_from(self, symbols: Ints, emission: Floats) -> tuple[Ints, Floats]:
        """Symbols and a table that also say the known states: state x is known by the symbol m + x.

        Every likelihood is halved, which changes no posterior, and so the rows of the table remain laws.
        """
        if self.known is None:
            return symbols, emission
        k, m = emission.shape
        table = np.hstack([emission, np.eye(k)]) / 2
        return np.where(self.known >= 0, m + self.known, symbols), table


def known_every(states: Ints, every: int) -> Ints:
    """True states at every so many ticks, -1 elsewhere; with 2, both neighbours of every other tick are known.

    Args:
        states: (n,) true states, -1 where there is none.
        every: at least 2.
    """
    return np.where(np.arange(states.size) % every == 0, states, -1)
