"""Draw the symbol for a state with the operating system's randomness; `edge_agent.measurer` draws released points.

A symbol takes one 32-bit word, which is compared with a row of integers. For a tick without a state, another word
selects the row first: fugu/core/noise.py has the distribution.
"""

from __future__ import annotations

import io
import os
from array import array
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fugu.contract.frames import symbol_bits
from fugu.contract.noise_table import NoiseTable
from fugu.core import noise

__all__ = ["Entropy", "Mechanism", "SymbolNoise", "system_entropy"]


BLOCK_WORDS = 1024
Entropy = Callable[[memoryview], None]
"""Fills a buffer with independent uniform bytes."""


class Mechanism(NamedTuple):
    """Mechanism of a stream.

    Attributes:
        draw: draw(tick, state, shift) returns the output as the bytes in a frame, or None without outputs. The state is
            None for a tick without one.
        offer: offer(payload, tick) takes a table for ticks from this one on, or raises; None if tables never arrive.
    """

    draw: Callable[[int, int | None, int], bytes | None]
    offer: Callable[[bytes, int], None] | None


@dataclass(frozen=True, slots=True)
class SymbolNoise:
    """Noise of a stream of symbols: one table."""

    table: NoiseTable
    cycle = 1  # one table is for every tick

    @property
    def bits(self) -> int:
        """Bits of a symbol in a frame."""
        return symbol_bits(self.table.symbols)

    def begin(self, entropy: Entropy) -> Mechanism:
        """Return a mechanism that draws symbols."""
        draw_symbol = randomiser(self.table, entropy)
        return Mechanism(lambda _tick, state, _shift: bytes((draw_symbol(state),)), None)


def system_entropy() -> Entropy:
    """Return a function that fills a buffer with random bytes in place, so that the buffer can be wiped.

    The call of os.urandom waits until the kernel's generator has been seeded. After that the same generator is read
    through its device file, which leaves no immutable copy behind.
    """
    os.urandom(1)
    source = io.FileIO("/dev/urandom")

    def fill(buffer: memoryview) -> None:
        filled_bytes = 0
        while filled_bytes < len(buffer):
            if not (read_bytes := source.readinto(buffer[filled_bytes:])):
                raise OSError("the operating system's random generator gives no bytes")
            filled_bytes += read_bytes

    return fill


def randomiser(table: NoiseTable, entropy: Entropy) -> Callable[[int | None], int]:
    """Return a function that draws the symbol for a state, or for a tick without one, from a noise table.

    A forked child throws the words of its parent away.
    """
    words = array("I", bytes(4 * BLOCK_WORDS))
    block = memoryview(words).cast("B")
    draw, discard = noise.randomiser(table.rows, words, lambda: entropy(block), bisect_right)
    os.register_at_fork(after_in_child=discard)
    return draw
