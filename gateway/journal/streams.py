"""The streams of symbols that have been heard of: a slot for each, and what their newest policy lets pass.

A stream gets a slot with its first valid frame. Until its policy changes, all later frames are checked by arrays. A
frame whose last tick lies further ahead of the gateway's clock than clocks may differ is refused. Its device sends it
again.
"""

from __future__ import annotations

import numpy as np

from fugu.chains.arrays import Bools, Ints
from fugu.chains.kernel import kernel
from fugu.contract.frames import SYMBOL_BITS
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Clock, Policy
from gateway.store.symbols import Bytes, Columns

__all__ = ["Streams", "grown", "newest_tick", "share_due_us", "tick_at"]


TOLERANCE_US = 60_000_000
"""By how much a device's clock may be ahead of the gateway's; by two periods, if that is more."""


def tick_at(clock: Clock, now_us: int) -> int:
    """The newest tick that has come at a Unix time, negative before the first."""
    return (now_us - clock.epoch_us) // clock.period_us


def newest_tick(clock: Clock, now_us: int) -> int:
    """The newest tick that a device whose clock is right, or not far wrong, can have drawn."""
    return tick_at(clock, now_us + max(TOLERANCE_US, 2 * clock.period_us))


def share_due_us(policy: AnyPolicy, now_us: int) -> int:
    """Wall time at which a device that runs has shared something: the next end of a window, or a full frame."""
    clock, tick, ends = policy.clock, max(tick_at(policy.clock, now_us) + 1, 0), []
    if isinstance(policy, Policy):
        for one in policy.windows:
            ends.append(one.start + one.length - 1)  # the first window's; the others follow by the stride
            ends[-1] += max(-((ends[-1] - tick) // one.stride), 0) * one.stride
    if not isinstance(policy, Policy) or policy.table is not None:
        ends.append(tick + policy.frame_ticks - 1)
    return clock.epoch_us + min(ends) * clock.period_us


def grown(array: Ints, size: int, fill: int) -> Ints:
    """An array with room for at least so many entries; new ones hold `fill`."""
    if len(array) >= size:
        return array
    larger = np.full((max(size, 2 * len(array), 64), *array.shape[1:]), fill, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


class Streams:
    """Slots by device and stream: the `names` of each, and the slots of `topics` on which a valid frame has come."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []
        self.topics: dict[str, int] = {}
        self._slots: dict[tuple[str, str], int] = {}
        self._rules = np.zeros((0, 5), dtype=np.int64)

    def slot(self, device: str, stream: str) -> int:
        """The slot of a stream, given now if it has none."""
        if (found := self._slots.get((device, stream))) is None:
            found = self._slots[device, stream] = len(self.names)
            self.names.append((device, stream))
            self._rules = grown(self._rules, found + 1, 0)
        return found

    def find(self, device: str, stream: str) -> int | None:
        """The slot of a stream, if it has one."""
        return self._slots.get((device, stream))

    def follow(self, topic: str, slot: int, version: int, symbols: int, clock: Clock) -> None:
        """Let frames like a valid one on a topic pass; `symbols` are those of its policy version's table."""
        self.topics[topic] = slot
        bits = next(bits for bits in SYMBOL_BITS if symbols <= 1 << bits)
        self._rules[slot] = version, bits, symbols, clock.epoch_us, clock.period_us

    def passing(self, slots: Ints, columns: Columns, read: Bools, now_us: int) -> Bools:
        """(n,) which of the rows that were read are as the newest policy says, and not from the future."""
        found = read.copy()
        _check(slots, *columns[1:], self._rules, now_us, found)
        return found


@kernel
def _check(
    slots: Ints, version: Ints, shift: Ints, _previous: Ints, first: Ints, count: Ints, bits: Ints, start: Ints,
    packed: Bytes, rules: Ints, now_us: int, found: Bools,
) -> None:  # fmt: skip
    """Leave in `found` only rows of their stream's version, bits, symbols and past."""
    for row in range(slots.size):
        if not found[row]:
            continue
        known, wide, symbols, epoch, period = rules[slots[row]]
        newest = (now_us + max(TOLERANCE_US, 2 * period) - epoch) // period
        right = version[row] == known and bits[row] == wide and first[row] + count[row] - 1 - shift[row] <= newest
        if right and symbols < 1 << wide:
            each, mask = 8 // wide, (1 << wide) - 1
            for i in range(count[row]):
                right &= (packed[start[row] + i // each] >> (8 - wide - wide * (i % each))) & mask < symbols
        found[row] = right
