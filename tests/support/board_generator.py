"""Runs under MicroPython: the generator of a board without a good one, with the power cut at every write to its flash.

All that the hardware gives is zeros. Argument: 64 bytes of a seed in hexadecimal digits, and another. Prints how many
cuts there were.
"""

import os
import sys

from sanitiser import drbg
from simulated.flash import BLOCK, Flash, make, mount, unmount

WANTED, STARTS = 48, 3


def stuck(size):
    return bytes(size)


def provision(seed):
    with open(drbg.SEED, "wb") as file:
        file.write(seed)


def start(data, draws, cut=None, torn=False):
    """Draws of a board that is started, until there are some, or the power goes."""
    flash = Flash(data)
    mount(flash)
    flash.left, flash.torn = cut, torn
    drawn = bytearray(WANTED)
    try:
        fill = drbg.provisioned(stuck)
        for _ in range(2):
            fill(drawn)
            draws.append(bytes(drawn))
        whole = True
    except OSError:
        whole = False
    unmount()
    return whole


def fresh(seed):
    data = bytearray(BLOCK * 32)
    make(Flash(data))
    mount(Flash(data))
    provision(seed)
    unmount()
    return data


def cuts(seed):
    """Cut the power at every write of the first start, and of the second."""
    count = 0
    for before in (0, 1):
        n = 0
        while True:
            wholes = []
            for torn in (False, True):
                data, draws = fresh(seed), []
                for _ in range(before):
                    assert start(data, draws)
                wholes.append(start(data, draws, n, torn))
                for _ in range(STARTS):
                    assert start(data, draws), "it does not go on"
                assert len(set(draws)) == len(draws), "the same output twice"
                count += 1
            if all(wholes):
                break
            n += 1
    return count


def seeds(first, other):
    """A seed that comes again is not taken again; another is; a state that is damaged is refused."""
    draws, data = [], fresh(first)
    assert start(data, draws)
    for seed in (first, other, first, other):
        mount(Flash(data))
        assert drbg.SEED not in os.listdir(), "the seed is still there"
        provision(seed)
        unmount()
        assert start(data, draws)
    assert len(set(draws)) == len(draws)
    mount(Flash(data))
    with open(drbg.STATE, "rb") as file:
        state = bytearray(file.read())
    state[40] ^= 1
    with open(drbg.STATE, "wb") as file:
        file.write(state)
    unmount()
    assert not start(data, draws), "a damaged state is taken"
    mount(Flash(data))
    os.remove(drbg.STATE)
    unmount()
    assert not start(data, draws), "it draws without any secret"


def main(first, other):
    drbg.BLOCK, drbg.BLOCKS = 32, 2  # so that it takes new seeds often
    seeds(bytes.fromhex(first), bytes.fromhex(other))
    print(cuts(bytes.fromhex(first)))


main(*sys.argv[1:])
