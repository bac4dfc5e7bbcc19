"""Strict reading of an agent's compiled policy; `fugu.contract.compiler` writes it, docs/firmware.md has the layout.

The form is a board's, with these differences. Readings and thresholds are places of doubles
(`fugu.contract.classify`). There are grids of places, profiles of the day, classes of joint chains, sums over homes,
and points. A policy of points has only its times and its discretiser here; its tables are in its JSON form.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

from fugu.contract.calendar import DAY, DayBlocks
from fugu.core import compiled
from fugu.core.policy import JOINT, NONE, Policy, PolicyError, Window
from fugu.core.shares import UNIT, rate_up

__all__ = [
    "BLOCKS",
    "CELLS",
    "AgentPolicy",
    "AgentReader",
    "AgentWindow",
    "SharedSum",
    "read_discretiser",
    "read_policy",
]

BLOCKS = 2
"""The query that boards lack: a count for each block of the local day."""
CELLS = 3
"""The discretiser that boards lack: a grid of places."""


class AgentWindow(Window):
    """A window that may have a count for each block of the local day; ticks are `shift` ahead of the wall clock."""

    blocks: DayBlocks | None = None
    shift = 0
    epoch_us: int
    period_us: int

    def place(self, tick: int, state: int | None) -> int | None:
        """Return the index of the number that a tick counts towards, or None if the tick has no state.

        Where the state is not counted, it is an index that no number has.
        """
        count_index = super().place(tick, state)
        if self.blocks is None:
            return count_index
        wall_tick = tick - self.shift
        block = self.blocks.index_at(self.epoch_us + wall_tick * self.period_us)  # the same is done for every state
        return count_index if count_index is None or count_index == NONE else block

    def is_recorded(self, index: int, tick: int) -> bool:
        """True if one of the first three quarters of a window ends at a tick: its counts are then stored."""
        ticks_done = tick - self.first(index) + 1
        return ticks_done < self.length and 4 * ticks_done // self.length > 4 * (ticks_done - 1) // self.length


class SharedSum(AgentWindow):
    """A sum over homes, as in `fugu.contract.groups.GroupDocument`: what this home counts, and its share of the noise.

    Window n has the wall ticks start + n * length .. + length - 1. `places` has for each state 0 if it counts, else
    `NONE`. Each count has a share of its own.

    Attributes:
        digest: of the group's document.
        helper: the public key of the group's helper.
        noise, honest: the parameters of a share.
        deadline: seconds after the end of a window within which its report is useful.
    """

    digest: bytes
    helper: bytes
    noise: int
    honest: int
    deadline: int

    @property
    def rate(self) -> tuple[int, int]:
        """The loss that the sum adds to every tick, in nats, as a fraction, rounded up."""
        return rate_up(self.noise, self.honest), 1 << UNIT

    @property
    def deadline_ticks(self) -> int:
        """The deadline in ticks, rounded up."""
        return -(-self.deadline * 1_000_000 // self.period_us)

    def window_at(self, wall_tick: int) -> int:
        """Return the number of the window of a wall tick, which is below 0 before the first window."""
        return (wall_tick - self.start) // self.length

    def count_index_at(self, wall_tick: int, state: int | None) -> tuple[int, int | None]:
        """Return the index of a wall tick's count, and again the index if the state counts, else None."""
        block = 0 if self.blocks is None else self.blocks.index_at(self.epoch_us + wall_tick * self.period_us)
        return block, None if state is None or self.places[state] == NONE else block


class AgentPolicy(Policy):
    """A compiled policy with what only an agent does.

    Attributes:
        origin, step, cells: the grid, as in `fugu.contract.discretisers.Cells`.
    """

    windows: list[AgentWindow]  # type: ignore[assignment]  # its own class of windows
    sums: tuple[SharedSum, ...] = ()
    points = False
    origin: tuple[float, ...]
    step: tuple[float, ...]
    cells: tuple[tuple[int, int], ...]


class AgentReader(compiled.PolicyReader):
    """Reads the policies of agents, whose readings are doubles."""

    form = b"FGA\x03"
    most_bytes = 1 << 20
    most_counts = 16_384
    most_states = 1024
    least_ratio = 0  # above e^1000, nothing is promised
    policy = AgentPolicy
    window = AgentWindow

    def unit(self, policy: Policy) -> None:
        """Read no unit: a double stands for itself."""

    def steps(self, policy: Policy) -> None:
        """Read no steps: they follow from the range."""

    def other_discretiser(self, kind: int, policy: AgentPolicy) -> None:
        """Read the cells of a grid of places."""
        if kind != CELLS:
            raise PolicyError("a discretiser that is not known")
        grid_numbers = struct.unpack(">4d", self.take(32))
        if not all(abs(number) <= 180.0 for number in grid_numbers) or min(grid_numbers[2:]) <= 0.0:
            raise PolicyError("a grid that is not on the earth")
        policy.origin, policy.step = grid_numbers[:2], grid_numbers[2:]
        cell_count = policy.states - self.number(1, 0, 1)
        policy.cells = tuple((self.signed(), self.signed()) for _ in range(cell_count))

    def other_query(self, kind: int, window: AgentWindow, policy: AgentPolicy) -> None:
        """Read the blocks of the local day."""
        if kind != BLOCKS:
            raise PolicyError("a query that is not known")
        window.blocks, window.epoch_us, window.period_us = self._blocks(), policy.epoch_us, policy.period_us
        window.counts = DAY // window.blocks.seconds

    def other_chains(self, kind: int, policy: AgentPolicy) -> None:
        """Read a class of joint chains."""
        if kind != JOINT:
            raise PolicyError("a class that is not known")
        policy.members, policy.steps, streams = [self.fraction()], self.number(1, 1, 2), []
        for _ in range(self.number(1, 1, 8)):
            name = self.take(self.number(1, 1, 129)).decode("ascii", "replace")
            streams.append((name, self.number(1, 2, 255), self.fraction()))
        policy.shared, policy.column = tuple(streams), self.number(1, 0, len(streams) - 1)

    def points(self, kind: int, policy: AgentPolicy) -> None:
        """Note that the policy is one of points."""
        policy.points = True

    def sums(self, policy: AgentPolicy) -> int:  # type: ignore[override]  # its own class of policies
        """Read the sums over homes. Return their number."""
        policy.sums = tuple(self._sum(policy) for _ in range(self.number(1, 0, 16)))
        return len(policy.sums)

    def _sum(self, policy: AgentPolicy) -> SharedSum:
        window = SharedSum()
        window.name, window.digest, window.helper = self.name(32), self.take(32), self.take(32)
        window.start, window.length = self.number(8, 0, 1 << 53), self.number(4, 1, 1 << 31)
        window.noise, window.honest = self.number(4, 1, (1 << 32) - 1), self.number(2, 1, 10_000)
        window.deadline, window.places = self.number(4, 1, DAY), self.take(policy.states)
        if set(window.places) != {0, NONE}:
            raise PolicyError("a sum that counts no state, or all")
        window.stride, window.counts = window.length, 1
        window.epoch_us, window.period_us = policy.epoch_us, policy.period_us
        if self.number(1, 0, 1):
            self.other_query(BLOCKS, window, policy)
        return window

    def _blocks(self) -> DayBlocks:
        seconds = self.number(4, 900, DAY)
        if DAY % seconds:
            raise PolicyError("blocks that do not fill a day")
        offsets = tuple(struct.unpack(">qi", self.take(12)) for _ in range(self.number(1, 1, 64)))
        if any(offset[0] >= next_offset[0] for offset, next_offset in pairwise(offsets)):
            raise PolicyError("the transitions of a time zone do not increase")
        return DayBlocks("", seconds, offsets)


def read_policy(compiled_bytes: bytes) -> AgentPolicy:
    """Read an agent's compiled policy; `fugu.core.policy.PolicyError` if bytes are not exactly of the format."""
    policy: Any = compiled.read_policy(compiled_bytes, AgentReader)
    return policy  # type: ignore[no-any-return]


def read_discretiser(compiled_bytes: bytes) -> AgentPolicy:
    """Read the bytes of a discretiser into a policy of which only the discretiser is set."""
    policy, reader = AgentPolicy(), AgentReader(compiled_bytes)
    compiled.read_discretiser(policy, reader)
    if reader.at != len(compiled_bytes):
        raise PolicyError("bytes follow the end")
    policy.discretiser = compiled_bytes
    return policy
