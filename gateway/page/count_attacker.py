"""What an attacker makes of one noisy count of a window: the average of `fugu.attack` over the window's ticks.

A count tells how many of the window's ticks were in some states, so all that is needed of a chain is the distribution
of that number, computed once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from operator import mul
from typing import NamedTuple

from fugu.contract.descriptions import DescribedWindow, Description
from gateway.page.attacker import AttackerError, Chain, chains_of

__all__ = ["ONE_WINDOW", "CountAttack", "counted_window"]

ONE_WINDOW = "single window"
"""The attacker who takes ticks for independent, as `fugu.attack` calls it."""
_MOST_WORK = 5_000_000
"""Numbers that are computed for a window's distributions: a second or two."""
_MOST_KNOWN = 1000


class Shares(NamedTuple):
    """What a count says of how many of a window's ticks were in the counted states.

    Attributes:
        low, high: expected shares, least and greatest over the chains that were believed.
        low_alone, high_alone: for attackers who take ticks for independent.
    """

    low: float
    high: float
    low_alone: float
    high_alone: float


def counted_window(told: Description) -> tuple[DescribedWindow, tuple[int, ...]]:
    """The first window of a stream with one count, and the states that it counts; of two states also a histogram.

    Raises:
        AttackerError: there is none.
    """
    for window in told.windows:
        if window.states == "histogram":
            if len(told.states) == 2:
                return window, (1,)
            continue
        group = tuple(told.states.index(state) for state in window.states if state in told.states)
        if 0 < len(group) < len(told.states):
            return window, group
    raise AttackerError("No attacker of this page reads histograms of several states: fugu check attack --policy does.")


class CountAttack:
    """Attackers who each believe one chain, and read one window at a time.

    Args:
        told: the stream.

    Attributes:
        window: that they read.
        counted: the states that it counts, in words; `others` are those that it does not.
        chains: how many are believed.
        priors: for each of them the probability of the counted states.

    Raises:
        AttackerError: none of them can read the stream's counts.
    """

    def __init__(self, told: Description) -> None:
        self.window, group = counted_window(told)
        self._scale = float(Fraction(self.window.scale))
        found = chains_of(told)
        length = self.window.length
        if len(found) * length**2 * len(found[0].prior) > 2 * _MOST_WORK:
            raise AttackerError(f"Windows of {length} ticks are too long for the attackers of this page.")
        self.counted = " or ".join(told.states[x] for x in group)
        left = [state for x, state in enumerate(told.states) if x not in group]
        self.others = left[0] if len(left) == 1 else "another state"
        self._known: dict[tuple[int, ...], Shares] = {}
        self.chains = len(found)
        self.priors = [sum(p for p, x in zip(one.prior, one.shows, strict=True) if x in group) for one in found]
        inside = [[x in group for x in one.shows] for one in found]
        independent = [one._replace(transition=(one.prior,) * len(one.prior)) for one in found]
        self._chained = [_distribution(*each, length) for each in zip(found, inside, strict=True)]
        self._alone = [_distribution(*each, length) for each in zip(independent, inside, strict=True)]

    def shares(self, counts: tuple[int, ...]) -> Shares:
        """What the counts of one window say, all of whose ticks the device was running.

        Args:
            counts: of the counted states; of a histogram that of state 0 and of state 1.
        """
        if counts not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[counts] = self._computed(counts)
        return self._known[counts]

    def _computed(self, counts: tuple[int, ...]) -> Shares:
        length = self.window.length
        away = [
            abs(counts[-1] - n) + (abs(counts[0] - length + n) if len(counts) == 2 else 0) for n in range(length + 1)
        ]
        least = min(away)
        likelihood = [math.exp((least - one) / self._scale) for one in away]
        chained = [_expected(one, likelihood) / length for one in self._chained]
        alone = [_expected(one, likelihood) / length for one in self._alone]
        return Shares(min(chained), max(chained), min(alone), max(alone))


def _distribution(chain: Chain, inside: Sequence[bool], length: int) -> list[float]:
    """Probabilities (length + 1,) of how many of so many ticks are in some states."""
    columns = list(zip(*chain.transition, strict=True))
    now = [[0.0, p] if counted else [p, 0.0] for p, counted in zip(chain.prior, inside, strict=True)]
    for _ in range(length - 1):
        rows = list(zip(*now, strict=True))
        moved = [[sum(map(mul, row, column)) for row in rows] for column in columns]
        now = [[0.0, *one] if counted else [*one, 0.0] for one, counted in zip(moved, inside, strict=True)]
    return [sum(row) for row in zip(*now, strict=True)]


def _expected(distribution: Sequence[float], likelihood: Sequence[float]) -> float:
    weights = [*map(mul, distribution, likelihood)]
    total = math.fsum(weights)
    if not total > 0.0:
        raise AttackerError("What has come is impossible under the chains of the class.")
    return math.fsum(n * weight for n, weight in enumerate(weights)) / total
