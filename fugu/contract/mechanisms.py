"""Mechanisms by name: by which rule the noise of counts keeps a promise about correlated readings.

"chain" is the chain accountant; "mqm-exact" and "mqm-approx" are Markov quilts. With these the losses of any number of
counts add up tick by tick. The noise of "wasserstein" and "group" covers one release of one window, ever. Source:
docs/proofs/published-mechanisms.md, "The published mechanisms".
"""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["ADVERSARIES", "ALONE", "Composing", "Mechanism", "covers"]

Composing = Literal["chain", "mqm-exact", "mqm-approx"]
Mechanism = Literal["chain", "mqm-exact", "mqm-approx", "wasserstein", "group"]
ADVERSARIES = ("ignorant", "informed", "universal")
"""Whom a promise holds against, as in `fugu.contract.guarantee`."""
ALONE: tuple[Mechanism, ...] = tuple(name for name in get_args(Mechanism) if name not in get_args(Composing))
"""Mechanisms that do not compose: their release is the only one that an audience ever gets of a stream."""
_AGAINST_ALL = ("chain", "group")


def covers(mechanism: Mechanism, adversary: str) -> bool:
    """Whether a mechanism has a bound against an adversary: one who knows a state far away breaks quilts."""
    return mechanism in _AGAINST_ALL or adversary == "ignorant"
