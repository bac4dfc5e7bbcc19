"""A state becomes a released point: by the table that is in force at its tick, else by the policy's fallback.

Which table that is depends on the tick and on what has arrived, never on the state. Tables that arrive are checked
against the policy before they may be drawn from; a tick without a valid one uses the fallback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from contract.discrete_laplace import uniform_below
from contract.errors import FuguError
from contract.measure_check import check_noise
from contract.measure_frames import Released
from contract.measure_table import MeasureTable, WeightNoise, decode_table, decoded_table
from contract.measurement import Measurement, Reach

__all__ = ["MeasurePlan", "Measurer", "TableRefusedError"]

MAX_TABLE_BYTES = 1 << 19
MOST_HELD = 32


class TableRefusedError(FuguError):
    """A table that has arrived may not be used."""

    reason = "table"


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """What a measured stream draws from.

    Attributes:
        version: of the policy.
        measurement: what is promised.
        tables: of the policy, verified; the fallback first.
    """

    version: int
    measurement: Measurement
    tables: tuple[MeasureTable, ...]

    @classmethod
    def of(cls, policy: dict[str, Any]) -> MeasurePlan:
        """Take what the agent needs from a verified policy's JSON form."""
        tables = (policy["fallback"], *policy["tables"])
        return cls(policy["version"], Measurement.of(policy), tuple(decoded_table(text) for text in tables))


class Measurer:
    """Draws the released points of one stream.

    Args:
        plan: from a verified policy.
        entropy: fills a buffer with the operating system's randomness.
    """

    def __init__(self, plan: MeasurePlan, entropy: Callable[[memoryview], None]) -> None:
        self._plan = plan
        self._below = uniform_below(entropy)
        self._reach = Reach(plan.measurement)
        self._fallback = plan.tables[0]
        self._sent: dict[int, MeasureTable] = {}

    def draw(self, tick: int, state: int) -> Released:
        """The point to release for the state of a tick."""
        table = self._in_force(tick)
        noise = table.noise
        if isinstance(noise, WeightNoise):
            return Released(table.number, noise.draw(state, self._below))
        measurement = self._plan.measurement
        kept = bool(noise.kept >> state & 1)
        centre = measurement.coordinates[state if kept else measurement.stand_in(state, noise.kept_states)]
        return Released(table.number, noise.draw(centre, self._below))

    def _in_force(self, tick: int) -> MeasureTable:
        """The table for a tick that came last; the fallback if there is none, or if only one state is possible."""
        constraint = self._reach.at(tick)
        if constraint & (constraint - 1) == 0:
            return self._fallback
        held = (*reversed(self._sent.values()), *reversed(self._plan.tables))
        return next((table for table in held if table.covers(tick, constraint)), self._fallback)

    def offer(self, payload: bytes, next_tick: int) -> None:
        """Take a table that has arrived.

        Args:
            payload: as it came.
            next_tick: the first tick that it could still be used for.

        Raises:
            FrameError: it is no table.
            TableRefusedError: it is stale, of another policy, or says something else than before.
            GuaranteeError: it does not keep the policy's promise.
        """
        if len(payload) > MAX_TABLE_BYTES:
            raise TableRefusedError(f"a table of {len(payload)} bytes")
        table = decode_table(payload)
        if table.policy_version != self._plan.version:
            raise TableRefusedError(f"table {table.number} is for policy version {table.policy_version}")
        if table.number < len(self._plan.tables):
            raise TableRefusedError(f"number {table.number} is that of a table of the policy")
        if table.until <= next_tick:
            raise TableRefusedError(f"table {table.number} is stale: it ended at tick {table.until}")
        before = self._sent.get(table.number)
        if before is not None and (before.constraint, before.noise) != (table.constraint, table.noise):
            raise TableRefusedError(f"table {table.number} has come before, with other content")
        if before is None:
            check_noise(self._plan.measurement, table.noise, table.constraint)
        self._sent.pop(table.number, None)
        self._sent[table.number] = table
        useful = [(number, held) for number, held in self._sent.items() if held.until > next_tick]
        self._sent = dict(useful[-MOST_HELD:])
