"""One stream of a running agent."""

from __future__ import annotations

import logging
from collections.abc import Callable

from contract.errors import FuguError
from contract.status_codes import StatusCode
from edge_agent.plan import StreamPlan
from edge_agent.randomiser import Mechanism
from edge_agent.shared import SharedSensor
from edge_agent.watch import Watch
from edge_agent.window import StreamWindows

__all__ = ["Stream"]

_log = logging.getLogger(__name__)


class Stream:
    """A stream: its plan, its sensor, what it draws from, and where it is.

    Args:
        sensor: gives its readings, perhaps to others as well.
        last_tick: the last tick that was ever committed, -1 if none was.

    Attributes:
        mechanism: what to release for a tick and its state.
        next_tick: the next tick to draw for.
        finished: whether the sensor has no more readings.
        trouble: why no tick is drawn now, if none is.
        refusal: why the newest table was refused, if it was; for the journal.
        watch: over its class, if there is anything to see; for the owner only.
        ticks: how many were drawn for since the start.
        silent: how many of them had no reading.
    """

    def __init__(
        self,
        plan: StreamPlan,
        sensor: SharedSensor,
        entropy: Callable[[memoryview], None],
        last_tick: int,
        windows: StreamWindows,
    ) -> None:
        self.plan = plan
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
        self.mechanism = Mechanism(_nothing, None) if plan.noise is None else plan.noise.begin(entropy)

    def observe(self, tick: int) -> int | None:
        """The state of a tick, or none; what is wrong with the sensor is told once, to the journal only."""
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

    def _tell(self, trouble: str) -> None:
        if trouble not in self._told:
            self._told.add(trouble)
            _log.warning("stream %s: %s", self.plan.stream, trouble)

    def offer_table(self, payload: bytes) -> bool:
        """Take a table that has arrived, or say in `refusal` why not; whether it was taken."""
        if self.mechanism.offer is None:
            return False
        try:
            self.mechanism.offer(payload, self.next_tick)
        except FuguError as error:
            refusal = str(error)
        except Exception as error:  # what nobody thought of must not stop the device either
            refusal = type(error).__name__
        else:
            self.refusal = ""
            return True
        if refusal != self.refusal:
            _log.warning("table for %s refused: %s", self.plan.stream, refusal)
        self.refusal = refusal
        return False


def _nothing(_tick: int, _state: int | None) -> None:
    """Draw no symbol."""
