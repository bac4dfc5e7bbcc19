"""A tick without a usable reading: what it releases is drawn from a fixed public law, without any state.

One uniform 32-bit word takes a row of the table that is in force, every row equally likely up to the rounding of 2^32
words to k rows; what is released is then drawn from that row as for any other state. That is a convex combination of
the rows with exactly known weights, the same whatever the state is: such a tick has the loss 0, to be precise if which
ticks are missing does not depend on the readings (docs/privacy.md, "Missing readings").
"""

from __future__ import annotations

from itertools import pairwise

from contract.discrete_laplace import SCALE

__all__ = ["public_row", "public_weights", "share_bias"]


def public_row(word: int, states: int) -> int:
    """The row that a word takes.

    Args:
        word: uniform in 0..2^32-1.
        states: k, the number of rows.

    Returns:
        A row, 0..k-1.
    """
    return word * states // SCALE


def public_weights(states: int) -> tuple[int, ...]:
    """How many of the 2^32 words take each row, for k rows; they sum to 2^32 and differ by at most 1."""
    return tuple(high - low for low, high in pairwise([-(-row * SCALE // states) for row in range(states + 1)]))


def share_bias(missing_share: float, states: int) -> float:
    """The most by which a state's share, estimated from symbols, is off because of ticks without a state.

    With m of the ticks missing, a share p among the others shows as (1 - m) p + m / k, for k states, up to 2^-32.
    """
    return missing_share * (1.0 - 1.0 / states)
