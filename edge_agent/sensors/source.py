"""What a sensor is, and what its thread and the agent's loop have between them."""

from __future__ import annotations

import threading
from typing import NamedTuple, Protocol

from edge_agent.reading import Reading

__all__ = ["FailedError", "LiveSensor", "Mailbox", "Sensor", "SensorUpdate", "UnavailableError"]


class UnavailableError(Exception):
    """Raised by a sensor's function to say, whatever is measured, that there is nothing to measure with."""


class FailedError(UnavailableError):
    """The same, said by a sensor of ours.

    Attributes:
        trouble: the reason in fixed words; nothing foreign may be in them.
    """

    def __init__(self, trouble: str) -> None:
        super().__init__(trouble)
        self.trouble = trouble


class SensorUpdate(NamedTuple):
    """What a source has said since it was last asked.

    Attributes:
        reading: the newest reading, if one came.
        works: that it works, or that it does not, as far as it said so by anything but a reading.
    """

    reading: Reading | None
    works: bool | None


class Sensor(Protocol):
    """A source of readings."""

    @property
    def recorded(self) -> bool:
        """Whether the readings of past ticks are still known, so that overdue ticks may be drawn for."""

    @property
    def trouble(self) -> str:
        """The newest problem in words that hold nothing of a reading, if there is one; it stays on the device."""

    def poll(self, tick: int) -> SensorUpdate:
        """What there is at a tick; answers at once and never raises."""

    def read(self, tick: int) -> Reading | None:
        """The reading of a tick, or none if there is none; answers at once and never raises."""

    def finished(self, tick: int) -> bool:
        """Whether there will be no tick any more; of a live sensor never, because its silence may tell of readings."""

    def close(self) -> None:
        """Close whatever it reads from; it is not read any more."""


class Mailbox:
    """What a source's thread leaves for the loop: nothing gets lost between the two."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._update = SensorUpdate(None, None)

    def leave(self, reading: Reading | None = None, works: bool | None = None) -> None:
        """Add what was said; readings before "does not work" are dropped."""
        with self._lock:
            before = SensorUpdate(None, None) if works is False else self._update
            self._update = SensorUpdate(reading or before.reading, before.works if works is None else works)

    def take(self) -> SensorUpdate:
        """What was said since the last call, once."""
        with self._lock:
            update, self._update = self._update, SensorUpdate(None, None)
        return update


class LiveSensor:
    """What sensors have in common whose readings come from a thread of their own, through a mailbox."""

    recorded = False

    def __init__(self) -> None:
        self.trouble = ""
        self._mailbox = Mailbox()

    def poll(self, tick: int) -> SensorUpdate:
        """What came since the last call."""
        return self._mailbox.take()

    def read(self, tick: int) -> Reading | None:
        """The newest reading that came since the last call, if one did."""
        return self.poll(tick).reading

    def finished(self, tick: int) -> bool:
        """Never: silence is not the end."""
        return False

    def close(self) -> None:
        """Nothing to close."""
