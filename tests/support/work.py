"""How much work a call takes, in the same units on every machine: none of these tests reads a clock."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any


def lines_run(call: Callable[[], object], most: int) -> int:
    """How many lines of Python a call runs; an AssertionError if they are more than `most`."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        assert count <= most, f"more than {most} lines"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    assert count <= most, f"more than {most} lines"  # also where the call has caught it
    return count


def high_water_bytes(pid: int) -> int:
    """The most resident memory that a process that runs has ever had, as Linux tells."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def most_memory(call: Callable[[], object]) -> int:
    """The most bytes that a call holds at a time."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
