"""A board with a fault in its randomness: `python -m tests.support.broken_board FAULT CONFIG`.

All else is as in the image that `fugu deploy firmware build` makes. A check of it sees the bytes that it publishes.
"""

from __future__ import annotations

import sys

from firmware_sim.build import BOARD
from firmware_sim.on_board import main
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Policy

ENTROPY = (BOARD / "sanitiser" / "entropy.py").read_text()
FILLED = "        buffer[:] = drawn\n"
STUCK = FILLED + "        for place in range(3, len(buffer), 4):\n            buffer[place] |= 0x40\n"


def weakened(policy: Policy) -> Policy:
    """Flip a fifth less often, in a 2x2 table."""
    assert policy.table is not None
    [[stays], [flips]] = policy.table.rows
    rows = ((stays + (SCALE - stays) // 5,), (flips - flips // 5,))
    return policy.model_copy(update={"table": NoiseTable(rows)})


if __name__ == "__main__":
    fault, config = sys.argv[1:]
    assert ENTROPY.count(FILLED) == 1
    prepare = weakened if fault == "weakened" else lambda policy: policy
    sys.exit(main([config], prepare, ENTROPY.replace(FILLED, STUCK) if fault == "stuck-bit" else ""))
