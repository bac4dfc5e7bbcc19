"""Readings from lines of text."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import IO, BinaryIO

from edge_agent.sensors.source import LiveSensor, Reading, SensorUpdate

__all__ = ["LineSensor", "lines_of"]

MAX_LINE_BYTES = 1 << 16


def lines_of(source: IO[bytes]) -> Iterator[str]:
    """The lines of a byte stream, without white space around them; of one of more than 64 KiB the beginning.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    begins = True
    while line := source.readline(MAX_LINE_BYTES):
        if begins:
            yield line.decode(errors="replace").strip()
        begins = line.endswith(b"\n")


class LineSensor(LiveSensor):
    """The newest line of a byte stream; a line is read once, then the sensor is silent until the next.

    Args:
        lines: UTF-8; of a line of more than 64 KiB the beginning counts.
        keep_alive: a line that is no reading, but says that the source works.
    """

    def __init__(self, lines: BinaryIO, keep_alive: str | None = None) -> None:
        super().__init__()
        self._lines = lines
        self._keep_alive = keep_alive
        self._ended = False
        threading.Thread(target=self._follow, name="lines", daemon=True).start()

    def _follow(self) -> None:
        try:
            for line in lines_of(self._lines):
                self._take(line)
            self.trouble = "its input has ended"
        except (OSError, ValueError):
            self.trouble = "its input cannot be read"
        self._ended = True

    def _take(self, line: str) -> None:
        if self._keep_alive is not None and line == self._keep_alive:
            self._mailbox.leave(works=True)
        elif line:
            self._mailbox.leave(Reading(line))

    def poll(self, tick: int) -> SensorUpdate:
        """The newest line, if one came since the last call."""
        ended = self._ended
        update = self._mailbox.take()
        return update._replace(works=False) if ended else update
