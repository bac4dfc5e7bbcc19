"""Losses as people and planners read them: the integers of `fugu.core.leakage` in nats, rounded up."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple, Self

from fugu.contract.rounding import log_up
from fugu.core.leakage import ONE, losses

__all__ = ["Adversary", "Loss", "derived_losses"]

Adversary = Literal["ignorant", "informed", "universal"]
"""Knowledge of the adversary: one chain of the class; also any set of true states; any side information about states.

No adversary is one who has yet to learn which chain of the class it is.
"""
derived_losses = lru_cache(maxsize=256)(losses)
"""Policies of a fleet have few classes and tables."""


class Loss(NamedTuple):
    """The epsilon that a mechanism really has, in nats, rounded up, by the theorem or bound that `bound` names.

    `epsilon` is the larger direction, `epsilon_01` that of "state 0 rather than 1"; beyond two states all three are
    equal.
    """

    epsilon: float
    epsilon_01: float
    epsilon_10: float
    adversary: Adversary
    bound: str

    @classmethod
    def of(cls, ratios: tuple[int, int], adversary: Adversary, bound: str) -> Self:
        """The loss of likelihood ratios over 2^128."""
        both = [log_up(Fraction(ratio, ONE)) for ratio in ratios]
        return cls(max(both), both[0], both[1], adversary, bound)
