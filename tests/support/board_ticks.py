"""Runs under MicroPython: a stream of the sanitiser over ticks from a file, with random words from files.

Arguments: the compiled policy, a file of lines "tick reading", words for symbols, bytes for noise, where frames go.
"""

import gc
import struct
import sys

from sanitiser.compiled import read_policy
from sanitiser.policy import CATEGORIES
from sanitiser.stream import Stream


def reversed_words(file):
    """Blocks are used from their end: so that words are used in the order of the file."""

    def fill(buffer):
        data = file.read(len(buffer))
        for i in range(0, len(buffer), 4):
            buffer[i : i + 4] = data[len(data) - 4 - i : len(data) - i]

    return fill


def in_order(file):
    def fill(buffer):
        buffer[:] = file.read(len(buffer))

    return fill


def main(policy, readings, words, noise, out):
    with open(policy, "rb") as file:
        policy = read_policy(file.read())
    stream = Stream(policy, reversed_words(open(words, "rb")), noise_entropy=in_order(open(noise, "rb")))
    with open(out, "wb") as out, open(readings) as lines:
        for line in lines:
            tick, _, reading = line.strip().partition(" ")
            tick = int(tick)
            if not reading:
                reading = None
            elif policy.kind != CATEGORIES:
                reading = int(reading)
            for name, _, _, frame in stream.before(tick) + stream.tick(tick, reading):
                out.write(struct.pack(">BH", len(name), len(frame)) + name.encode() + frame)
    gc.collect()
    print(gc.mem_alloc())


main(*sys.argv[1:])
