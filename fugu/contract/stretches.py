"""Stretches of a stream: what is lost about several ticks in a row having been one sequence of states or another.

Source: docs/proofs/chain-accountant.md, "Stretches of time".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from fugu.contract.frames import LATE_US
from fugu.contract.rounding import float_up
from fugu.contract.windows import Window

__all__ = ["STRETCHES", "Stretch", "stretch_epsilon", "stretches"]

STRETCHES = (("1 minute", 60), ("1 hour", 3600), ("8 hours", 28_800))
"""The stretches that are always told of: names and seconds; the last is a night."""

LARGEST_PROTECTED = 10.0
"""Above this epsilon a likelihood can change by a factor of 22,000: nothing is protected."""

_COUNTS = (10, 100, 1000)
_MICROSECONDS = 1_000_000


class Stretch(NamedTuple):
    """A stretch: its most ticks, and a bound on the log-likelihood ratio of two sequences of their states, in nats."""

    name: str
    ticks: int
    epsilon: float

    @property
    def protected(self) -> bool:
        """True if epsilon says anything."""
        return self.epsilon <= LARGEST_PROTECTED


def stretch_ticks(seconds: int, period_us: int) -> int:
    """The most ticks that can fall into a time.

    A tick may be late, and the next ones then come sooner: by an eighth of a period each, until nothing is made up for.
    Source: docs/proofs/states-and-ticks.md, "Ticks that skip numbers".
    """
    time = seconds * _MICROSECONDS
    late = -(-max(period_us, LATE_US) // period_us)
    return min(-(-time // period_us) + late, -(-8 * time // (7 * period_us)))


def covered(window: Window, ticks: int) -> int:
    """The most that a stretch counts in the windows of a definition: the sum over its ticks of the windows around each.

    A tick is in floor(length / stride) windows or in one more; length mod stride ticks in a row have one more, and any
    `stride` ticks in a row together have `length`.
    """
    whole, rest = divmod(ticks, window.stride)
    each, more = divmod(window.length, window.stride)
    return whole * window.length + rest * each + min(rest, more)


def moved(window: Window, ticks: int) -> int:
    """The most that a stretch moves the counts of a definition, added up.

    Of `length` ticks around a stretch, and the stretch itself, at most so many begin a window that has some of it.
    """
    return window.query.moved(covered(window, ticks), -(-(ticks + window.length - 1) // window.stride))


def stretch_epsilon(
    epsilon: float,
    ticks: int,
    rate: float,
    windows: Iterable[Window] = (),
    *,
    equal_leakages: bool,
    hidden: bool = False,
) -> float:
    """Bound the loss in nats, rounded up, between any two sequences of states of a stretch of n >= 1 ticks.

    Args:
        epsilon: bound on rate + past + future for every tick and pair of states, with what the windows add to the rate;
            what is returned for one tick.
        rate: bound on what a tick's own output tells of any two states, without the windows.
        equal_leakages: whether past and future have the same bound for each pair, at every tick.
        hidden: whether states may differ that show the same, with no rate between them; there past and future tell at
            most epsilon.

    Source: docs/proofs/chain-accountant.md, "Stretches of time".
    """
    if not math.isfinite(epsilon) or ticks == 1:
        return epsilon
    counts = tuple(windows)

    def own(length: int) -> Fraction:
        added = (moved(window, length) / Fraction(window.scale) for window in counts)
        return length * Fraction(rate) + sum(added, Fraction(0))

    leakages = Fraction(epsilon) - (0 if hidden else own(1))
    return float_up(own(ticks) + (leakages if equal_leakages else 2 * leakages))


def stretches(
    epsilon: float,
    rate: float,
    period_us: int | None,
    windows: Iterable[Window] = (),
    *,
    equal_leakages: bool,
    hidden: bool = False,
) -> tuple[Stretch, ...]:
    """What is lost about a single tick, a minute, an hour and a night; arguments are as for `stretch_epsilon`.

    Without a `period_us`, 10, 100 and 1000 ticks stand for the times.
    """
    counts = tuple(windows)
    lengths = [(f"{ticks} ticks", ticks) for ticks in _COUNTS]
    if period_us is not None:
        lengths = [(name, stretch_ticks(seconds, period_us)) for name, seconds in STRETCHES]
    return tuple(
        Stretch(
            name, ticks, stretch_epsilon(epsilon, ticks, rate, counts, equal_leakages=equal_leakages, hidden=hidden)
        )
        for name, ticks in [("a single tick", 1), *lengths]
    )
