"""One sensor for several streams: streams of one clock get the same reading at a tick.

Streams with equal discretisers also get the same state. Only streams with one sequence of states have a bound on what
they tell together (`fugu.contract.joint`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from edge_agent.sensors.opening import exclusive, open_sensor
from edge_agent.sensors.source import ConfigError, Reading, Sensor
from fugu.contract.classify import classifier_of
from fugu.core.states import Classifier

if TYPE_CHECKING:
    from edge_agent.plan import StreamPlan

__all__ = ["Sensors", "SharedSensor", "check_shared", "open_sensors"]

_Key = tuple[str, int, int]
_T = TypeVar("_T")
_RAISES = "it raises an exception, and none should: please report it"


class SharedSensor:
    """A sensor as the streams of one clock see it; only `newest`, the newest tick that was read, has a reading.

    A sensor that raises, as none should, has no reading.
    """

    def __init__(self, sensor: Sensor) -> None:
        self.sensor = sensor
        self.recorded = sensor.recorded
        self.newest = -1
        self._fault = ""
        self._reading: Reading | None = None
        self._discretisers: dict[bytes, Classifier] = {}

    @property
    def trouble(self) -> str:
        """The sensor's newest problem, "" if there is none."""
        return self._fault or self._safely(lambda: self.sensor.trouble, _RAISES)

    def read(self, tick: int) -> Reading | None:
        """Return the reading of a tick: the same for all streams, until one reads a later tick. `None` without one."""
        if tick > self.newest:
            self.newest, self._reading = tick, self._safely(lambda: self.sensor.read(tick), None)
        return self._reading if tick == self.newest else None

    def drop_readings(self, tick: int) -> None:
        """Drop the readings that came after that of `newest`, so that no tick later than `tick` has one of them."""
        self._safely(lambda: self.sensor.read(tick), None)

    def finished(self, tick: int) -> bool:
        """True if the recording has ended before a tick."""
        return self._safely(lambda: self.sensor.finished(tick), False)

    def _safely(self, question: Callable[[], _T], fallback: _T) -> _T:
        try:
            return question()
        except Exception:  # the text and the class of the exception may hold a reading
            self._fault = _RAISES
            return fallback

    def discretiser(self, compiled: bytes) -> Classifier:
        """Return the classifier of a compiled discretiser: one for all streams and versions, as it may have memory."""
        return self._discretisers.setdefault(compiled, classifier_of(compiled))


class Sensors:
    """The sensors of a device's streams; streams with equal sensors and clocks share one."""

    def __init__(self) -> None:
        self._shared: dict[_Key, SharedSensor] = {}

    def adopt(self, plan: StreamPlan, sensor: Sensor) -> SharedSensor:
        """Take an open sensor for a stream. Streams of one clock share it if they adopt the same sensor."""
        shared_sensor = self._shared.get(_sensor_key(plan))
        if shared_sensor is None or shared_sensor.sensor is not sensor:
            shared_sensor = self._shared[_sensor_key(plan)] = SharedSensor(sensor)
        return shared_sensor

    def of(self, plan: StreamPlan) -> SharedSensor:
        """Return the sensor of a stream, opened if it is not open. Raises ConfigError if it cannot be opened."""
        if (sensor := self._shared.get(_sensor_key(plan))) is not None:
            return sensor
        if source_key := exclusive(plan.sensor):  # streams of another clock read the same standard input
            for (sensor_table, *_), shared_sensor in self._shared.items():
                if exclusive(json.loads(sensor_table)) == source_key:
                    return self.adopt(plan, shared_sensor.sensor)
        return self.adopt(plan, open_sensor(plan.sensor))

    def close(self) -> None:
        """Close every sensor."""
        for shared_sensor in self._shared.values():
            shared_sensor.sensor.close()


def open_sensors(plans: Sequence[StreamPlan]) -> list[Sensor]:
    """Open the sensor of each stream, once for equal sensors and clocks. Raises ConfigError if one cannot be opened."""
    check_shared(plans)
    config_of_key = {_sensor_key(plan): plan.sensor for plan in plans}
    sensor_of_key = {key: open_sensor(config) for key, config in config_of_key.items()}
    return [sensor_of_key[_sensor_key(plan)] for plan in plans]


def check_shared(plans: Sequence[StreamPlan]) -> None:
    """Raise a `ConfigError` if streams with different clocks or sensor tables read one exclusive source.

    They would take readings from one another. And limits on what streams tell together would take two tables of one
    pin for two sensors.
    """
    readers: dict[tuple[str, ...], _Key] = {}
    for plan in plans:
        if (source_key := exclusive(plan.sensor)) and readers.setdefault(source_key, key := _sensor_key(plan)) != key:
            raise ConfigError(f"{source_key[0]} feeds the streams of one clock and one sensor table only")


def _sensor_key(plan: StreamPlan) -> _Key:
    return json.dumps(plan.sensor, sort_keys=True), plan.epoch_us, plan.period_us
