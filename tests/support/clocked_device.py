"""The ticks of an agent on two clocks that a test moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from edge_agent.device_clock import DeviceClock
from edge_agent.outbox import Outbox
from edge_agent.plan import ClockSettings, StreamPlan
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.source import Reading, Sensor, SensorUpdate
from edge_agent.ticker import Ticker
from fugu.core.clocks import MADE_UP
from tests.support.agents import stream_plan
from tests.support.clocks import SECOND, TwoClocks

__all__ = ["Device", "Live", "check"]


class Live:
    """A sensor with one reading for ever, of which no past ones are known."""

    recorded, trouble = False, ""

    def poll(self, tick: int) -> SensorUpdate:
        return SensorUpdate(self.read(tick), None)

    def read(self, _tick: int) -> Reading | None:
        return Reading(1.0)

    def finished(self, _tick: int) -> bool:
        return False


class Device:
    """Ticks of some streams on two clocks; `run` lets time pass in small steps, as an agent's loop does."""

    entropy: Callable[[memoryview], None] | None = None
    helpers: Any = None
    sensor: Callable[[], Sensor] = Live

    def __init__(
        self, folder: Path, clocks: TwoClocks, *plans: StreamPlan, settings: ClockSettings | None = None
    ) -> None:
        self.folder, self.clocks, self.plans = folder, clocks, plans or (stream_plan(),)
        self.settings = settings or ClockSettings()
        self.drawn: list[tuple[int, int, int]] = []
        self.start()

    def start(self) -> None:
        self.outbox = Outbox(self.folder / "outbox.sqlite", "home", "watch")
        self.time = DeviceClock(self.clocks, self.settings, self.outbox.anchor(), self.outbox.keep_anchor)
        entropy = self.entropy or system_entropy()
        self.ticks = Ticker(self.outbox, self.time, entropy, silence_code=lambda _now: None, helpers=self.helpers)
        sensors: Sequence[Sensor] = [self.sensor() for _ in self.plans]
        self.ticks.begin(self.plans, sensors)
        append = self.outbox.append

        def noted(plan: StreamPlan, tick: int, drawn: bytes | None) -> None:
            self.drawn.append((tick, self.outbox.shift(plan.stream)[0], self.clocks.elapsed))
            append(plan, tick, drawn)

        self.outbox.append = noted

    def crash(self) -> None:
        self.outbox._db.close()

    def stop(self) -> None:
        self.ticks.finish()
        self.outbox.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def run(self, seconds: float, step: float = 0.25) -> None:
        for _ in range(round(seconds / step)):
            self.clocks.pass_us(round(step * SECOND))
            self.ticks.catch_up()

    @property
    def numbers(self) -> list[int]:
        return [tick for tick, _, _ in self.drawn]


def check(drawn: Sequence[tuple[int, int, int]], period: int, multiple: int = 1) -> None:
    """Rules that always hold: numbers ascend, never two within a period, the shift does not fall."""
    for (tick, shift, at), (later, later_shift, later_at) in pairwise(drawn):
        assert later > tick
        assert later_at - at >= period - period // MADE_UP
        assert later_shift >= shift
    assert all(shift % multiple == 0 and shift <= tick for tick, shift, _ in drawn)
