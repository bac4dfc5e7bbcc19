"""The watchdog, which ends a board that hangs: the timer of the hardware; on the Unix port a process.

The process kills the board. On a busy machine `WATCHDOG_SECONDS` in the environment says how long a loop may take.
"""

import os
import time

_ESP32_MS = 60000  # a board may wait so long for a name server
_LONGEST_MS = 8300  # of the Raspberry Pi's chips
_UNIX_SECONDS = 60


def watchdog(board: str):
    """Start the watchdog, and return a function that feeds it; call this every few seconds from now on."""
    if board == "unix":
        return _start_process(int(os.getenv("WATCHDOG_SECONDS") or _UNIX_SECONDS))
    from machine import WDT

    return WDT(timeout=_ESP32_MS if board == "esp32" else _LONGEST_MS).feed


_LOOK = """board=$PPID; file=%s; most=%d
born() { cut -d " " -f 22 /proc/$board/stat 2>/dev/null; }
(since=$(born); missed=0; while sleep 1 && [ "$(born)" = "$since" ]; do
if [ -e $file ]; then rm $file; missed=0; else missed=$((missed + 1)); fi
if [ $missed -ge $most ]; then kill -9 $board; exit; fi; done; rm -f $file) </dev/null >/dev/null 2>&1 &"""


def _start_process(seconds: int):
    """Start a process that kills this one unless a file appears in time. Return a function that makes the file.

    The process looks every second, and removes the file.
    """
    name = ".alive-%s" % "".join(["%02x" % byte for byte in os.urandom(8)])
    last_fed = None

    def feed() -> None:
        nonlocal last_fed
        now = time.ticks_ms()
        if last_fed is None or time.ticks_diff(now, last_fed) > 250 * seconds:
            last_fed = now
            open(name, "w").close()

    feed()
    os.system(_LOOK % (name, seconds))
    return feed
