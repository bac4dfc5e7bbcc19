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
from fugu.contract.noise_table import NoiseTable
from fugu.core.noise import discrete_laplace
from tests.support.entropy import seeded

Fill = Callable[[memoryview], None]


def honest(buffer: memoryview) -> None:
    buffer[:] = os.urandom(len(buffer))


def raw_at_changes(table: NoiseTable, entropy: Fill) -> Callable[[int | None], int]:
    """The state itself at every change, and honest symbols while it stays."""
    draw, before = randomiser(table, entropy), None

    def raw(state: int | None) -> int:
        nonlocal before
        changed, before = before is not None and state != before, state
        symbol = draw(state)
        return state if changed and state is not None else symbol

    return raw


def kept_noise() -> Callable[[Callable[[int], int], int, int], int]:
    """The noise of the first counts of every start is the same, as if it had been kept."""
    rng, rest = random.Random(7), 2048

    def noise(draw: Callable[[int], int], numerator: int, denominator: int) -> int:
        nonlocal rest
        rest -= 1
        return discrete_laplace(rng.randrange if rest >= 0 else draw, numerator, denominator)

    return noise


FILLS: dict[str, Callable[[], Fill]] = {
    "honest": lambda: honest,
    "seeded": seeded,  # begins anew at every start of the device
}


if __name__ == "__main__":
    fault, config = sys.argv[1:]
    if fault in FILLS:
        fill = FILLS[fault]()
        edge_agent.randomiser.system_entropy = lambda: fill
    elif fault == "kept-noise":
        fugu.core.windows.discrete_laplace = kept_noise()
    else:
        edge_agent.randomiser.randomiser = raw_at_changes
    sys.exit(main([config]))
