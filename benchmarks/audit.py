"""How fast `fugu audit device` takes symbols from the Python agent, through Mosquitto, and what bounds it.

Usage: python benchmarks/audit.py [--draws N] [--period MICROSECONDS]
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from firmware_sim.constant import run_constant
from tests.support.audited import planned
from tests.support.brokers import Mosquitto


def main() -> None:
    """Draw symbols of two states; print the rate, and the agent's processor time for a draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200_000, help="of each of the two states")
    parser.add_argument("--period", type=int, default=100, help="microseconds from draw to draw of any stream")
    options = parser.parse_args()
    with Mosquitto() as broker, tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        command = [sys.executable, "-m", "edge_agent"]
        found = run_constant(
            command, planned(), broker.broker, Path(folder), options.draws, period_us=options.period, patience=60.0
        )
        seconds = time.perf_counter() - begun
        used = resource.getrusage(resource.RUSAGE_CHILDREN)  # the agent has ended, the broker has not
    draws = sum(found.each)
    processor = (used.ru_utime + used.ru_stime) / draws
    print(f"{draws} symbols of {len(found.states)} states in {seconds:.1f} s: {draws / seconds:.0f} a second")
    print(f"processor time of the agent: {processor * 1e6:.1f} microseconds a symbol")
    print(f"10^8 of each state take {seconds / draws * len(found.states) * 1e8 / 3600:.1f} hours at this rate")


if __name__ == "__main__":
    main()
