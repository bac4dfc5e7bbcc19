"""Stretches of a stream: what is lost about several ticks in a row having been one sequence of states or another.

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
"""The stretches that are always told of: names and seconds; the last is a night."""
DAYS = 14
"""An hour that is the same on so many days is told of as well: a habit is more than any one evening."""

LARGEST_PROTECTED = 6.0
"""Above this epsilon odds can change more than 403 times: it is called not private, and nothing is protected."""

StretchTicks = Annotated[int, Field(ge=1, le=MAX_TICK)]
_COUNTS = (10, 100, 1000)


class Stretch(NamedTuple):
    """A stretch: its most ticks, and bounds on the log-likelihood ratio of two courses of their states, in nats.

    `epsilon` holds for the class of chains, whatever the states around were; `floor` for any class, if these were the
    same in both courses. `seconds` is its time if that is a round one; 0 is a single tick.
    """

    name: str
    ticks: int
    epsilon: float
    floor: float
    seconds: int | None = None

    @property
    def protected(self) -> bool:
        """True if epsilon says anything."""
        return self.epsilon <= LARGEST_PROTECTED


class Ceiling(Document):
    """The most that an owner lets a stream tell about any stretch of so many seconds; 0 is a single tick.

    It is held against what a policy loses about a stretch of that time, not against its epsilon, which may be of
    another. A number alone is of a tick.
    """

    epsilon: Annotated[float, Field(gt=0.0)]
    seconds: Annotated[int, Field(ge=0, le=366 * 86_400)] = 0

    @model_validator(mode="before")
    @classmethod
    def _of_a_tick(cls, value: object) -> object:
        return {"epsilon": value} if isinstance(value, int | float) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        """Let an editor accept a number alone, too."""
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, handler(core)]}

    @property
    def limits(self) -> tuple[tuple[int, int], ...]:
        """As `fugu.core.guarantee.check_ceilings` takes it; above 1000 nats it is none."""
        return () if self.epsilon > MOST_NATS else ((ratio_below(self.epsilon), self.seconds),)

    def ticks(self, period_us: int) -> int:
        """The most ticks of such a stretch."""
        return stretch_ticks(self.seconds, period_us)

    def __str__(self) -> str:
        """As it is said in a sentence."""
        return f"{self.epsilon:g}" + (f" for {self.seconds} seconds" if self.seconds else "")


@dataclass(frozen=True)
class StretchBound:
    """Loss of any number of ticks in a row, from a bound for some of them.

    Attributes:
        known: bound in nats on what `ticks` in a row lose: for every tick and pair of states, rate + past + future.
        ticks: at least 1.
        rate: bound on what a tick's own output tells of any two states, without the windows.
        windows: counted beside it.
        equal_leakages: whether past and future have the same bound for each pair, at every tick.
        hidden: whether states may differ that show the same, with no rate between them; there past and future of a
            single tick tell at most `known`.
        known_elsewhere: whether it holds against those who know states elsewhere, so that separate stretches add up.

    Source: docs/proofs/stretches.md.
    """

    known: float
    ticks: int
    rate: float
    windows: tuple[Counted, ...] = ()
    equal_leakages: bool = True
    hidden: bool = False
    known_elsewhere: bool = True

    @property
    def tick_rate(self) -> Fraction:
        """The largest rate of a tick: of its own output, and of all windows around it.

        The outputs of a stretch lose that for each of its ticks, with nothing taken off for gaps or borders. Nobody
        knows which window a tick is in: another grid begins with a policy, or a wall clock that is set.
        """
        return Fraction(self.rate) + total_rate(self.windows)

    def floor(self, ticks: int) -> float:
        """Loss of a stretch if all else is as it was, for any numbers of the class: its own outputs; rounded up.

        Two courses of states are compared that agree in as many ticks before and after as the process looks back.
        """
        return float_up(ticks * self.tick_rate)

    def epsilon(self, ticks: int) -> float:
        """Loss of a stretch of at least one tick between any two courses of its states, in nats, rounded up."""
        if not math.isfinite(self.known) or ticks == self.ticks:
            return self.known
        leakages = Fraction(self.known) - (0 if self.hidden and self.ticks == 1 else self.ticks * self.tick_rate)
        if self.ticks == 1 and not self.equal_leakages:
            leakages *= 2
        bound = float_up(ticks * self.tick_rate + leakages)
        return min(bound, self.known) if ticks < self.ticks else bound

    def longest(self, epsilon: float) -> int:
        """The most ticks of a stretch that loses at most epsilon; 0 if a single one loses more."""
        return bisect_right(range(1, MAX_TICK), epsilon, key=self.epsilon)

    def rows(self, period_us: int | None, epsilon: float | None = None) -> tuple[Stretch, ...]:
        """The stretches that are told of, the shortest first.

        Without a period, 10, 100 and 1000 ticks stand for the times. With `epsilon`, the longest that is within it.
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
        rows = [
            Stretch(name, ticks, self.epsilon(ticks), self.floor(ticks), seconds) for name, ticks, seconds in lengths
        ]
        if period_us is not None:
            hour_row = rows[1]
            is_additive = self.known_elsewhere and math.isfinite(hour_row.epsilon)
            repeated_epsilon = float_up(DAYS * Fraction(hour_row.epsilon)) if is_additive else math.inf
            floor = float_up(DAYS * Fraction(hour_row.floor))
            rows.append(Stretch(f"the same hour on {DAYS} days", DAYS * hour_row.ticks, repeated_epsilon, floor))
        tick_row = Stretch("a single tick", 1, self.epsilon(1), self.floor(1), 0)
        return (tick_row, *sorted(rows, key=lambda row: row.ticks))
