"""Runs under MicroPython: every byte of a segment is damaged in turn, and the segment is cut off after every byte.

Argument: the compiled policy. Prints how many bytes a segment has, and after how many damages its frames were there.
"""

import errno
import os
import sys

from fugu.core.compiled import read_policy
from sanitiser import outbox as outbox_module
from sanitiser.outbox import Outbox


def fails(_path, _mode):
    raise OSError(errno.EIO)


def frames_of(outbox):
    return (outbox.reserved, outbox.last_framed, outbox.indices, outbox.shift, outbox.since, outbox.counter)


def main(policy, folder):
    with open(policy, "rb") as file:
        policy = read_policy(file.read())
    first = [("hr", -1, 3, b"the first frame")]
    frames = [("hr", 3, 7, b"the newest frame of symbols"), ("hr/six", 0, 1, b"and a window")]
    outbox = Outbox(folder, policy)
    outbox.counter = 17
    outbox.seal(first, 7)
    before = frames_of(outbox)
    outbox.seal(frames, 1 << 40, 12, 5)
    after = frames_of(outbox)
    name = f"{folder}/{outbox.newest:08x}"
    with open(name, "rb") as file:
        whole = file.read()
    outbox_module.open = fails
    try:
        Outbox(folder, policy)
        raise AssertionError("a segment that cannot be read is taken for damaged")
    except OSError as error:
        trouble = str(error)
        outbox_module.open = open
    assert "flash an image of a new device" in trouble, "an operator cannot know how the board goes on"
    assert len(os.listdir(folder)) == 2, "a segment that cannot be read is removed"
    with open(f"{folder}/00000001", "rb") as file:
        oldest = file.read()
    outbox = Outbox(folder, policy)
    assert frames_of(outbox) == after
    outbox_module.open = fails
    for _ in range(7):
        assert not outbox.forget_committed([("hr", -1, [])], outbox.newest)
    outbox_module.open = open
    assert not outbox.forget_committed([("hr", -1, [])], outbox.newest)
    assert outbox.next(0)[1] == first, "a frame that could not be read is forgotten, and is not safe elsewhere"
    outbox_module.open = fails
    for _ in range(8):
        outbox.forget_committed([("hr", -1, [])], 1)
    assert outbox.oldest == 1
    outbox.forget_committed([("hr", -1, [])], 1)
    assert outbox.oldest == 2, "what can never be read holds up nothing for ever"
    outbox_module.open = open
    with open(f"{folder}/00000001", "wb") as file:
        file.write(oldest)
    there = 0
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        with open(name, "wb") as file:
            file.write(data)
        again = Outbox(folder, policy)
        assert frames_of(again) == after, "a bit that has turned is believed, or takes away what was reserved"
        batch = again.next(again.newest - 1)
        assert batch is None or batch[1] == frames, "a damaged frame is believed"
        there += batch is not None
    for size in range(len(whole)):
        with open(name, "wb") as file:
            file.write(whole[:size])
        again = Outbox(folder, policy)
        batch = again.next(0)
        if again.newest == outbox.newest:
            assert frames_of(again) == after
            assert again.next(again.newest - 1)[1] == frames
        else:
            assert frames_of(again) == before
            assert batch[1] == first
            with open(name, "wb") as file:
                file.write(whole)
    print(len(whole), there)


main(*sys.argv[1:])
