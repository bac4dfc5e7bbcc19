"""Readings that hold until the next one."""

from __future__ import annotations

from edge_agent.reading import Reading
from edge_agent.sensors.source import Sensor, SensorUpdate

__all__ = ["ChangeSensor"]


class ChangeSensor:
    """A sensor that only tells of changes: its reading holds until the next, or until its source fails.

    Args:
        keep_alive_ticks: how many ticks a sign that the source works is good for; 0 for one that says so at every
            tick. Only such signs count, and no reading, so that which ticks are missing does not depend on readings;
            none: readings hold for ever, or until the source says itself that it does not work.
    """

    def __init__(self, source: Sensor, keep_alive_ticks: int | None) -> None:
        self._source = source
        self._keep_alive_ticks = keep_alive_ticks
        self._held: Reading | None = None
        self._alive: int | None = None

    @property
    def recorded(self) -> bool:
        """As of the source."""
        return self._source.recorded

    @property
    def trouble(self) -> str:
        """As of the source."""
        return self._source.trouble

    def poll(self, tick: int) -> SensorUpdate:
        """What holds at a tick."""
        return SensorUpdate(self.read(tick), None)

    def read(self, tick: int) -> Reading | None:
        """The reading that holds at a tick."""
        update = self._source.poll(tick)
        if update.works is False:
            self._held, self._alive = None, None
        elif update.works:
            self._alive = tick
        if update.reading is not None:
            self._held = update.reading
        if self._keep_alive_ticks is None:
            return self._held
        alive = self._alive is not None and tick - self._alive <= self._keep_alive_ticks
        return self._held if alive else None

    def finished(self, tick: int) -> bool:
        """As of the source."""
        return self._source.finished(tick)

    def close(self) -> None:
        """As of the source."""
        self._source.close()
