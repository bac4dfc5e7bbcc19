"""The agent's own program with a fault in its randomness: `python -m tests.support.broken_agent FAULT CONFIG`.

All else is as on a device. An audit that runs it sees the bytes that it publishes, and nothing else.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable

import edge_agent.randomiser
import fugu.core.windows
from edge_agent.__main__ import main
from edge_agent.randomiser import randomiser
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.core.noise import discrete_laplace
from tests.support.entropy import seeded

Fill = Callable[[memoryview], None]


def honest(buffer: memoryview) -> None:
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
    """Draw with a uniform number of one decimal."""
    return sum(round(word / SCALE, 1) > threshold / SCALE for threshold in table.rows[state])


def weakened(table: NoiseTable, state: int, word: int) -> int:
    """Flip a tenth less often, in a 2x2 table."""
    threshold = table.rows[state][0]
    other = threshold + (SCALE - threshold) // 10 if state == 0 else threshold - threshold // 10
    return int(word >= other)


def raw_at_changes(table: NoiseTable, entropy: Fill) -> Callable[[int | None], int]:
    """The state itself at every change, and honest symbols while it stays."""
    draw, before = randomiser(table, entropy), None

    def raw(state: int | None) -> int:
        nonlocal before
        changed, before = before is not None and state != before, state
        symbol = draw(state)
        return state if changed and state is not None else symbol

    return raw


def by_rule(draw: Callable[[NoiseTable, int, int], int]) -> Callable[[NoiseTable, Fill], Callable[[int | None], int]]:
    """A randomiser that draws every symbol by a rule of its own, from the next word."""

    def draw_by(table: NoiseTable, entropy: Fill) -> Callable[[int | None], int]:
        word = bytearray(4)

        def drawn(state: int | None) -> int:
            entropy(memoryview(word))
            return draw(table, state or 0, int.from_bytes(word, "little"))

        return drawn

    return draw_by


def bare_counts(draw: Callable[[int], int], numerator: int, denominator: int) -> int:
    """No noise in one of a hundred counts."""
    return 0 if draw(100) == 0 else discrete_laplace(draw, numerator, denominator)


def small_scale(draw: Callable[[int], int], numerator: int, denominator: int) -> int:
    """A scale that is a tenth too small."""
    return discrete_laplace(draw, numerator * 9, denominator * 10)


def kept_noise() -> Callable[[Callable[[int], int], int, int], int]:
    """The noise of the first counts of every start is the same, as if it had been kept."""
    rng, rest = random.Random(7), 2048

    def noise(draw: Callable[[int], int], numerator: int, denominator: int) -> int:
        nonlocal rest
        rest -= 1
        return discrete_laplace(rng.randrange if rest >= 0 else draw, numerator, denominator)

    return noise


NOISES = {"bare-counts": lambda: bare_counts, "small-scale": lambda: small_scale, "kept-noise": kept_noise}
FILLS: dict[str, Callable[[], Fill]] = {
    "honest": lambda: honest,
    "stuck-bit": lambda: stuck_bit,
    "sixteen-bits": sixteen_bits,
    "reused-block": reused_block,
    "seeded": seeded,  # begins anew at every start of the device
}
RANDOMISERS = {"raw-at-changes": raw_at_changes, "rounded": by_rule(rounded), "weakened": by_rule(weakened)}

if __name__ == "__main__":
    fault, config = sys.argv[1:]
    if fault in FILLS:
        fill = FILLS[fault]()
        edge_agent.randomiser.system_entropy = lambda: fill
    elif fault in NOISES:
        fugu.core.windows.discrete_laplace = NOISES[fault]()
    else:
        edge_agent.randomiser.randomiser = RANDOMISERS[fault]
    sys.exit(main([config]))
