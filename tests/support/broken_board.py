"""A board with a fault in its randomness: `python -m tests.support.broken_board CONFIG`.

All else is as in the image that `fugu deploy firmware build` makes. A check of it sees the bytes that it publishes.
"""

from __future__ import annotations

import sys

from firmware_sim.on_board import main
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Policy


def weakened(policy: Policy) -> Policy:
    """Flip a fifth less often, in a 2x2 table."""
    [[stays], [flips]] = policy.table.rows
    rows = ((stays + (SCALE - stays) // 5,), (flips - flips // 5,))
    return policy.model_copy(update={"table": NoiseTable(rows)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], weakened))
