"""The agent's own program with a fault in its randomness: `python -m tests.support.broken_agent FAULT CONFIG`.

All else is as on a device. An audit that runs it sees the bytes that it publishes, and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import edge_agent.randomiser
from edge_agent.__main__ import main
from fugu.contract.noise_table import SCALE, NoiseTable

Fill = Callable[[memoryview], None]


def honest(buffer: memoryview) -> None:
    """The operating system's bytes."""
    buffer[:] = os.urandom(len(buffer))


def stuck_bit(buffer: memoryview) -> None:
    """The highest bit of every word is set."""
    honest(buffer)
    for place in range(3, len(buffer), 4):
        buffer[place] |= 0x80


def sixteen_bits() -> Fill:
    """A generator with 2^16 states."""
    state = 1

    def fill(buffer: memoryview) -> None:
        nonlocal state
        for place in range(0, len(buffer), 2):
            state = (75 * state + 74) % 65537 % 65536
            part = state.to_bytes(2, "little")
            buffer[place : place + 2] = part[: len(buffer) - place]

    return fill


def reused_block() -> Fill:
    """Every block of words is used twice."""
    held: list[bytes] = []

    def fill(buffer: memoryview) -> None:
        if len(buffer) < 64:
            honest(buffer)
        elif held:
            buffer[:] = held.pop()
        else:
            honest(buffer)
            held.append(bytes(buffer))

    return fill


def rounded(table: NoiseTable, state: int, word: int) -> int:
    """Draw with a uniform number of two decimals."""
    return sum(round(word / SCALE, 2) > threshold / SCALE for threshold in table.rows[state])


def weakened(table: NoiseTable, state: int, word: int) -> int:
    """Flip 1 % less often, in a 2x2 table."""
    threshold = table.rows[state][0]
    other = threshold + (SCALE - threshold) // 100 if state == 0 else threshold - threshold // 100
    return int(word >= other)


FILLS: dict[str, Callable[[], Fill]] = {
    "honest": lambda: honest,
    "stuck-bit": lambda: stuck_bit,
    "sixteen-bits": sixteen_bits,
    "reused-block": reused_block,
}

if __name__ == "__main__":
    fault, config = sys.argv[1:]
    if fault in FILLS:
        fill = FILLS[fault]()
        edge_agent.randomiser.system_entropy = lambda: fill
    else:
        NoiseTable.draw = {"rounded": rounded, "weakened": weakened}[fault]  # type: ignore[method-assign]
    sys.exit(main([config]))
