"""One sensor for several streams: those of one clock get one reading a tick.

They also get one state where they have the same discretiser. What they tell together is bounded only where they have
one sequence of states (`fugu.contract.joint`).
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
_FAULT = "it raises an exception, and none should: please report it"


class SharedSensor:
    """A sensor as the streams of one clock see it; `newest` is the newest tick read, the only one with a reading.

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
        """The sensor's newest problem."""
        return self._fault or self._safely(lambda: self.sensor.trouble, _FAULT)

    def read(self, tick: int) -> Reading | None:
        """The reading of a tick, the same for whoever asks for it until somebody asks for a later one."""
        if tick > self.newest:
            self.newest, self._reading = tick, self._safely(lambda: self.sensor.read(tick), None)
        return self._reading if tick == self.newest else None

    def finished(self, tick: int) -> bool:
        """True if there will be no tick any more."""
        return self._safely(lambda: self.sensor.finished(tick), False)

    def _safely(self, call: Callable[[], _T], fallback: _T) -> _T:
        try:
            return call()
        except Exception:  # its text and its class may hold a reading
            self._fault = _FAULT
            return fallback

    def discretiser(self, compiled: bytes) -> Classifier:
        """The running form of a discretiser, the same for all streams and versions that have it: it may remember."""
        return self._discretisers.setdefault(compiled, classifier_of(compiled))


class Sensors:
    """The sensors of a device's streams; streams of equal sensors and clocks have the same."""

    def __init__(self) -> None:
        self._shared: dict[_Key, SharedSensor] = {}

    def adopt(self, plan: StreamPlan, sensor: Sensor) -> SharedSensor:
        """Take a sensor that is open; the same for several streams is shared by those of one clock."""
        shared_sensor = self._shared.get(_key(plan))
        if shared_sensor is None or shared_sensor.sensor is not sensor:
            shared_sensor = self._shared[_key(plan)] = SharedSensor(sensor)
        return shared_sensor

    def of(self, plan: StreamPlan) -> SharedSensor:
        """The sensor of a stream, opened if it is not open. Raises ConfigError if it cannot be."""
        if (sensor := self._shared.get(_key(plan))) is not None:
            return sensor
        if source_key := exclusive(plan.sensor):  # there is one standard input, whatever the clock of those who read it
            for (sensor_table, *_), shared_sensor in self._shared.items():
                if exclusive(json.loads(sensor_table)) == source_key:
                    return self.adopt(plan, shared_sensor.sensor)
        return self.adopt(plan, open_sensor(plan.sensor))

    def close(self) -> None:
        """Close every sensor."""
        for shared_sensor in self._shared.values():
            shared_sensor.sensor.close()


def open_sensors(plans: Sequence[StreamPlan]) -> list[Sensor]:
    """Open for each stream its sensor, one for equal sensors and clocks. Raises ConfigError if that cannot be."""
    check_shared(plans)
    sensor_of_key: dict[_Key, Sensor] = {}
    for plan in plans:
        if _key(plan) not in sensor_of_key:
            sensor_of_key[_key(plan)] = open_sensor(plan.sensor)
    return [sensor_of_key[_key(plan)] for plan in plans]


def check_shared(plans: Sequence[StreamPlan]) -> None:
    """Raise a `ConfigError` for streams that would take readings from one another.

    Two tables of one pin would also be two sensors where limits of what streams tell together are concerned.
    """
    reader_of_source: dict[tuple[str, ...], _Key] = {}
    for plan in plans:
        if (source_key := exclusive(plan.sensor)) and reader_of_source.setdefault(source_key, _key(plan)) != _key(plan):
            raise ConfigError(f"{source_key[0]} feeds the streams of one clock and one sensor table only")


def _key(plan: StreamPlan) -> _Key:
    return json.dumps(plan.sensor, sort_keys=True), plan.epoch_us, plan.period_us
