"""Which tick it is by the gateway's own clock, and which are still to come: what no frame can be about yet.

A frame whose last tick lies further ahead than clocks may differ is refused. Its device keeps it, and sends it again.
"""

from __future__ import annotations

from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Clock, Policy

__all__ = ["TOLERANCE_US", "newest_tick", "share_due_us", "tick_at"]

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


def share_due_us(policy: AnyPolicy, now_us: int) -> int:
    """Wall time at which a device that runs has shared something: the next end of a window, or a full frame."""
    clock, tick, ends = policy.clock, max(tick_at(policy.clock, now_us) + 1, 0), []
    if isinstance(policy, Policy):
        for one in policy.windows:
            ends.append(one.start + one.length - 1)  # the first window's; the others follow by the stride
            ends[-1] += max(-((ends[-1] - tick) // one.stride), 0) * one.stride
    if not isinstance(policy, Policy) or policy.table is not None:
        ends.append(tick + policy.frame_ticks - 1)
    return clock.epoch_us + min(ends) * clock.period_us
