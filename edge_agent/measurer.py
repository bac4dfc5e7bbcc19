"""Draw the released point for a state, from the table that is in force at its tick, else from the policy's fallback.

Which table is in force depends on the tick and on the tables that have arrived, never on the state. A table that
arrives is checked against the policy before it is drawn from. A tick without a valid table uses the fallback.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from edge_agent.randomiser import Entropy, Mechanism
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
    """Verified tables of a policy that a measured stream draws from, the fallback first."""

    version: int
    measurement: Measurement
    tables: tuple[TimedTable, ...]
    bits = 0  # points have no symbols

    @classmethod
    def of(cls, policy: dict[str, Any]) -> PointSource:
        """Make the source from the JSON form of a verified policy."""
        tables = (policy["fallback"], *policy["tables"])
        return cls(policy["version"], Measurement.of(policy), tuple(TimedTable.of_text(text) for text in tables))

    @property
    def cycle(self) -> int:
        """Number of ticks after which the possible steps repeat."""
        return self.measurement.cycle

    def begin(self, entropy: Entropy) -> Mechanism:
        """Return a mechanism that draws points."""
        measurer = Measurer(self, entropy)
        return Mechanism(lambda tick, state, shift: measurer.draw(tick, state, shift).packed, measurer.offer)


class _Centred(NamedTuple):
    """A table that may be drawn from; for a staircase, with the centre of each state.

    Centres are looked up when a table comes, not when a point is drawn. To find the surrogate takes longer for an
    unlikely state than for a likely one, and the time of a draw must not tell the state.
    """

    table: TimedTable
    centres: tuple[Point, ...]


class Measurer:
    """Draws the released points of one stream."""

    def __init__(self, source: PointSource, entropy: Entropy) -> None:
        self._plan = source
        self._draw_below = uniform_below(entropy)
        self._constraints = ConstraintSets(source.measurement)
        self._tables = tuple(self._with_centres(table) for table in source.tables)
        self._fallback = self._tables[0]
        self._arrived: dict[int, _Centred] = {}

    def draw(self, tick: int, state: int | None, shift: int = 0) -> Released:
        """Draw the point to release for a tick and its state; without a state (None), a row is drawn instead.

        `shift` is how many ticks the numbers are ahead of the wall clock.
        """
        table, centres = self._table_at(tick, shift)
        if state is None:
            state = public_row(self._draw_below(SCALE), len(self._plan.measurement.coordinates))
        noise = table.noise
        if isinstance(noise, NoiseTable):
            return Released(table.number, noise.points[noise.draw(state, self._draw_below(SCALE))])
        return Released(table.number, noise.draw(centres[state], self._draw_below))

    def _with_centres(self, table: TimedTable) -> _Centred:
        noise = table.noise
        return _Centred(table, () if isinstance(noise, NoiseTable) else self._plan.measurement.centres(noise.likely))

    def _table_at(self, tick: int, shift: int) -> _Centred:
        """Return the newest table for a tick; the fallback if there is none, or if only one state is possible.

        A table is for the states that are possible at a tick's number. After a change of the clock, other states may be
        possible at the tick's time: then only the fallback protects all.
        """
        constraint = self._constraints.set_at(tick)
        if constraint & (constraint - 1) == 0 or self._constraints.set_at(tick - shift) != constraint:
            return self._fallback
        candidate_tables = (*reversed(self._arrived.values()), *reversed(self._tables))
        return next((table for table in candidate_tables if table.table.covers(tick, constraint)), self._fallback)

    def offer(self, payload: bytes, next_tick: int) -> None:
        """Check a table that has arrived, and use it from `next_tick` on.

        Raises:
            FrameError: it is no table.
            FuguError: it is too long, stale, of another policy, or for a set of states that is never the possible one.
                Or its number was used for another table.
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
        if table.constraint and table.constraint not in self._constraints.all_sets():
            raise FuguError(f"table {table.number} is for a set of states that is never the possible one")
        if (table_before := self._arrived.get(table.number)) is None:
            check_noise(self._plan.measurement, table.noise, table.constraint)
            new_table = self._with_centres(table)
        elif (table_before.table.constraint, table_before.table.noise) != (table.constraint, table.noise):
            raise FuguError(f"table {table.number} has come before, with other content")
        else:
            new_table = table_before._replace(table=table)
        other_tables = [old_table for old_table in self._arrived.values() if old_table.table.number != table.number]
        live_tables = [held_table for held_table in (*other_tables, new_table) if held_table.table.until > next_tick]
        self._arrived = {held_table.table.number: held_table for held_table in live_tables[-MOST_HELD:]}


def public_row(random_word: int, state_count: int) -> int:
    """Return the row, 0..k-1 for k states, that a word uniform in 0..2^32-1 selects."""
    return random_word * state_count // SCALE
