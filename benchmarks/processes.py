"""Processes that benchmarks start, and what these use."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["children_seconds", "memory", "processor_seconds", "started"]


@contextmanager
def started(*words: object, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run this Python with some words, and options of a process, until the context ends."""
    with subprocess.Popen([sys.executable, *map(str, words)], text=True, **options) as process:
        try:
            yield process
        finally:
            process.terminate()


def memory(pid: int, name: str) -> int:
    """Return the bytes of a line of a process's status, such as VmRSS."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def processor_seconds(pid: int) -> float:
    """Return the user and system time that a process has taken, by threads that have ended, too."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def children_seconds() -> float:
    """Return the processor time of this process's children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
