"""What restarts a board that hangs: a timer that has to be fed.

On boards it is the hardware's, which resets them. The Unix port has none: there it is a process of its own that kills
this one, and whoever has started it starts it again.
"""

import os
import time

_MS = {"esp32": 60000, "unix": 2000}  # an ESP32 may wait that long for a name server
_LONGEST_MS = 8300  # of the Raspberry Pi's chips


def watchdog(board: str):
    """A function that has to be called more often than every few seconds, from now on and for ever."""
    most = _MS.get(board, _LONGEST_MS)
    if board == "unix":
        return _process(most)
    from machine import WDT

    return WDT(timeout=most).feed


def _process(most: int):
    """A process that looks for a file every so often, removes it, and kills this one if it is not there."""
    name = ".alive-%s" % "".join(["%02x" % byte for byte in os.urandom(8)])
    fed = None

    def feed() -> None:
        nonlocal fed
        now = time.ticks_ms()
        if fed is None or time.ticks_diff(now, fed) > most // 4:
            fed = now
            open(name, "w").close()

    feed()
    look = "while sleep %d; do if [ -e %s ]; then rm %s; else kill -9 $board; exit; fi; done"
    os.system("board=$PPID; (%s) </dev/null >/dev/null 2>&1 &" % (look % (most // 1000, name, name)))
    return feed
