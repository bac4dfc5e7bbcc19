"""The ledger's money: per-tick losses as whole numbers of pico-nats, always rounded to the safe side.

Sums of whole numbers are exact, so ten thousand windows that each charge exactly the allowance all pass, and the one
that overlaps another does not.
"""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["PER_NAT", "nats", "units_above", "units_below"]

PER_NAT = 10**12
_MOST_NATS = 10**6  # far above what any table can lose, and far within SQLite's 64-bit integers


def units_above(loss: float | Fraction) -> int:
    """A loss in nats as a charge: rounded up.

    Raises:
        ValueError: the loss is negative, or not finite.
    """
    return math.ceil(_checked(loss) * PER_NAT)


def units_below(loss: float | Fraction) -> int:
    """A loss in nats as an allowance: rounded down.

    Raises:
        ValueError: the loss is negative, or not finite.
    """
    return math.floor(_checked(loss) * PER_NAT)


def nats(units: int) -> float:
    """A charge in nats, for people and for messages."""
    return units / PER_NAT


def _checked(loss: float | Fraction) -> Fraction:
    if not (math.isfinite(loss) and 0 <= loss <= _MOST_NATS):
        raise ValueError(f"{float(loss):g} is no loss in nats: it must be in 0..{_MOST_NATS}")
    return Fraction(loss)
