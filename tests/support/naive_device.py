"""The device's rules as the agent had them before it took the core: the core is held to the same."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["TickClock", "discrete_laplace", "uniform_below"]


class TickClock:
    """Clock of the streams of one epoch and period; from `since` on, numbers are ahead by `shift` ticks."""

    def __init__(self, epoch_us: int, period_us: int) -> None:
        self.epoch_us = epoch_us
        self.period_us = period_us
        self.shift = 0
        self.since = 0
        self._tick = -1
        self._due_us: int | None = None

    def at(self, now_us: int) -> int:
        """The last tick that has happened at a wall time; below the shift before the epoch."""
        return (now_us - self.epoch_us) // self.period_us + self.shift

    def time_of(self, tick: int) -> int:
        """Wall time of a tick, in microseconds of Unix time."""
        return self.epoch_us + (tick - self.shift) * self.period_us

    def follow(self, shift: int, since: int) -> None:
        """Take over a larger shift."""
        if shift > self.shift:
            self.shift, self.since = shift, since

    def due(self, tick: int, offset_us: int) -> int:
        """Elapsed time at which a tick comes; `offset_us` is what wall time is ahead of elapsed time."""
        if self._due_us is None:
            return self.time_of(tick) - offset_us
        if tick <= self._tick:
            return self._due_us
        return max(self.time_of(tick) - offset_us, self._due_us + self.period_us)

    def begin(self, tick: int, offset_us: int) -> None:
        """A tick has come."""
        if tick > self._tick:
            self._tick, self._due_us = tick, self.due(tick, offset_us)

    def rested(self, elapsed_us: int) -> None:
        """Note that up to now something may have been drawn by an unknown clock."""
        self._due_us = elapsed_us

    def next_wall(self, now_us: int, offset_us: int) -> int:
        """The first wall tick after a wall time, and a period after what was drawn before."""
        after = now_us if self._due_us is None else max(now_us, self._due_us + self.period_us + offset_us - 1)
        return max(0, (after - self.epoch_us) // self.period_us + 1)

    def raised(self, wall: int, last: int, multiple: int) -> int:
        """The least shift, no smaller than this one, with which the number of a wall tick is above `last`."""
        return -(-max(self.shift, last + 1 - wall) // multiple) * multiple


def uniform_below(entropy: Callable[[memoryview], None]) -> Callable[[int], int]:
    """Return draw(below), uniform in range(below) for below >= 1, of a function that fills a buffer with random bytes.

    As few bits as can hold the largest value are taken; a number that is too large is thrown away, never folded back.
    The bytes are uniform and independent, and overwritten before draw returns.
    """

    def draw(below: int) -> int:
        if below < 1:
            raise ValueError(f"no integer is below {below} and at least 0")
        bits = (below - 1).bit_length()
        mask = (1 << bits) - 1
        buffer = bytearray((bits + 7) // 8)
        value = 0
        while bits:
            entropy(memoryview(buffer))
            value = int.from_bytes(buffer, "little") & mask
            if value < below:
                break
        buffer[:] = bytes(len(buffer))
        return value

    return draw


def discrete_laplace(draw: Callable[[int], int], numerator: int, denominator: int) -> int:
    """Draw an integer n with probability (1 - a) / (1 + a) * a^|n|, where a = exp(-1/s), s = numerator / denominator.

    A count of sensitivity 1 that is released with it has the loss 1/s. ValueError: the scale is not positive.
    Source: algorithm 2 with t = numerator and s = denominator. A remainder below t is kept with probability
    exp(-remainder / t) and a quotient counts successes of exp(-1), so t * quotient + remainder is geometric with ratio
    exp(-1/t); its quotient by s is geometric with ratio exp(-s/t). A sign makes that two-sided, once minus zero is
    refused.
    """
    if numerator < 1 or denominator < 1:
        raise ValueError(f"the scale {numerator}/{denominator} is not positive")
    while True:
        remainder = draw(numerator)
        if not _happens(draw, remainder, numerator):
            continue
        quotient = 0
        while _happens(draw, 1, 1):
            quotient += 1
        size = (remainder + numerator * quotient) // denominator
        negative = draw(2) == 1
        if not (negative and size == 0):
            return -size if negative else size


def _happens(draw: Callable[[int], int], numerator: int, denominator: int) -> bool:
    """True if an event of probability exp(-numerator/denominator) happens, for a fraction x in 0..1.

    Source: algorithm 1. The first k at which an event of probability x/k fails is odd with probability 1 - x + x^2/2! -
    ... = exp(-x).
    """
    tries = 1
    while draw(denominator * tries) < numerator:
        tries += 1
    return tries % 2 == 1
