"""Runs under MicroPython: a board's ticks on two clocks that a file moves.

Arguments: two compiled policies, the moment before which the wall clock is wrong, a folder for the outbox, a file. The
file has lines "microseconds that pass, microseconds that the wall clock is moved by". Or "switch" to change between the
policies. Prints tick, shift and elapsed time of each tick that is drawn.
"""

import os
import sys

from fugu.core.clocks import Anchored
from fugu.core.compiled import read_policy
from fugu.core.stream import Stream
from fugu.core.ticks import Ticker
from sanitiser.outbox import Outbox


class Clock:
    wall, elapsed = 500000, 5000000

    def now_us(self):
        return self.wall

    def elapsed_us(self):
        return self.elapsed


def entropy(buffer):
    buffer[:] = os.urandom(len(buffer))


def read(path):
    with open(path, "rb") as file:
        return read_policy(file.read())


def main(first, second, not_before, folder, moves):
    policy, other = read(first), read(second)
    clock, outbox = Clock(), Outbox(folder, policy)

    def stream(policy, outbox):
        stream = Stream(policy, entropy, outbox)
        draw = stream.tick

        def tick(tick, reading):
            print(tick, outbox.shift, clock.elapsed)
            return draw(tick, reading)

        stream.tick = tick
        return stream

    ticker = Ticker(policy, Anchored(clock, lambda wall: wall >= int(not_before)), outbox, stream, lambda: 70)
    with open(moves) as lines:
        for line in lines:
            if line.strip() == "switch":
                policy, other = other, policy
                ticker.close()
                ticker.switch(policy)
                continue
            passed, moved = map(int, line.split())
            clock.wall += passed + moved
            clock.elapsed += passed
            before = None
            while before != ticker.next_tick:
                before = ticker.next_tick
                ticker.step()
                assert not ticker.trouble


main(*sys.argv[1:])
