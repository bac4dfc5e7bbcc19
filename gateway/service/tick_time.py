"""Which tick it is by the gateway's own clock, and which are still to come: what no frame can be about yet.

A frame whose last tick lies further ahead than clocks may differ is refused. Its device keeps it, and sends it again.
"""

from __future__ import annotations

from fugu.contract.policy_header import Clock

__all__ = ["TOLERANCE_US", "newest_tick", "tick_at"]

TOLERANCE_US = 60_000_000
"""By how much a device's clock may be ahead of the gateway's; by two periods, if that is more."""


def tick_at(clock: Clock, now_us: int) -> int:
    """The newest tick that has come, negative before the first.

    Args:
        clock: of the stream's policy.
        now_us: the time in microseconds of Unix time.
    """
    return (now_us - clock.epoch_us) // clock.period_us


def newest_tick(clock: Clock, now_us: int) -> int:
    """The newest tick that a device whose clock is right, or not far wrong, can have drawn; arguments as above."""
    return tick_at(clock, now_us + max(TOLERANCE_US, 2 * clock.period_us))
