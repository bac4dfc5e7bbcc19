"""Do sensors give readings that their policies can use? Each is opened and read, and nothing is drawn or sent.

What is said of a stream is fixed words: that a reading came and is of use, or not, and never what it was.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from edge_agent.local_status import NO_USE
from edge_agent.plan import StreamPlan
from edge_agent.sensors import Sensor
from edge_agent.stream import open_sensors
from fugu.contract.classify import Classifier

__all__ = ["PATIENCE_SECONDS", "Outcome", "tried"]

PATIENCE_SECONDS = 5.0
_LONGER = {"bluetooth-heart-rate": 20.0}
"""To find a monitor takes up to ten seconds, by the library's own patience."""
_ROWS = 1000
"""Of a recording so many are looked at."""


class Outcome(NamedTuple):
    """A sentence about a stream's sensor, and whether it says that something is wrong."""

    sentence: str
    wrong: bool


def tried(plans: Sequence[StreamPlan], patience: float | None = None) -> list[Outcome]:
    """Open the sensors of streams, and wait until each has given a reading that is of use, or says what is wrong.

    Args:
        patience: in seconds, if not that of the kinds of sensors; a source of changes may well be silent for longer.

    Returns:
        An outcome for each stream.

    Raises:
        ConfigError: a sensor cannot be opened.
    """
    if patience is None:
        patience = max([PATIENCE_SECONDS, *(_LONGER.get(plan.sensor.get("kind", ""), 0.0) for plan in plans)])
    sensors = open_sensors(plans)
    distinct = {id(sensor): sensor for sensor in sensors}  # streams share them
    trials = [_Trial(plan, sensor) for plan, sensor in zip(plans, sensors, strict=True)]
    try:
        deadline, pause, tick = time.monotonic() + patience, 0.02, 0
        while True:
            wrong = [bool(sensor.trouble) for sensor in sensors]  # before the reading that may have come with it
            readings = {name: sensor.read(tick) for name, sensor in distinct.items()}
            for trial, sensor in zip(trials, sensors, strict=True):
                reading = readings[id(sensor)]
                trial.take(tick, None if reading is None else reading.reveal())
            left = deadline - time.monotonic()
            if left <= 0 or all(trial.over or failed for trial, failed in zip(trials, wrong, strict=True)):
                return [
                    Outcome(f"stream {trial.plan.stream}: {trial.sentence(patience)}", trial.wrong) for trial in trials
                ]
            tick += 1
            if not all(sensor.recorded for sensor in sensors):
                time.sleep(min(pause, left))
                pause *= 1.5  # a function is not called, nor a command run, more than some ten times
    finally:
        for sensor in distinct.values():
            sensor.close()


class _Trial:
    """What has come of one stream's sensor."""

    def __init__(self, plan: StreamPlan, sensor: Sensor) -> None:
        self.plan = plan
        self._sensor = sensor
        self._discretiser = Classifier(plan.discretiser)
        self._ticks = self._came = 0

    def take(self, tick: int, raw: object) -> None:
        """Look at what there is at a tick."""
        if not self._usable:
            self._ticks += 1
            self._came += raw is not None
            self._discretiser.observe(tick, raw)

    @property
    def _usable(self) -> bool:
        return self._came > self._discretiser.unusable

    @property
    def over(self) -> bool:
        """Whether there is nothing to wait for: a reading of use, or the end of a recording."""
        ended = self._sensor.recorded and (self._ticks >= _ROWS or self._sensor.finished(self._ticks))
        return self._usable or ended

    @property
    def wrong(self) -> bool:
        """Whether the sensor or its readings are of no use; a live source that is silent so far may be all right."""
        return not self._usable and bool(self._came or self._sensor.recorded or self._sensor.trouble)

    def sentence(self, patience: float) -> str:
        """The outcome."""
        if self._usable:
            return "a usable reading came"
        found = "no reading came" if self._sensor.recorded else f"no reading came within {patience:g} s"
        if self._came:
            found = NO_USE
        if self._sensor.trouble:
            return f"{found}: {self._sensor.trouble}"
        if self.plan.sensor.get("kind") == "mqtt" and self.plan.sensor.get("silence") == "changes" and not self._came:
            found += (
                "; its broker retains none. After each start ticks are missing until the first change, "
                "and so tell when that came: let the source retain its state"
            )
        return found
