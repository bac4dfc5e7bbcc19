"""Runs under MicroPython: power is cut at every write of a flash memory with littlefs, and the board starts again.

Argument: the compiled policy. Prints how many cuts there were, and the writes of one frame.
"""

import os
import struct
import sys

from fugu.core.clocks import Anchored
from fugu.core.compiled import read_policy
from fugu.core.stream import Stream
from fugu.core.ticks import Ticker
from sanitiser.outbox import Outbox
from simulated.flash import BLOCK, Flash, make, mount, unmount

BLOCKS, TICKS, MORE = 96, 34, 14


class Clock:
    def __init__(self, now):
        self.now = now

    def now_us(self):
        return self.now + 1_000_000_000_000

    def elapsed_us(self):
        return self.now


def entropy(buffer):
    buffer[:] = os.urandom(len(buffer))


class Life:
    """A board from its start to the next cut."""

    def __init__(self, policy, drawn, begin):
        self.clock = Clock(begin)
        self.outbox = Outbox("/flash/outbox", policy)
        self.sealed = []
        seal = self.outbox.seal

        def sealing(frames, *rest):
            before = list(self.outbox._waiting) + list(frames)
            seal(frames, *rest)
            self.sealed.extend(before)

        self.outbox.seal = sealing
        anchored = Anchored(self.clock, lambda _: True)
        anchored.follow()

        def stream(policy, outbox):
            stream = Stream(policy, entropy, outbox)
            draw = stream.tick

            def tick(tick, reading):
                drawn.append(tick)
                return draw(tick, reading)

            stream.tick = tick
            return stream

        def read():
            return 70 + len(drawn) % 5

        self.ticker = Ticker(policy, anchored, self.outbox, stream, read)
        self.policy = policy

    def go_on(self, ticks, forgotten):
        """Some ticks, until the power goes; now and then, if asked for, a watermark covers all but the newest frame."""
        for count in range(ticks):
            self.clock.now += self.policy.period_us
            self.ticker.step()
            if self.ticker.trouble:
                return False
            if forgotten is not None and count % 11 == 10:
                by_stream = {}
                for frame in self.sealed[:-1]:
                    by_stream[frame[0]] = frame[2]
                forgotten.update(by_stream)
                self.outbox.forget_committed([(name, last, []) for name, last in by_stream.items()], self.outbox.newest)
        return True


def stored(outbox):
    stored, number = [], 0
    while True:
        more = outbox.next(number)
        if more is None:
            return stored
        number = more[0]
        stored += more[1]


def ticks_of(frame):
    first = struct.unpack_from(">q", frame, 26)[0]
    return range(first, first + struct.unpack_from(">H", frame, 37)[0])


def check(before, after, forgotten, drawn_before, drawn_after):
    frames = {(name, last): frame for name, _, last, frame in after}
    for name, _, last, frame in before:
        if last > forgotten.get(name, -1):
            assert frames.get((name, last)) == frame, "a sealed frame is lost, or another"
    assert not set(drawn_before) & set(drawn_after), "a tick was drawn twice"
    seen = {}
    for name, previous, last, frame in before + after:
        assert previous < last
        if "/" in name:
            assert seen.setdefault((name, last), frame) == frame, "a window was released twice"
            continue
        for tick in ticks_of(frame):
            assert seen.setdefault(tick, frame) == frame, "a tick is in two frames"


def main(path):
    with open(path, "rb") as file:
        policy = read_policy(file.read())
    fresh = bytearray(BLOCK * BLOCKS)
    make(Flash(fresh))
    cuts, n, writes = 0, 0, 0
    while True:
        whole = False
        for torn in (False, True):
            flash = Flash(bytearray(fresh), n, torn)
            drawn, again, forgotten = [], [], {}
            life = None
            mount(flash)
            begin = 5_000_000_000
            try:
                life = Life(policy, drawn, begin)
                whole = life.go_on(TICKS, forgotten) and not flash.dead
                begin = life.clock.now - 3 * policy.period_us  # a clock that comes back a little early
                writes = flash.writes
            except OSError:
                pass  # at the very start
            unmount()
            mount(Flash(flash.data))
            second = Life(policy, again, begin)
            assert second.go_on(MORE, None), "it does not go on"
            second.ticker.close()
            assert len(again) > MORE - 8
            check(life.sealed if life else [], stored(second.outbox), forgotten, drawn, again)
            unmount()
            cuts += 1
        if whole:
            break
        n += 1
    print(cuts, writes, TICKS)


main(*sys.argv[1:])
