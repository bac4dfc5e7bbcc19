"""Runs under MicroPython and CPython: draws shares from a generator of bits, and prints them with their rates."""

import sys

from fugu.core.shares import Shares, rate_up

state = 1


def bits(width):
    """Bits of a linear congruential generator: the same everywhere."""
    global state
    value = 0
    for _ in range(width // 16):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        value = value << 16 | state >> 48
    return value


for homes, threshold in ((1, 1 << 31), (3, 4000000000), (48, 4290000000)):
    shares = Shares(threshold, homes)
    print(rate_up(threshold, homes), *[shares.draw(bits) for _ in range(int(sys.argv[1]))])
