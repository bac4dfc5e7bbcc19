"""Runs under MicroPython: the messages of a link to a slow broker, and how many connections they took.

The argument is the broker's port. The link looks for a silence of a second.
"""

import asyncio
import sys

from sanitiser import mqtt

messages = []


async def main(port):
    link = mqtt.Link(
        ("127.0.0.1", port), "c", ("", ""), None, ("t", b""), [], lambda _, payload: messages.append(payload), 2
    )
    task = asyncio.create_task(link.run())
    while not messages or link.connections == 0:
        await asyncio.sleep_ms(10)
    task.cancel()
    print(messages, link.connections)


asyncio.run(main(int(sys.argv[1])))
