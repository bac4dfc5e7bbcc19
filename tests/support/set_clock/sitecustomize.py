"""A wall clock of a Python process's own: so many seconds ahead of the machine's as the file in WALL_CLOCK says."""

import os
import time
from pathlib import Path

_FILE = Path(os.environ["WALL_CLOCK"])
_machine_ns = time.time_ns


def _ahead_ns() -> int:
    return int(_FILE.read_bytes()) * 1_000_000_000


time.time_ns = lambda: _machine_ns() + _ahead_ns()
time.time = lambda: time.time_ns() / 1e9
