"""An agent that releases points: at a broker that is hostile, with its owner's consent, across restarts."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgpack
import pytest

from edge_agent.agent import MOST_WAITING, MOST_WAITING_BYTES, Agent
from edge_agent.config import check_in_child, load
from edge_agent.outbox import Outbox
from edge_agent.plan import AgentPlan
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.replay import ReplaySensor
from edge_agent.sensors.source import ConfigError
from edge_agent.ticker import Stream
from fugu.contract.errors import GuaranteeError, StatusCode
from fugu.contract.frames import Status
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker, Link
from tests.support.agents import SECOND, JumpingClock, agent_plan, plan_of, running
from tests.support.brokers import Mosquitto, await_end, wait_until
from tests.support.measured import measure_policy
from tests.support.outboxes import measure_frames
from tests.support.processes import Recorder, write_device
from tests.support.walk_tables import FULL, MARKED, message, plan

# At a real broker


class Running:
    """An agent in a thread, and a gateway's connection."""

    def __init__(self, plan: AgentPlan, broker: Mosquitto, clock: JumpingClock | None = None) -> None:
        self.agent = Agent(plan, [ReplaySensor(["c0", "c1", "c4"], loop=True)], system_entropy(), clock)
        self.frames = Recorder(broker.broker)
        self.statuses = Recorder(broker.broker, topic_of("status", "home", "+"))
        self.gateway = Link(broker.broker, client_id="gateway")
        self.gateway.start()
        self._thread = threading.Thread(target=self.agent.run)
        self._thread.start()
        wait_until(lambda: self.gateway.connected and self.statuses.payloads)

    def say(self, payload: bytes, topic: str = topic_of("table", "home", "watch", "place")) -> None:
        self.gateway.publish(topic, payload)

    @property
    def stream(self) -> Stream:
        return self.agent._ticker.streams[0]

    def codes(self) -> tuple[StatusCode, ...]:
        return Status.decode(self.statuses.payloads[-1]).codes

    def stop(self) -> None:
        self.agent.stop()
        await_end(self._thread)
        for link in (self.gateway, self.frames.link, self.statuses.link):
            link.stop()
        assert not self._thread.is_alive()


def stored_frames(plan: AgentPlan) -> list[MeasureFrame]:
    with closing(Outbox(plan.outbox, "home", "watch")) as outbox:
        return measure_frames(outbox)


def used(frames: list[MeasureFrame]) -> dict[int, int]:
    """The table of every tick; fails if a tick was drawn twice."""
    tables: dict[int, int] = {}
    for frame in frames:
        for tick, released in enumerate(frame.released, frame.first):
            if released is not None:
                assert tick not in tables
                tables[tick] = released.table
    return tables


def test_a_refused_table_is_said_so_and_a_good_one_is_used(broker: Mosquitto, tmp_path: Path) -> None:
    """Stale, broken and hostile tables, and messages that nobody subscribed to; until then the fallback is used."""
    policy = measure_policy(3, tables=False)
    period = 20_000
    epoch = time.time_ns() // 1000 - 1000 * period
    plan = agent_plan(
        tmp_path,
        broker.broker,
        plan_of(policy, epoch_us=epoch, period_us=period),
        forget="committed",
        drain_seconds=0.0,
    )
    scene = Running(plan, broker)
    try:
        scene.say(message(FULL, until=900))
        wait_until(lambda: scene.codes() == (StatusCode.TABLE_REFUSED,))
        assert scene.stream.refusal == "table 7 is stale: it ended at tick 900"
        for payload, text in (
            (b"\x08\xc1", "no msgpack message"),
            (b"\x08" + msgpack.packb([1, 5, b"\x03", 0, 10, 0, [[[0, 0]], 2, b""]]), "points has length 1"),
            (message(MARKED), "some point tells"),
            (message(FULL, policy_version=3), "is for policy version 3"),
        ):
            scene.say(payload)
            wait_until(lambda text=text: text in scene.stream.refusal)
        scene.agent._take_message("no/topic/of/ours", b"\x02")
        scene.agent._take_message(topic_of("committed", "home", "other"), b"\x02")
        assert scene.agent.refused.total() == 7
        scene.say(message(FULL))
        wait_until(lambda: not scene.codes())
        seen = len(scene.frames.payloads)
        wait_until(lambda: len(scene.frames.payloads) > seen + 3)
    finally:
        scene.stop()
    tables = used(stored_frames(plan))
    changes = [tick for tick in sorted(tables)[1:] if tables[tick] != tables.get(tick - 1, tables[tick])]
    assert len(changes) == 1
    assert {tables[tick] for tick in tables if tick < changes[0]} == {0}
    assert {tables[tick] for tick in tables if tick >= changes[0]} == {7}


def test_a_flood_of_messages_neither_fills_the_memory_nor_stops_the_ticks(tmp_path: Path) -> None:
    policy = measure_policy(3, tables=False)
    plan = agent_plan(tmp_path, Broker(port=9), plan_of(policy), forget="committed", drain_seconds=0.0)
    agent = Agent(plan, [ReplaySensor(["c0"], loop=True)], system_entropy(), clock := JumpingClock(0))
    agent._queue_message(topic_of("table", "home", "watch", "place"), bytes(MOST_WAITING_BYTES + 1))
    assert (agent.refused["too_many"], agent._events.qsize()) == (1, 0)
    for _ in range(MOST_WAITING + 5):
        agent._queue_message(topic_of("table", "home", "watch", "place"), message(MARKED))
    assert (agent.refused["too_many"], agent._events.qsize()) == (6, MOST_WAITING)
    with running(agent):
        wait_until(lambda: agent.refused["table"] == MOST_WAITING and clock.now > 30 * SECOND)
    assert sorted(used(stored_frames(plan)))[:20] == list(range(1, 21))


# Configuration


def config(folder: Path, policy: MeasurePolicy, **changes: Any) -> Path:
    path = write_device(folder, policy, folder / "walk.csv", "value", Broker())
    text = "\n".join(line for line in path.read_text().splitlines() if line.partition(" ")[0] not in changes)
    lines = [f"{name} = {value}" for name, value in changes.items() if value is not None]
    path.write_text("\n".join([*lines, text]) + "\n")
    return path


@pytest.mark.parametrize(
    ("ceiling", "text"),
    [
        (None, "is for measurements, whose epsilon is of another kind: set measurement_ceiling to the most that one"),
        (0.999, "epsilon 1 of each point of stream place is above this device's ceiling for measurements 0.999"),
        (0.0, "measurement_ceiling: must be above 0"),
        ("true", "measurement_ceiling: must be a number"),
    ],
)
def test_without_the_owners_consent_a_device_does_not_start(tmp_path: Path, ceiling: object, text: str) -> None:
    path = config(tmp_path / "watch", measure_policy(3), measurement_ceiling=ceiling)
    for begin in (lambda: load(path), check_in_child(path)):
        with pytest.raises((ConfigError, GuaranteeError), match=text) as refusal:
            begin()
        assert "\n" not in str(refusal.value)


def test_with_consent_it_starts_with_what_was_verified(tmp_path: Path) -> None:
    policy = measure_policy(3, start=0)
    path = config(tmp_path / "watch", policy, measurement_ceiling=1.0)
    for read_config in (load(path), check_in_child(path)()):
        (stream,) = read_config.streams
        assert stream.noise == plan(policy)


# Frames and restarts


def test_a_frame_may_hold_points_of_several_tables_and_a_restart_goes_on(tmp_path: Path) -> None:
    """The walk begins at the epoch: the fallback for four ticks, then the table; frames are of one size."""
    policy = measure_policy(3, start=0)
    plan = agent_plan(tmp_path, Broker(port=9), plan_of(policy), forget="committed", drain_seconds=0.0)

    def run(since: int, through: int) -> None:
        clock = JumpingClock(since)
        agent = Agent(plan, [ReplaySensor(["c0", "c1", "c4"], loop=True)], system_entropy(), clock)
        with running(agent):
            wait_until(lambda: clock.now > through * SECOND)

    run(-SECOND, 25)
    first = stored_frames(plan)
    assert first[0].first == 0
    assert [point.table for point in first[0].released if isinstance(point, Released)] == [0] * 4 + [1] * 6
    run(first[-1].last * SECOND, 60)  # a tick comes a period after a start, or later
    frames = stored_frames(plan)
    assert frames[: len(first)] == first, "what was drawn is never drawn again"
    tables = used(frames)
    assert sorted(tables) == list(range(len(tables)))
    assert {tables[tick] for tick in range(4, len(tables))} == {1}
    assert {len(frame.released) + frame.padding for frame in frames} == {10}
    assert all(later.previous == earlier.last for earlier, later in pairwise(frames))
