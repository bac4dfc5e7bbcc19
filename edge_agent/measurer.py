"""A state becomes a released point: by the table that is in force at its tick, else by the policy's fallback.

Which table that is depends on the tick and on what has arrived, never on the state. Tables that arrive are checked
against the policy before they may be drawn from; a tick without a valid one uses the fallback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from edge_agent.randomiser import Mechanism
from fugu.contract.errors import FuguError
from fugu.contract.measure_frames import Point, Released
from fugu.contract.measure_table import MOST_HELD, TimedTable
from fugu.contract.measurement import ConstraintSets, Measurement, check_noise
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.core.noise import uniform_below

__all__ = ["PointSource", "public_row"]


MAX_TABLE_BYTES = 1 << 19


@dataclass(frozen=True, slots=True)
class PointSource:
    """Tables that a measured stream draws from: its policy's tables, verified, the fallback first."""

    version: int
    measurement: Measurement
    tables: tuple[TimedTable, ...]
    bits = 0  # points have no symbols

    @classmethod
    def of(cls, policy: dict[str, Any]) -> PointSource:
        """Take what the agent needs from a verified policy's JSON form."""
        tables = (policy["fallback"], *policy["tables"])
        return cls(policy["version"], Measurement.of(policy), tuple(TimedTable.of_text(text) for text in tables))

    @property
    def cycle(self) -> int:
        """Ticks after which the steps that are possible repeat."""
        return self.measurement.cycle

    def begin(self, entropy: Callable[[memoryview], None]) -> Mechanism:
        """Draw points."""
        measurer = Measurer(self, entropy)
        return Mechanism(lambda tick, state, shift: measurer.draw(tick, state, shift).packed, measurer.offer)


class _Held(NamedTuple):
    """A table that may be drawn from; for a staircase with the centre of each state.

    Centres are looked up when a table comes, not when a point is drawn. Finding the surrogate of an unlikely state
    takes longer than for a likely one, and the time of a draw must not tell.
    """

    table: TimedTable
    centres: tuple[Point, ...]


class Measurer:
    """Draws the released points of one stream."""

    def __init__(self, plan: PointSource, entropy: Callable[[memoryview], None]) -> None:
        self._plan = plan
        self._below = uniform_below(entropy)
        self._reach = ConstraintSets(plan.measurement)
        self._tables = tuple(self._held(table) for table in plan.tables)
        self._fallback = self._tables[0]
        self._sent: dict[int, _Held] = {}

    def draw(self, tick: int, state: int | None, shift: int = 0) -> Released:
        """The point to release for a tick; `shift` is how far numbers are ahead. See fugu/core/noise.py."""
        table, centres = self._in_force(tick, shift)
        if state is None:
            state = public_row(self._below(SCALE), len(self._plan.measurement.coordinates))
        noise = table.noise
        if isinstance(noise, NoiseTable):
            return Released(table.number, noise.points[noise.draw(state, self._below(SCALE))])
        return Released(table.number, noise.draw(centres[state], self._below))

    def _held(self, table: TimedTable) -> _Held:
        noise = table.noise
        return _Held(table, () if isinstance(noise, NoiseTable) else self._plan.measurement.centres(noise.likely))

    def _in_force(self, tick: int, shift: int) -> _Held:
        """The newest table for a tick; the fallback if there is none, or if only one state is possible.

        Tables are for what is possible at the tick's number. Where that is not what is possible at its time, because
        the clock was set, only the fallback protects all that is.
        """
        constraint = self._reach.at(tick)
        if constraint & (constraint - 1) == 0 or self._reach.at(tick - shift) != constraint:
            return self._fallback
        candidate_tables = (*reversed(self._sent.values()), *reversed(self._tables))
        return next((table for table in candidate_tables if table.table.covers(tick, constraint)), self._fallback)

    def offer(self, payload: bytes, next_tick: int) -> None:
        """Take a table that has arrived, to be used from `next_tick` on.

        Raises:
            FrameError: it is no table.
            FuguError: it is stale, of another policy, for states that are never the possible ones, or says
                something else than before.
            GuaranteeError: it does not keep the policy's promise.
        """
        if len(payload) > MAX_TABLE_BYTES:
            raise FuguError(f"a table of {len(payload)} bytes")
        table = TimedTable.decode(payload)
        if table.policy_version != self._plan.version:
            raise FuguError(f"table {table.number} is for policy version {table.policy_version}")
        if table.number < len(self._plan.tables):
            raise FuguError(f"number {table.number} is that of a table of the policy")
        if table.until <= next_tick:
            raise FuguError(f"table {table.number} is stale: it ended at tick {table.until}")
        if table.constraint and table.constraint not in self._reach.all():
            raise FuguError(f"table {table.number} is for a set of states that is never the possible one")
        if (table_before := self._sent.get(table.number)) is None:
            check_noise(self._plan.measurement, table.noise, table.constraint)
            new_table = self._held(table)
        elif (table_before.table.constraint, table_before.table.noise) != (table.constraint, table.noise):
            raise FuguError(f"table {table.number} has come before, with other content")
        else:
            new_table = table_before._replace(table=table)
        other_tables = [held_table for held_table in self._sent.values() if held_table.table.number != table.number]
        live_tables = [held_table for held_table in (*other_tables, new_table) if held_table.table.until > next_tick]
        self._sent = {held_table.table.number: held_table for held_table in live_tables[-MOST_HELD:]}


def public_row(random_word: int, states: int) -> int:
    """The row, 0..k-1, that a word uniform in 0..2^32-1 takes."""
    return random_word * states // SCALE
