"""Strict reading of an agent's compiled policy; `fugu.contract.compiler` writes it, docs/firmware.md has the layout.

It is a board's form but for these: readings and thresholds are places of doubles (`fugu.contract.classify`), and there
are grids of places, profiles of the day, classes of joint chains, sums over homes, and points. Of a policy of points it
says when ticks are and how readings become states; its tables are in its JSON form only.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fugu.core import compiled
from fugu.core.policy import JOINT, NONE, Policy, PolicyError, Window
from fugu.core.shares import UNIT, rate_up

__all__ = ["BLOCKS", "CELLS", "AgentPolicy", "SharedSum", "read_discretiser", "read_policy"]

BLOCKS = 2
"""A query beside those of a board: a count for each block of the local day."""
CELLS = 3
"""A discretiser beside those of a board: a grid of places."""
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class SharedSum:
    """A sum over homes, as in `fugu.contract.groups.GroupDocument`; `places` and `blocks` as of a window."""

    name: str
    digest: bytes
    helper: bytes
    start: int
    length: int
    noise: int
    honest: int
    deadline: int
    places: bytes
    blocks: tuple[int, tuple[tuple[int, int], ...]] | None

    @property
    def rate(self) -> tuple[int, int]:
        """The loss that it adds to every tick, in nats, as a fraction; rounded up."""
        return rate_up(self.noise, self.honest), 1 << UNIT


class AgentPolicy(Policy):
    """A compiled policy with what only an agent does.

    Attributes:
        origin, step, cells: of a grid, as in `fugu.contract.discretisers.Cells`.
    """

    sums: tuple[SharedSum, ...] = ()
    points = False
    origin: tuple[float, ...]
    step: tuple[float, ...]
    cells: tuple[tuple[int, int], ...]


class _Reader(compiled.PolicyReader):
    form = b"FGA\x03"
    most_bytes = 1 << 20
    most_counts = 16_384
    most_states = 1024
    least_ratio = 0  # above e^1000, nothing is promised
    policy = AgentPolicy

    def unit(self, policy: Policy) -> None:
        """Read nothing: a double stands for itself."""

    def steps(self, policy: Policy) -> None:
        """Read nothing: steps follow from the range."""

    def other_discretiser(self, kind: int, of: AgentPolicy) -> None:
        if kind != CELLS:
            raise PolicyError("a discretiser that is not known")
        numbers = struct.unpack(">4d", self.take(32))
        if not all(abs(number) <= 180.0 for number in numbers) or min(numbers[2:]) <= 0.0:
            raise PolicyError("a grid that is not on the earth")
        of.origin, of.step = numbers[:2], numbers[2:]
        count = of.states - self.number(1, 0, 1)
        of.cells = tuple((self.signed(), self.signed()) for _ in range(count))

    def other_query(self, kind: int, of: Window) -> None:
        if kind != BLOCKS:
            raise PolicyError("a query that is not known")
        of.blocks = self._blocks()
        of.counts = _DAY // of.blocks[0]

    def other_chains(self, kind: int, of: AgentPolicy) -> None:
        if kind != JOINT:
            raise PolicyError("a class that is not known")
        of.members, of.steps, streams = [self.fraction()], self.number(1, 1, 2), []
        for _ in range(self.number(1, 1, 8)):
            name = self.take(self.number(1, 1, 129)).decode("ascii", "replace")
            streams.append((name, self.number(1, 2, 255), self.fraction()))
        of.shared, of.column = tuple(streams), self.number(1, 0, len(streams) - 1)

    def points(self, kind: int, of: AgentPolicy) -> None:
        of.points = True

    def sums(self, policy: AgentPolicy) -> int:  # type: ignore[override]  # its own class of policies
        policy.sums = tuple(self._sum(policy) for _ in range(self.number(1, 0, 16)))
        return len(policy.sums)

    def _sum(self, policy: AgentPolicy) -> SharedSum:
        name, digest, helper = self.name(32), self.take(32), self.take(32)
        start, length = self.number(8, 0, 1 << 53), self.number(4, 1, 1 << 31)
        noise, honest, deadline = self.number(4, 1, (1 << 32) - 1), self.number(2, 1, 10_000), self.number(4, 1, _DAY)
        places = self.take(policy.states)
        if set(places) != {0, NONE}:
            raise PolicyError("a sum that counts no state, or all")
        blocks = self._blocks() if self.number(1, 0, 1) else None
        return SharedSum(name, digest, helper, start, length, noise, honest, deadline, places, blocks)

    def _blocks(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        seconds = self.number(4, 900, _DAY)
        if _DAY % seconds:
            raise PolicyError("blocks that do not fill a day")
        offsets = tuple(struct.unpack(">qi", self.take(12)) for _ in range(self.number(1, 1, 64)))
        if any(low[0] >= high[0] for low, high in pairwise(offsets)):
            raise PolicyError("the transitions of a time zone do not increase")
        return seconds, offsets


def read_policy(data: bytes) -> AgentPolicy:
    """An agent's compiled policy; `fugu.core.policy.PolicyError` for whatever is not exactly what the format says."""
    policy: Any = compiled.read_policy(data, _Reader)
    return policy  # type: ignore[no-any-return]


def read_discretiser(data: bytes) -> AgentPolicy:
    """A policy of which only the discretiser is set, from those bytes of a compiled policy."""
    policy, read = AgentPolicy(), _Reader(data)
    compiled.read_discretiser(policy, read)
    if read.at != len(data):
        raise PolicyError("bytes follow the end")
    policy.discretiser = data
    return policy
