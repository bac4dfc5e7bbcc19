"""One stream of a running agent, and one sensor for several.

Streams of one sensor get one reading a tick, and one state where they have the same discretiser: what they tell
together is bounded only where they have one sequence of states (`fugu.contract.joint`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence

from edge_agent.config_file import ConfigError
from edge_agent.device_clock import TickClock
from edge_agent.plan import StreamPlan
from edge_agent.randomiser import Mechanism
from edge_agent.sensors import Sensor, only_one, open_sensor
from edge_agent.sensors.source import Reading
from edge_agent.watch import Watch
from edge_agent.window import StreamWindows
from fugu.contract.classify import Classifier
from fugu.contract.errors import FuguError, StatusCode, cause

__all__ = ["Sensors", "SharedSensor", "Stream", "check_shared", "open_sensors"]

_Key = tuple[str, int, int]


class SharedSensor:
    """A sensor as the streams of one clock see it; `newest` is the newest tick read, the only one with a reading."""

    def __init__(self, sensor: Sensor) -> None:
        self.sensor = sensor
        self.recorded = sensor.recorded
        self.newest = -1
        self._reading: Reading | None = None
        self._discretisers: dict[str, Classifier] = {}

    @property
    def trouble(self) -> str:
        """The sensor's newest problem."""
        return self.sensor.trouble

    def read(self, tick: int) -> Reading | None:
        """The reading of a tick, the same for whoever asks for it until somebody asks for a later one."""
        if tick > self.newest:
            self.newest, self._reading = tick, self.sensor.read(tick)
        return self._reading if tick == self.newest else None

    def finished(self, tick: int) -> bool:
        """True if there will be no tick any more."""
        return self.sensor.finished(tick)

    def discretiser(self, document: dict[str, object]) -> Classifier:
        """The discretiser of a document, the same for all streams and versions that have it: it may have a memory."""
        return self._discretisers.setdefault(json.dumps(document, sort_keys=True), Classifier(document))


class Sensors:
    """The sensors of a device's streams; streams of equal sensors and clocks have the same."""

    def __init__(self) -> None:
        self._shared: dict[_Key, SharedSensor] = {}

    def adopt(self, plan: StreamPlan, sensor: Sensor) -> SharedSensor:
        """Take a sensor that is open; the same for several streams is shared by those of one clock."""
        found = self._shared.get(_key(plan))
        if found is None or found.sensor is not sensor:
            found = self._shared[_key(plan)] = SharedSensor(sensor)
        return found

    def of(self, plan: StreamPlan) -> SharedSensor:
        """The sensor of a stream, opened if it is not open. Raises ConfigError if it cannot be."""
        if (found := self._shared.get(_key(plan))) is not None:
            return found
        if what := only_one(plan.sensor):  # there is one standard input, whatever the clock of those who read it
            for (table, *_), shared in self._shared.items():
                if only_one(json.loads(table)) == what:
                    return self.adopt(plan, shared.sensor)
        return self.adopt(plan, open_sensor(plan.sensor))

    def close(self) -> None:
        """Close every sensor."""
        for shared in self._shared.values():
            shared.sensor.close()


def open_sensors(plans: Sequence[StreamPlan]) -> list[Sensor]:
    """Open for each stream its sensor, one for equal sensors and clocks. Raises ConfigError if that cannot be."""
    check_shared(plans)
    opened: dict[_Key, Sensor] = {}
    for plan in plans:
        if _key(plan) not in opened:
            opened[_key(plan)] = open_sensor(plan.sensor)
    return [opened[_key(plan)] for plan in plans]


def check_shared(plans: Sequence[StreamPlan]) -> None:
    """Raise a `ConfigError` for streams that would take readings from one another.

    Two tables of one pin would also be two sensors where limits of what streams tell together are concerned.
    """
    readers: dict[tuple[str, ...], _Key] = {}
    for plan in plans:
        if (what := only_one(plan.sensor)) and readers.setdefault(what, _key(plan)) != _key(plan):
            raise ConfigError(f"{what[0]} feeds the streams of one clock and one sensor table only")


def _key(plan: StreamPlan) -> _Key:
    return json.dumps(plan.sensor, sort_keys=True), plan.epoch_us, plan.period_us


_log = logging.getLogger(__name__)


class Stream:
    """A stream: its plan, its sensor, what it draws from, and where it is.

    `clock` counts the ticks of all streams of an epoch and a period. `last_tick` is the last ever committed, or -1.

    Attributes:
        drawn_us: elapsed time at which it, or one of its clock, may have been drawn for last, if any was.
        trouble: why no tick is drawn now, if none is.
        refusal: why the newest table was refused, if it was; for the journal.
        watch: over its class, if there is anything to see; for the owner only.
        ticks, silent: how many were drawn for since the start, and how many of them had no reading.
    """

    def __init__(
        self,
        plan: StreamPlan,
        clock: TickClock,
        sensor: SharedSensor,
        entropy: Callable[[memoryview], None],
        last_tick: int,
        windows: StreamWindows,
    ) -> None:
        self.plan = plan
        self.clock = clock
        self.drawn_us: int | None = None
        self.sensor = sensor
        self.windows = windows
        self.discretiser = sensor.discretiser(plan.discretiser)
        self.last_tick = last_tick
        self.next_tick = last_tick + 1
        self.finished = False
        self.trouble: StatusCode | None = None
        self.refusal = ""
        self.ticks = 0
        self.watch = None if plan.watch is None else Watch(len(plan.discretiser["states"]), plan.watch)
        self.silent = 0
        self._told: set[str] = set()
        nothing = Mechanism(lambda _tick, _state, _shift: None, None)
        self.mechanism = nothing if plan.noise is None else plan.noise.begin(entropy)

    def observe(self, tick: int) -> int | None:
        """The state of a tick, or None; what is wrong with the sensor is told once, to the journal only."""
        reading = self.sensor.read(tick)
        state = self.discretiser.observe(tick, None if reading is None else reading.reveal())
        self.ticks += 1
        if self.watch is not None:
            self.watch.observe(tick, state)
        self.silent += reading is None
        if self.sensor.trouble:
            self._tell(f"sensor: {self.sensor.trouble}")
        if self.discretiser.unusable:
            self._tell("a reading is no number, category or place of its policy")
        return state

    def first_share_us(self, now_us: int) -> int | None:
        """Wall time at which its first whole window or full frame leaves; None if it draws nothing."""
        tick = max(self.next_tick, self.clock.at(now_us) + 1)
        ends = [window.last(window.first_from(tick)) for window in self.plan.windows]
        if self.plan.noise is not None:
            ends.append(tick + self.plan.frame_ticks - 1)
        return self.clock.time_of(min(ends)) if ends else None

    def _tell(self, trouble: str) -> None:
        if trouble not in self._told:
            self._told.add(trouble)
            _log.warning("stream %s: %s", self.plan.stream, trouble)

    def offer_table(self, payload: bytes) -> bool:
        """Take a table that has arrived, or say in `refusal` why not."""
        if self.mechanism.offer is None:
            return False
        try:
            self.mechanism.offer(payload, self.next_tick)
        except FuguError as error:
            refusal = str(error)
        except Exception as error:  # what nobody thought of must not stop the device either
            refusal = cause(error)
        else:
            self.refusal = ""
            return True
        if refusal != self.refusal:
            _log.warning("table for %s refused: %s", self.plan.stream, refusal)
        self.refusal = refusal
        return False
