"""A machine's two clocks in tests: the wall clock, which anybody sets, and the one that nobody does."""

from __future__ import annotations

import os
import time
from pathlib import Path

from fugu.contract.policy import Policy
from fugu.host.process import Wake

__all__ = ["SECOND", "TwoClocks", "WallClock", "faketime_library"]

SECOND = 1_000_000


class TwoClocks:
    """Time passes on both clocks at once, and only when a test says so; `boot` names how long the machine runs."""

    def __init__(self, wall: float, *, boot: str = "first", synchronised: bool = True) -> None:
        self.wall = round(wall * SECOND)
        self.elapsed = 5 * SECOND
        self.known = synchronised
        self._boot = boot

    def pass_us(self, microseconds: int) -> None:
        self.wall += microseconds
        self.elapsed += microseconds

    def now_us(self) -> int:
        return self.wall

    def elapsed_us(self) -> int:
        return self.elapsed

    def synchronised(self) -> bool:
        return self.known

    def boot(self) -> str:
        """The name of this time since the machine was switched on."""
        return self._boot

    def wait(self, wake: Wake, seconds: float) -> None:
        self.pass_us(max(1, round(seconds * SECOND)))


def faketime_library() -> Path | None:
    """The library that gives a process a wall clock of its own (Debian package `faketime`), if it is installed."""
    places = (
        at for folder in ("lib*/*", "lib*", "local/lib*") for at in Path("/usr").glob(f"{folder}/faketime/*.so.1")
    )
    return min(places, default=None)


class WallClock:
    """The wall clock of Python processes that have its `environment`; a file says how much it is ahead."""

    def __init__(self, file: Path, ahead: int = 0) -> None:
        self._file = file
        self.environment = {
            "WALL_CLOCK": str(file),
            "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).with_name("set_clock"), Path.cwd()))),
        }
        self.set(ahead)

    def set(self, ahead: int) -> None:
        """Set it, in seconds ahead of the machine's."""
        beside = self._file.with_name(self._file.name + ".new")
        beside.write_text(f"{ahead:+d}\n")
        beside.replace(self._file)
        self.ahead = ahead

    def tick(self, policy: Policy) -> int:
        """The wall tick that it shows."""
        return ((time.time_ns() // 1000) + self.ahead * SECOND - policy.clock.epoch_us) // policy.clock.period_us
