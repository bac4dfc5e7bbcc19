"""Plans and clocks for tests of the agent."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_agent.plan import AgentPlan, StreamPlan, WindowPlan
from mqtt_link import Broker
from mqtt_link.wake import Wake

COIN = ((1 << 31,), (1 << 31,))
THRESHOLD = {
    "kind": "thresholds",
    "edges": [0.5],
    "states": ["low", "high"],
    "hysteresis": 0.0,
    "hysteresis_ticks": 10,
    "missing": None,
}


def stream_plan(**changes: Any) -> StreamPlan:
    """A stream of one tick a second since the epoch, ten ticks a frame."""
    plan = StreamPlan(
        stream="hr",
        version=1,
        valid_from=0,
        valid_until=None,
        epoch_us=0,
        period_us=1_000_000,
        frame_ticks=10,
        rows=COIN,
        discretiser=THRESHOLD,
        sensor={},
    )
    return replace(plan, **changes)


def window_plan(**changes: Any) -> WindowPlan:
    """Ten ticks at a time, how many are in state 1, next to no noise: above 0 with a probability below e^-99."""
    plan = WindowPlan(
        name="high",
        start=0,
        length=10,
        stride=changes.get("length", 10),
        counts=1,
        places=(None, 0, None),
        scale_numerator=1,
        scale_denominator=100,
    )
    return replace(plan, **changes)


def agent_plan(folder: Path, broker: Broker, *streams: StreamPlan, **changes: Any) -> AgentPlan:
    """A device `watch` of fleet `home`."""
    plan = AgentPlan(
        fleet="home",
        device="watch",
        outbox=str(folder / "outbox.sqlite"),
        broker=broker,
        forget="puback",
        drain_seconds=20.0,
        status_seconds=1.0,
        streams=streams or (stream_plan(),),
    )
    return replace(plan, **changes)


class JumpingClock:
    """A clock that stands still until somebody waits, and then jumps to the end of the wait."""

    def __init__(self, now_us: int = 0) -> None:
        self.now = now_us
        self._lock = threading.Lock()

    def now_us(self) -> int:
        """The moment it stands at."""
        return self.now

    def wait(self, wake: Wake, seconds: float) -> None:
        """Jump."""
        with self._lock:
            self.now += max(1, int(seconds * 1e6))
