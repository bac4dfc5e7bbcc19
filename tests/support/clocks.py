"""A machine's two clocks in tests: the wall clock, which anybody sets, and the one that nobody does."""

from __future__ import annotations

from host.wake import Wake

__all__ = ["TwoClocks"]

SECOND = 1_000_000


class TwoClocks:
    """Time passes on both clocks at once, and only when a test says so.

    Args:
        wall: Unix time in seconds.
        boot: names the time since the machine was switched on.
        synchronised: whether something that knows the time has set the wall clock.
    """

    def __init__(self, wall: float, *, boot: str = "first", synchronised: bool = True) -> None:
        self.wall = round(wall * SECOND)
        self.elapsed = 5 * SECOND
        self.known = synchronised
        self._boot = boot

    def pass_us(self, microseconds: int) -> None:
        """Time passes."""
        self.wall += microseconds
        self.elapsed += microseconds

    def now_us(self) -> int:
        """What the wall clock shows."""
        return self.wall

    def elapsed_us(self) -> int:
        """What has passed since the machine was switched on."""
        return self.elapsed

    def synchronised(self) -> bool:
        """Whether the wall clock is to be believed."""
        return self.known

    def boot(self) -> str:
        """The name of this time since the machine was switched on."""
        return self._boot

    def wait(self, wake: Wake, seconds: float) -> None:
        """Time passes."""
        self.pass_us(max(1, round(seconds * SECOND)))
