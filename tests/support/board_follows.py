"""Runs under MicroPython: what a board judges of that which arrives, and what it asks the broker for again.

Arguments: the folder of an image, and the files of a policy that is not valid yet, of two times, and of a root chain.
Prints a line for each step.
"""

import asyncio
import os
import sys

os.chdir(sys.argv[1])
sys.path.insert(0, sys.argv[1])
import image  # noqa: E402

from sanitiser import following  # noqa: E402
from sanitiser.start import accepted  # noqa: E402

following._RETRY_MS = 40
judged, asked = [], []
trusted, own, policies = accepted(image, lambda: None)
switched = lambda trusted, policies: None  # noqa: E731
follows = following.Following(image, trusted, 1, lambda: 1800000000, switched, lambda: None, "", "")
really = follows._judge


def judging(kind, payload):
    really(kind, payload)
    judged.append((kind, follows._reason))


class Link:
    connected = True

    async def ask(self):
        asked.append(True)


async def until(count, words):
    while len(judged) < count or follows._waiting:
        await asyncio.sleep_ms(1)
    print(words, *[kind + ":" + reason for kind, reason in judged])
    judged.clear()


def read(path):
    with open(path, "rb") as file:
        return file.read()


async def main(later, first, second, chain):
    follows._judge = judging
    task = asyncio.create_task(follows.run(Link()))
    for _ in range(2):
        follows.arrived("policy/set", later)
        await until(1, "policy")
    while not asked:
        await asyncio.sleep_ms(1)
    print("asked again")
    follows.arrived("time", first)
    await until(1, "time")
    follows.arrived("time", second)  # within the hour
    follows.arrived("root", chain)
    follows.arrived("stop", b"")
    follows.arrived("other", b"x")
    await until(1, "root")
    asked.clear()
    while not asked:  # what was refused may be of the new keys
        await asyncio.sleep_ms(1)
    print("asked again")
    for _ in range(3):
        follows.arrived("root", chain)
    follows.arrived("stop", b"?")
    await until(1, "stop")
    follows.arrived("stop", b"?")
    follows.arrived("policy/set", later)
    await until(1, "policy")
    task.cancel()


asyncio.run(main(*[read(path) for path in sys.argv[2:]]))
