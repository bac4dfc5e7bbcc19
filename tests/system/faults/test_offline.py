"""A device that was away for long: how much it keeps, and that all of it arrives, in order."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fugu.host.process import Wake
from fugu.mqtt import Broker
from tests.support.agents import JumpingClock, agent_plan, plan_of, run
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.processes import AgentProcess, GatewayProcess, Recorder, policy, write_device
from tests.support.soak import only

SECOND = 1_000_000
FRAME_TICKS = 100
TWO_DAYS = 172_800
MOST_BYTES = 1.4e6


class EndingClock(JumpingClock):
    """A clock that stands still at its end: whoever stops the agent may be late."""

    def __init__(self, now_us: int, end_us: int) -> None:
        super().__init__(now_us)
        self.end_us = end_us

    def wait(self, wake: Wake, seconds: float) -> None:
        super().wait(wake, seconds)
        self.now = min(self.now, self.end_us)


@pytest.mark.long
@pytest.mark.parametrize("ticks", only([600], [600, TWO_DAYS]), ids=["10 minutes", "two days"])
def test_a_device_that_was_offline_drains_in_order(broker: Mosquitto, tmp_path: Path, ticks: int) -> None:
    """The agent draws on a virtual clock, without a broker; the real process then sends what it finds."""
    begun = time.time_ns() // 1000 - (ticks + 2 * FRAME_TICKS) * SECOND  # frames are drawn whole, ahead of their time
    device = policy(epoch_us=begun, period_us=SECOND, frame_ticks=FRAME_TICKS)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "watch.json").write_text(device.to_json())
    (tmp_path / "night.csv").write_text("value\n0\n1\n1\n")
    config = write_device(
        tmp_path / "watch", device, tmp_path / "night.csv", "value", Broker(port=broker.port), drain_seconds=PATIENCE
    )
    away = agent_plan(tmp_path / "watch", Broker(port=9), plan_of(device), forget="committed", drain_seconds=0.0)
    clock = EndingClock(begun, begun + ticks * SECOND)
    run(away, clock, lambda: clock.now == clock.end_us)
    size = sum(path.stat().st_size for path in (tmp_path / "watch").glob("outbox.sqlite*"))
    gateway = GatewayProcess(tmp_path, broker.port)
    wait_until(gateway.hears, "the gateway")
    recorder = Recorder(Broker(port=broker.port))
    agent = AgentProcess(config, tmp_path / "agent.log")
    wait_until(lambda: recorder.payloads, "the first frame")
    first = time.monotonic()
    wait_until(lambda: gateway.counters()["stored"] >= ticks // FRAME_TICKS, "the gateway to have all of it")
    seconds = time.monotonic() - first
    assert agent.stop() == 0, (tmp_path / "agent.log").read_text()
    assert gateway.stop() == 0
    print(f"{ticks} ticks: {size / 1e6:.2f} MB in the outbox, drained in {seconds:.2f} s")
    frames = gateway.frames()
    sent = sorted({(frame.first, frame.previous, frame.last) for frame in recorder.frames()})
    assert [previous for _, previous, _ in sent] == [-1, *(last for _, _, last in sent[:-1])]
    stored = [tick for frame in frames for tick in range(frame.first, frame.last + 1)]
    assert stored == [tick for first, _, last in sent for tick in range(first, last + 1)]
    assert len(stored) >= ticks
    arrived = [frame.first for frame in recorder.frames()]
    assert list(dict.fromkeys(arrived)) == sorted(set(arrived)), "the oldest first"
    assert size < MOST_BYTES * ticks / TWO_DAYS + (0 if ticks == TWO_DAYS else 200_000)
