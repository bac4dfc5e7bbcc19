"""Runs under MicroPython, or CPython: streams over ticks from a file, with words that names give.

Argument: a file of cases. Prints a digest of the states and frames of each, and its name.
"""

import hashlib
import struct
import sys

from fugu.core.compiled import read_policy
from fugu.core.policy import CATEGORIES
from fugu.core.stream import Stream


class Source:
    """Uniform bytes from a name, as in `device_net.py`."""

    def __init__(self, name):
        self.name, self.blocks, self.bytes = name.encode(), 0, b""

    def take(self, size):
        while len(self.bytes) < size:
            self.bytes += hashlib.sha256(self.name + struct.pack(">Q", self.blocks)).digest()
            self.blocks += 1
        taken, self.bytes = self.bytes[:size], self.bytes[size:]
        return taken

    def words(self, buffer):
        data = self.take(len(buffer))
        for i in range(0, len(buffer), 4):
            buffer[i : i + 4] = data[len(data) - 4 - i : len(data) - i]

    def noise(self, buffer):
        buffer[:] = self.take(len(buffer))


class Noted:
    """A classifier whose states a digest takes."""

    def __init__(self, classifier, states):
        self.classifier, self.states = classifier, states

    @property
    def beginning(self):
        return self.classifier.beginning

    def observe(self, tick, reading):
        state = self.classifier.observe(tick, reading)
        self.states.update(bytes([255 if state is None else state]))
        return state


class Past:
    """The outbox of the stream before, as far as a stream reads it."""

    def __init__(self, before, shift, since):
        self.last_framed, self.shift, self.since = -1 if before is None else before.last_framed, shift, since
        counters = [] if before is None else before.counters
        self.indices = {counter.window.name: counter.last_index for counter in counters}


def life(policy, name, states, before, shift, since):
    """The stream from a start on, after the one before."""
    words, noise = (Source(f"{what} of {name} from {since}") for what in ("words", "noise"))
    stream = Stream(policy, words.words, Past(before, shift, since), noise.noise)
    stream._classifier = Noted(stream._classifier, states)
    return stream


def main(cases):
    with open(cases) as lines:
        for line in lines:
            word, _, rest = line.rstrip("\n").partition(" ")
            done = []
            if word == "case":
                compiled, _, name = rest.partition(" ")
                policy = read_policy(bytes.fromhex(compiled))
                states, frames = hashlib.sha256(), hashlib.sha256()
                stream = life(policy, name, states, None, 0, 0)
            elif word == "restart":
                done = stream.close()
                stream = life(policy, name, states, stream, *map(int, rest.split()))
            elif word == "end":
                done = stream.close()
            else:
                reading = None if not rest else rest if policy.kind == CATEGORIES else int(rest)
                done = stream.close_gap(int(word)) + stream.tick(int(word), reading)
            for sequence, _, _, frame in done:
                frames.update(struct.pack(">BH", len(sequence), len(frame)) + sequence.encode() + frame)
            if word == "end":
                digest = hashlib.sha256(states.digest() + frames.digest()).digest()
                print("".join(f"{byte:02x}" for byte in digest[:16]), name)


main(*sys.argv[1:])
