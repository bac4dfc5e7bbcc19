"""Readings from a recording."""

from __future__ import annotations

from collections.abc import Sequence

from edge_agent.sensors.source import Reading, SensorUpdate

__all__ = ["ReplaySensor"]


class ReplaySensor:
    """Replays values: tick t reads row t, or row t modulo the length when looping; an empty cell is no reading."""

    recorded = True

    def __init__(self, values: Sequence[float | str], *, loop: bool) -> None:
        self.trouble = ""
        self._values = values
        self._loop = loop

    def poll(self, tick: int) -> SensorUpdate:
        """The value recorded for a tick."""
        return SensorUpdate(self.read(tick), None)

    def read(self, tick: int) -> Reading | None:
        """The value recorded for a tick."""
        if self._loop:
            tick %= len(self._values)
        if not 0 <= tick < len(self._values):
            return None
        value = self._values[tick]
        return None if isinstance(value, str) and not value.strip(" ,") else Reading(value)

    def finished(self, tick: int) -> bool:
        """Whether the recording is over."""
        return not self._loop and tick >= len(self._values)

    def close(self) -> None:
        """Nothing to close."""
