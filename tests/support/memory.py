"""How much memory a process has ever had, as Linux tells."""

from __future__ import annotations

from pathlib import Path

__all__ = ["high_water_bytes"]


def high_water_bytes(pid: int) -> int:
    """The most resident memory of a process that runs."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
