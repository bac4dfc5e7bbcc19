"""Stretches of a stream: the loss about which sequence of states several ticks in a row had.

Source: docs/proofs/stretches.md.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

from pydantic import Field, model_validator

from fugu.contract._document import Document
from fugu.contract.frames import MAX_TICK
from fugu.contract.losses import float_up, ratio_below
from fugu.contract.windows import Counted, total_rate
from fugu.core.guarantee import stretch_ticks
from fugu.core.leakage import MOST_NATS

__all__ = ["LARGEST_PROTECTED", "STRETCHES", "Ceiling", "Stretch", "StretchBound", "StretchTicks", "stretch_ticks"]

STRETCHES = (("10 minutes", 600), ("1 hour", 3600), ("8 hours", 28_800))
"""The names and seconds of the stretches that are always listed; the last is a night."""
DAYS = 14
"""The days of the listed stretch of an hour that is the same every day: a habit tells more than a single evening."""

LARGEST_PROTECTED = 6.0
"""A larger epsilon is called not private: odds can change more than 403 times, and nothing is protected."""

StretchTicks = Annotated[int, Field(ge=1, le=MAX_TICK)]
_COUNTS = (10, 100, 1000)


class Stretch(NamedTuple):
    """A stretch: its largest number of ticks, and bounds on the log-likelihood ratio of two courses of its states.

    Bounds are in nats. `epsilon` holds for the class of chains, whatever the states around the stretch were. `floor`
    holds for any class if these states are the same in both courses. `seconds` is the time of a stretch that is named
    by its time, 0 for a single tick.
    """

    name: str
    ticks: int
    epsilon: float
    floor: float
    seconds: int | None = None

    @property
    def protected(self) -> bool:
        """True if epsilon is small enough to protect anything."""
        return self.epsilon <= LARGEST_PROTECTED


class Ceiling(Document):
    """The most that an owner lets a stream tell about any stretch of a time; 0 seconds are a single tick.

    A policy's loss about a stretch of this time is compared with it, not its epsilon, which may be of another stretch.
    A number alone is a ceiling for a tick.
    """

    epsilon: Annotated[float, Field(gt=0.0)]
    seconds: Annotated[int, Field(ge=0, le=366 * 86_400)] = 0

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: object) -> object:
        return {"epsilon": value} if isinstance(value, int | float) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        """Let an editor accept a number alone, too."""
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, handler(core)]}

    @property
    def limits(self) -> tuple[tuple[int, int], ...]:
        """The ceiling as `fugu.core.guarantee.check_ceilings` takes it, or nothing above 1000 nats."""
        return () if self.epsilon > MOST_NATS else ((ratio_below(self.epsilon), self.seconds),)

    def ticks(self, period_us: int) -> int:
        """Return the most ticks of a stretch of the ceiling's time."""
        return stretch_ticks(self.seconds, period_us)

    def __str__(self) -> str:
        """Write the ceiling as in a sentence."""
        return f"{self.epsilon:g}" + (f" for {self.seconds} seconds" if self.seconds else "")


@dataclass(frozen=True)
class StretchBound:
    """A bound on the loss of any number of ticks in a row, from a bound for one number of them.

    Attributes:
        loss_bound: in nats, of `ticks` ticks in a row: for every tick and pair of states, rate + past + future.
        rate: bound on what a tick's own output tells of any two states, without the windows.
        equal_leakages: whether past and future have the same bound for each pair, at every tick.
        hidden: whether different states may show the same, at no rate: past and future then tell at most `loss_bound`.
        known_elsewhere: whether it holds against adversaries who know other states, so that separate stretches add up.

    Source: docs/proofs/stretches.md.
    """

    loss_bound: float
    ticks: int
    rate: float
    windows: tuple[Counted, ...] = ()
    equal_leakages: bool = True
    hidden: bool = False
    known_elsewhere: bool = True

    @property
    def tick_rate(self) -> Fraction:
        """The largest rate of a tick: of its own output and of all windows that hold it.

        The outputs of a stretch lose this much for each of its ticks, also at gaps and borders. The window of a tick is
        not known in advance: a new policy, or a wall clock that is set, begins another grid.
        """
        return Fraction(self.rate) + total_rate(self.windows)

    def floor(self, ticks: int) -> float:
        """Bound the loss of a stretch if all other states are the same, in any class: the rates of its own outputs.

        Two courses of states are compared that agree in as many ticks before and after as the process looks back.
        """
        return float_up(ticks * self.tick_rate)

    def epsilon(self, ticks: int) -> float:
        """Return the loss of a stretch of `ticks` >= 1 ticks between any two courses of its states, rounded up."""
        if not math.isfinite(self.loss_bound) or ticks == self.ticks:
            return self.loss_bound
        leakages = Fraction(self.loss_bound) - (0 if self.hidden and self.ticks == 1 else self.ticks * self.tick_rate)
        leakages = max(leakages, Fraction(0))  # below 0 the promise is false
        if self.ticks == 1 and not self.equal_leakages:
            leakages *= 2
        bound = float_up(ticks * self.tick_rate + leakages)
        return min(bound, self.loss_bound) if ticks < self.ticks else bound

    def longest(self, epsilon: float) -> int:
        """Return the most ticks of a stretch that loses at most epsilon, or 0 if a single tick loses more."""
        return bisect_right(range(1, MAX_TICK), epsilon, key=self.epsilon)

    def rows(self, period_us: int | None, epsilon: float | None = None) -> tuple[Stretch, ...]:
        """Return the stretches to list, the shortest first.

        Without a period they are of 10, 100 and 1000 ticks. With `epsilon`, the longest within it is there, too.
        """
        if period_us is None:
            lengths: list[tuple[str, int, int | None]] = [(f"{ticks} ticks", ticks, None) for ticks in _COUNTS]
        else:
            lengths = [(name, stretch_ticks(seconds, period_us), seconds) for name, seconds in STRETCHES]
        window_names = {window.length: f"a window '{window.name}'" for window in reversed(self.windows)}
        lengths += [(name, ticks, None) for ticks, name in sorted(window_names.items())]
        if self.ticks > 1:
            lengths.append(("a stretch that is promised", self.ticks, None))
        if epsilon is not None and (longest := self.longest(epsilon)) > 1:
            lengths.append((f"the longest within epsilon {epsilon:g}", longest, None))
        stretches = [
            Stretch(name, ticks, self.epsilon(ticks), self.floor(ticks), seconds) for name, ticks, seconds in lengths
        ]
        if period_us is not None:
            hour_row = stretches[1]
            is_additive = self.known_elsewhere and math.isfinite(hour_row.epsilon)
            repeated_epsilon = float_up(DAYS * Fraction(hour_row.epsilon)) if is_additive else math.inf
            floor = float_up(DAYS * Fraction(hour_row.floor))
            stretches.append(Stretch(f"the same hour on {DAYS} days", DAYS * hour_row.ticks, repeated_epsilon, floor))
        tick_row = Stretch("a single tick", 1, self.epsilon(1), self.floor(1), 0)
        return (tick_row, *sorted(stretches, key=lambda row: row.ticks))
