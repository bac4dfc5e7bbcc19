"""Runs under MicroPython: an image, with readings that wander, until a file `stop` appears in the folder.

Argument: the folder of the image, where it also keeps its outbox.
"""

import os
import sys

sys.path.insert(0, sys.argv[1])
os.chdir(sys.argv[1])
import image  # noqa: E402

from sanitiser.start import accepted  # noqa: E402

policy = accepted(image)
import asyncio  # noqa: E402

from sanitiser.board import Board  # noqa: E402

count = 0


def read():
    global count
    count += 1
    return None if count % 17 == 0 else 68 + count * 7 % 11


async def main():
    board = Board(image, policy, read)
    task = asyncio.create_task(board.run())
    while "stop" not in os.listdir():
        await asyncio.sleep_ms(20)
    board.stopping = True
    await task


asyncio.run(main())
