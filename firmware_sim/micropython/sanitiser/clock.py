"""The clocks of a board."""

import time


class SystemClock:
    """The board's clocks. MicroPython counts seconds from 1970 or from 2000."""

    def __init__(self) -> None:
        self._since = 946684800000000 if time.gmtime(0)[0] == 2000 else 0
        self._ticks = time.ticks_us()
        self._elapsed = 0

    def now_us(self) -> int:
        """Return microseconds of Unix time."""
        return time.time_ns() // 1000 + self._since

    def elapsed_us(self) -> int:
        """Return microseconds since the start; call this at least every few minutes, as the board's counter wraps."""
        ticks = time.ticks_us()
        self._elapsed += time.ticks_diff(ticks, self._ticks)
        self._ticks = ticks
        return self._elapsed
