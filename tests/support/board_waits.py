"""Runs under MicroPython: how long a link waits between connections that nobody accepts, in milliseconds.

Arguments: a port that nobody listens at, and how many waits.
"""

import asyncio
import sys

from sanitiser import mqtt

waits = []
really = asyncio.sleep_ms


async def recorded(milliseconds):
    waits.append(milliseconds)
    await really(0)


async def main(port, count):
    link = mqtt.Link(("127.0.0.1", port), "c", ("", ""), None, ("t", b""), [], lambda topic, payload: None)
    asyncio.sleep_ms = recorded
    task = asyncio.create_task(link.run())
    while len(waits) < count:
        await really(1)
    task.cancel()
    print(*waits[:count])


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
