"""A measured stream end to end: real agent, gateway and Mosquitto; tables from the gateway, restarts and losses."""

from __future__ import annotations

import random
import time
from pathlib import Path

from edge_agent.outbox import Outbox
from firmware_sim.devices import simulate_recording
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.reports import ValueEstimate
from fugu.contract.topics import topic_of
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.measured import grid, measure_policy
from tests.support.outboxes import measure_frames
from tests.support.processes import AgentProcess, GatewayProcess, Recorder, write_device
from tests.support.simulated_states import simulate_states
from tests.support.stored import stored_points

PERIOD_US = 20_000


def now_us() -> int:
    return time.time_ns() // 1000


def goes_on(gateway: GatewayProcess) -> None:
    """Wait until more frames than are durable now are."""
    count = len(stored_points(gateway.store))
    wait_until(lambda: len(stored_points(gateway.store)) > count + 1)


def points(frames: list[MeasureFrame]) -> dict[int, object]:
    """Releases of every tick; fails if two frames say different things."""
    released_at: dict[int, object] = {}
    for frame in frames:
        for tick, released in enumerate(frame.released, frame.first):
            if released is not None:
                assert released_at.setdefault(tick, released) == released, f"tick {tick} was released twice"
    return released_at


def smoothed(reports: Recorder) -> list[int]:
    """The ticks that were told with the points of later ones."""
    return [row.tick for payload in list(reports.payloads) for row in ValueEstimate.decode(payload).smoothed]


def test_tables_come_from_the_gateway_and_nothing_is_lost(broker: Mosquitto, tmp_path: Path) -> None:
    """The policy has only its fallback; the device starts alone, then a gateway sends tables, and both are killed."""
    policy = measure_policy(
        10, tables=False, start=0, delta=0.05, factor=9, clock={"epoch_us": now_us(), "period_us": PERIOD_US}
    )
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "place.json").write_text(policy.to_json())
    generator = random.Random(3)
    path = simulate_states(grid(10)[1].tolist(), 20_000, generator)
    simulate_recording(tmp_path / "walk.csv", policy, path)
    config = write_device(
        tmp_path / "watch",
        policy,
        tmp_path / "walk.csv",
        "value",
        broker.broker,
        status_seconds=1,
        drain_seconds=PATIENCE,  # what came to the new broker before the gateway did is sent again after ten seconds
    )
    seen = Recorder(broker.broker)
    sent = Recorder(broker.broker, topic_of("table", "home", "+", "+"))
    reports = Recorder(broker.broker, topic_of("estimate", "home", "+", "+"))
    agent = AgentProcess(config, tmp_path / "agent.log")
    gateway = None
    wait_until(lambda: len(seen.payloads) >= 2)
    first = points([MeasureFrame.decode(payload) for payload in list(seen.payloads)])
    assert {released.table for released in first.values()} == {0}, "without a gateway only the fallback is there"
    gateway = GatewayProcess(tmp_path, broker.port)
    wait_until(lambda: any(r.table > 0 for r in points(stored_points(gateway.store)).values()))
    assert sent.payloads
    wait_until(lambda: len(smoothed(reports)) > 50)
    assert len(smoothed_ticks := smoothed(reports)) == len(set(smoothed_ticks)), (
        "each tick once, as long as nothing is killed"
    )
    # A staircase, where the factor does not widen the hull; on a busy machine others come first.
    wait_until(lambda: min(map(len, list(sent.payloads))) < 200, "a staircase")
    for _ in range(3):
        agent.kill()
        agent = AgentProcess(config, tmp_path / "agent.log")
        goes_on(gateway)
        gateway.kill()
        gateway = GatewayProcess(tmp_path, broker.port)
        goes_on(gateway)
    broker.kill()
    broker.start()
    goes_on(gateway)
    assert agent.stop() == 0
    outbox = Outbox(tmp_path / "watch" / "outbox.sqlite", "home", "watch")
    assert measure_frames(outbox) == [], "everything is durable in the gateway"
    outbox.close()
    assert gateway is None or gateway.stop() == 0, (tmp_path / "gateway.log").read_text()
    arrived = points(stored_points(gateway.store))
    delivered = points([MeasureFrame.decode(payload) for payload in seen.payloads])
    assert all(arrived[tick] == released for tick, released in delivered.items() if tick in arrived)
    assert set(delivered) <= set(arrived)
