"""Plans, clocks and runs for tests of the agent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_agent.agent import Agent
from edge_agent.device_clock import DeviceClock
from edge_agent.enrolled import policy_form
from edge_agent.outbox import Outbox
from edge_agent.plan import AgentPlan, ClockSettings, StreamPlan
from edge_agent.randomiser import SymbolNoise, system_entropy
from edge_agent.sensors.replay import ReplaySensor
from fugu.contract.compiled import AgentWindow
from fugu.contract.compiler import compile_discretiser, compile_policy
from fugu.contract.discretisers import Thresholds
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policies import AnyPolicy
from fugu.core.policy import NONE
from fugu.host.process import Wake
from fugu.mqtt import Broker
from tests.support.brokers import PATIENCE, await_end, wait_until
from tests.support.outboxes import symbol_frames, window_frames

SECOND = 1_000_000
COIN = NoiseTable(((1 << 31,), (1 << 31,)))
THRESHOLD = compile_discretiser(Thresholds(edges=(0.5,), states=("low", "high")))


def stream_plan(table: NoiseTable = COIN, **changes: Any) -> StreamPlan:
    """A stream of one tick a second since the epoch, ten ticks a frame."""
    plan = StreamPlan(
        stream="hr",
        version=1,
        valid_from=0,
        valid_until=None,
        epoch_us=0,
        period_us=1_000_000,
        frame_ticks=10,
        noise=SymbolNoise(table),
        discretiser=THRESHOLD,
        sensor={},
        windows=(),
        sums=(),
        watch=None,
        noise_bound="",
    )
    return replace(plan, **changes)


def window_plan(**changes: Any) -> AgentWindow:
    """Ten ticks at a time, how many are in state 1, next to no noise: above 0 with a probability below e^-99."""
    window = AgentWindow()
    vars(window).update(name="high", start=0, length=10, stride=changes.get("length", 10), counts=1)
    vars(window).update(places=(NONE, 0, NONE), numerator=1, denominator=100)
    vars(window).update(changes)
    return window


def agent_plan(folder: Path, broker: Broker, *streams: StreamPlan, **changes: Any) -> AgentPlan:
    plan = AgentPlan(
        fleet="home",
        device="watch",
        outbox=str(folder / "outbox.sqlite"),
        broker=broker,
        forget="puback",
        drain_seconds=PATIENCE,
        status_seconds=1.0,
        grace_seconds=0.0,
        clock=ClockSettings(trusted=True),
        streams=streams or (stream_plan(),),
        program="1",
        managed=None,
        durability="frame",
        max_bytes=64 << 20,
        when_full="stop",
        binding="auto",
        descriptions={},
        groups=(),
        config="",
    )
    return replace(plan, **changes)


class JumpingClock:
    """A clock that stands still until somebody waits, and then jumps to the end of the wait."""

    def __init__(self, now_us: int = 0) -> None:
        self.now = now_us
        self._lock = threading.Lock()

    def now_us(self) -> int:
        return self.now

    def elapsed_us(self) -> int:
        """Nobody sets this clock: what passes on it has passed."""
        return self.now

    def synchronised(self) -> bool:
        return True

    def boot(self) -> str:
        return ""

    def wait(self, wake: Wake, seconds: float) -> None:
        with self._lock:
            self.now += max(1, int(seconds * 1e6))


def device_clock(clock: JumpingClock) -> DeviceClock:
    """A device's clock, of which nothing is kept."""
    return DeviceClock(clock, ClockSettings(), None, lambda _anchor: None)


@contextmanager
def running(agent: Agent) -> Iterator[threading.Thread]:
    """Let an agent run in a thread, and stop it in order."""
    thread = threading.Thread(target=agent.run, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        agent.stop()
        await_end(thread)


def run(plan: AgentPlan, clock: JumpingClock, until: Callable[[], bool]) -> None:
    """Run an agent in a thread until a condition holds, then stop it in order."""
    agent = Agent(plan, [ReplaySensor([0.0, 1.0], loop=True) for _ in plan.streams], system_entropy(), clock)
    with running(agent):
        wait_until(until)


def frames_left(plan: AgentPlan) -> list[SymbolFrame]:
    with closing(Outbox(plan.outbox, plan.fleet, plan.device)) as outbox:
        return symbol_frames(outbox)


def ticks(frames: list[SymbolFrame]) -> list[int]:
    """The ticks that frames cover, in their order."""
    return [f.first + i for f in frames for i in range(len(f.symbols))]


def plan_of(policy: AnyPolicy, sensor: dict[str, Any] | None = None, **changes: Any) -> StreamPlan:
    """The plan of a policy that has been verified."""
    form = json.loads(json.dumps(policy_form(policy, compile_policy(policy))))
    return replace(StreamPlan.of(form, sensor or {}), **changes)


def windows_left(plan: AgentPlan) -> list[WindowFrame]:
    with closing(Outbox(plan.outbox, plan.fleet, plan.device)) as outbox:
        return window_frames(outbox)


def nowhere(folder: Path, *windows: AgentWindow, **changes: Any) -> AgentPlan:
    """A plan whose broker is not there; its sensor alternates, so half of all ticks are high."""
    stream = stream_plan(windows=windows or (window_plan(),), **changes)
    return agent_plan(folder, Broker(port=9), stream, drain_seconds=0.0, forget="committed")


def ticks_left(plan: AgentPlan) -> list[int]:
    return ticks(frames_left(plan))
