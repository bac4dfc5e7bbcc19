"""Runs under MicroPython: an image, with readings that wander, until a file `stop` appears in the folder.

Arguments: the folder of the image, where it also keeps its outbox, and its streams if there are several. A file `hang`
makes the sensor hang, once.
"""

import os
import sys
import time

sys.path.insert(0, sys.argv[1])
os.chdir(sys.argv[1])
import asyncio  # noqa: E402

import image  # noqa: E402

from sanitiser.start import board  # noqa: E402

count = 0


def read():
    global count
    count += 1
    if "hang" in os.listdir():
        os.remove("hang")
        while True:
            time.sleep(1)
    if count % 13 == 0:
        raise OSError(5)  # a sensor that fails
    return None if count % 17 == 0 else 68 + count * 7 % 11


async def main():
    device = board(image, dict.fromkeys(sys.argv[2:], read) or read)
    task = asyncio.create_task(device.run())
    while "stop" not in os.listdir():
        await asyncio.sleep_ms(20)
    device.stopping = True
    await task


asyncio.run(main())
