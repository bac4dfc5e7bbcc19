"""Points are drawn by the table in force, and nothing that arrives weakens that, stops the device, or slows it down."""

from __future__ import annotations

import math
import random
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from edge_agent.agent import MOST_WAITING, MOST_WAITING_BYTES, Agent
from edge_agent.config import check_in_child, load
from edge_agent.config_file import ConfigError
from edge_agent.measurer import MAX_TABLE_BYTES, Measurer, PointSource, TableRefusedError
from edge_agent.outbox import Outbox
from edge_agent.plan import AgentPlan
from edge_agent.randomiser import system_entropy
from edge_agent.sensors import ReplaySensor
from edge_agent.stream import SharedSensor, Stream
from edge_agent.tick_clock import TickClock
from edge_agent.window import StreamWindows
from firmware_sim.devices import write_device
from fugu.contract.discrete_laplace import SCALE
from fugu.contract.errors import FrameError, FuguError, GuaranteeError, StatusCode
from fugu.contract.frames import MAX_TICK, Status
from fugu.contract.measure_frames import MeasureFrame, Released, unpack_released
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import MOST_HELD, Noise, StaircaseNoise, TimedTable, members, set_of
from fugu.contract.noise_table import NoiseTable
from fugu.contract.staircase import Staircase
from fugu.contract.topics import committed_topic, status_topic, table_topic
from fugu.mqtt import Broker, Link
from gateway.service.kinds.point_model import MeasureModel
from gateway.service.table_sender import make_noise
from tests.support.agents import JumpingClock, agent_plan, measured_plan
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.measured import measure_policy
from tests.support.outboxes import measure_frames
from tests.support.processes import Recorder
from tests.support.work import lines_run

FOR_EVER = MAX_TICK + 1
SECOND = 1_000_000
WALK = measure_policy(3, start=0, tables=False)
"""A walk from a corner of nine cells: one state is possible at tick 0, then 3, 6, 8, and all from tick 4 on."""
SETS = [MeasureModel(WALK).reach.at(tick) for tick in range(5)]


def seeded(seed: int) -> Callable[[memoryview], None]:
    """Reproducible entropy."""
    generator = random.Random(seed)

    def fill(buffer: memoryview) -> None:
        buffer[:] = generator.randbytes(len(buffer))

    return fill


def plan(policy: MeasurePolicy) -> PointSource:
    return PointSource.of(policy.model_dump(mode="json"))


def measurer(policy: MeasurePolicy = WALK, seed: int = 1) -> Measurer:
    return Measurer(plan(policy), seeded(seed))


def made(tick: int, policy: MeasurePolicy = WALK, likely: int | None = None) -> Noise:
    """What the gateway would send for the states possible at a tick."""
    model = MeasureModel(policy)
    possible = model.possible(tick)
    chosen = possible if likely is None else np.array([bool(likely >> x & 1) for x in range(len(possible))])
    noise = make_noise(model, possible, chosen).noise
    assert noise is not None
    return noise


def message(noise: Noise, number: int = 7, constraint: int = SETS[4], **changes: int) -> bytes:
    fields = {"policy_version": 1, "first": 0, "until": FOR_EVER} | changes
    return TimedTable(number=number, constraint=constraint, noise=noise, **fields).encode()


FULL = made(4)


def distribution(drawer: Measurer, tick: int, state: int, draws: int = 20_000) -> Counter[tuple[int, ...]]:
    return Counter(drawer.draw(tick, state).point for _ in range(draws))


def fits(counts: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> bool:
    """A chi-square test that a true distribution passes but once in ten thousand times."""
    assert set(counts) <= set(expected)
    total = sum(counts.values())
    cells = [(counts[point], total * p) for point, p in expected.items() if total * p >= 5]
    rest = total - sum(count for count, _ in cells), total - sum(mean for _, mean in cells)
    cells += [rest] if rest[1] >= 5 else []
    free = len(cells) - 1
    # Wilson and Hilferty: the cube root of chi-square over its mean is nearly normal.
    square = sum((count - mean) ** 2 / mean for count, mean in cells)
    return (square / free) ** (1 / 3) < 1 - 2 / (9 * free) + 3.72 * math.sqrt(2 / (9 * free))


# What is drawn


@pytest.mark.parametrize("state", [0, 4, 8])
def test_points_follow_the_table(state: int) -> None:
    drawer = measurer()
    drawer.offer(message(FULL), 0)
    assert isinstance(FULL, NoiseTable)
    distributions = [
        {point: weight / SCALE for point, weight in zip(FULL.points, FULL.row_weights(x), strict=True)}
        for x in range(9)
    ]
    drawn = distribution(drawer, 4, state)
    assert fits(drawn, distributions[state])
    assert not any(fits(drawn, distributions[other]) for other in range(9) if other != state)


def test_points_follow_a_staircase() -> None:
    """121 states; the distribution of the noise, clamped to the box, by adding up."""
    policy = measure_policy(11, tables=False, epsilon=2.0)
    noise = policy.measure_tables[0].noise
    assert isinstance(noise, StaircaseNoise)
    small = StaircaseNoise(noise.likely, noise.noise, (4, 4), (6, 6))
    drawer = measurer(policy)
    drawer.offer(message(small, constraint=0), 0)
    from fugu.places.compiled import emission

    matrix = emission(small, MeasureModel(policy).values)
    drawn = distribution(drawer, 0, 60, 6000)
    assert fits(drawn, {point: matrix.probabilities[60, column] for point, column in matrix.points.items()})
    assert set(drawn) == {(x, y) for x in (4, 5, 6) for y in (4, 5, 6)}


@pytest.mark.parametrize("tick", [1, 2, 3])
def test_a_state_that_should_not_be_possible_is_answered_for_by_its_stand_in(tick: int) -> None:
    """With the same randomness both give the same points."""
    constraint = SETS[tick]
    measurement = WALK.measurement
    for state in range(9):
        answer = state if constraint >> state & 1 else measurement.surrogate(state, members(constraint))
        drawn = []
        for one in (state, answer):
            drawer = measurer(seed=5)
            drawer.offer(message(made(tick), 7, constraint), 0)
            drawn.append([drawer.draw(tick, one) for _ in range(200)])
        assert drawn[0] == drawn[1]
        assert {one.table for one in drawn[0]} == {7}


def test_a_state_that_a_staircase_does_not_keep_is_answered_for_by_its_stand_in() -> None:
    policy = measure_policy(11, tables=False)
    noise = policy.measure_tables[0].noise
    assert isinstance(noise, StaircaseNoise)
    likely = replace(noise, likely=set_of([0, 5, 60, 120]))
    for state in (1, 59, 61, 119):
        drawn = []
        for one in (state, policy.measurement.surrogate(state, [0, 5, 60, 120])):
            drawer = measurer(policy, seed=5)
            drawer.offer(message(likely, constraint=0), 0)
            drawn.append([drawer.draw(9, one) for _ in range(50)])
        assert drawn[0] == drawn[1]


def test_the_table_in_force_is_for_the_tick_and_its_set() -> None:
    """The newest that fits, and the fallback where none does."""
    drawer = measurer()
    tables = {tick: drawer.draw(tick, 0).table for tick in range(8)}
    assert set(tables.values()) == {0}
    drawer.offer(message(made(1), 11, SETS[1]), 0)
    drawer.offer(message(made(2), 12, SETS[2], first=0, until=2), 0)  # over before its set comes
    drawer.offer(message(FULL, 14, SETS[4], first=5, until=8), 0)
    drawer.offer(message(FULL, 15, SETS[4], first=6, until=7), 0)
    assert [drawer.draw(tick, 0).table for tick in range(10)] == [0, 11, 0, 0, 0, 14, 15, 14, 0, 0]
    drawer.offer(message(FULL, 14, SETS[4], first=5, until=9), 6)  # prolonged, and now the newest
    assert [drawer.draw(tick, 0).table for tick in range(5, 10)] == [14, 14, 14, 14, 0]


def test_where_one_state_is_possible_the_fallback_is_used() -> None:
    """Even if there is a table for any set."""
    drawer = measurer()
    drawer.offer(message(WALK.measure_tables[0].noise, 9, 0), 0)
    assert [drawer.draw(tick, 0).table for tick in (0, 1, 4)] == [0, 9, 9]


def test_the_tables_of_the_policy_need_nobody() -> None:
    drawer = measurer(measure_policy(3, start=0))
    assert [drawer.draw(tick, 0).table for tick in range(6)] == [0, 0, 0, 0, 1, 1]


def test_where_the_clock_was_set_only_the_table_that_protects_every_pair_is_drawn_from() -> None:
    drawer = measurer(measure_policy(3, start=0))
    found = [drawer.draw(5, 0, shift).table for shift in range(6)]
    assert found == [1, 1, 0, 0, 0, 0], "by what is possible at its time"
    assert [drawer.draw(1000, 0, shift).table for shift in (0, 900, 996, 997)] == [1, 1, 1, 0]


# What is refused

MARKED = NoiseTable(tuple(array("I", [1 if x < 8 else SCALE - 1]) for x in range(9)), ((0, 0), (1, 1)))
"""Tells state 8 from all others."""


@pytest.mark.parametrize(
    ("payload", "error", "text"),
    [
        (b"", FrameError, "empty"),
        (b"\x08", FrameError, "no msgpack"),
        (message(FULL)[:-1], FrameError, "no msgpack"),
        (bytes(MAX_TABLE_BYTES + 1), TableRefusedError, "a table of 524289 bytes"),
        (message(FULL, policy_version=2), TableRefusedError, "for policy version 2"),
        (message(FULL, until=100), TableRefusedError, "stale: it ended at tick 100"),
        (message(FULL, number=0), TableRefusedError, "number 0 is that of a table of the policy"),
        (message(MARKED), GuaranteeError, "some point tells"),
        (message(MARKED, constraint=0), GuaranteeError, "some point tells"),
        (
            message(MARKED, constraint=SETS[3]),
            GuaranteeError,
            "state 8, which should not be possible, is hidden together",
        ),
        (message(MARKED, constraint=SETS[1]), GuaranteeError, "hidden together with none"),
        (message(FULL, constraint=0b11), TableRefusedError, "never the possible one"),
        (message(FULL, constraint=1 << 9), TableRefusedError, "never the possible one"),
        (message(FULL, constraint=SETS[0]), GuaranteeError, "one possible state protects nothing"),
        (message(measure_policy(2).measure_tables[1].noise), GuaranteeError, "has 4 states, the policy 9"),
    ],
)
def test_a_table_that_may_not_be_used_changes_nothing(payload: bytes, error: type[FuguError], text: str) -> None:
    drawer = measurer()
    drawer.offer(message(FULL, 20), 50)
    before = [drawer.draw(tick, 3).table for tick in range(10)]
    with pytest.raises(error, match=text):
        drawer.offer(payload, 100)
    assert [drawer.draw(tick, 3).table for tick in range(10)] == before


def test_the_last_tick_of_a_table_is_not_stale() -> None:
    drawer = measurer()
    drawer.offer(message(FULL, until=101), 100)
    assert drawer.draw(100, 0).table == 7
    with pytest.raises(TableRefusedError, match="stale"):
        drawer.offer(message(FULL, until=101), 101)


def test_a_number_never_means_something_else() -> None:
    drawer = measurer()
    drawer.offer(message(FULL), 0)
    for other in (
        message(WALK.measure_tables[0].noise),
        message(FULL, constraint=0),
        message(made(3), constraint=SETS[3]),
    ):
        with pytest.raises(FuguError):
            drawer.offer(other, 0)
    drawer.offer(message(FULL, first=3, until=9), 0)
    assert [drawer.draw(tick, 0).table for tick in (4, 8, 9)] == [7, 7, 0], "only its validity may change"


def test_only_so_many_tables_are_held() -> None:
    drawer = measurer()
    for number in range(1, MOST_HELD + 9):
        drawer.offer(message(FULL, number), 0)
    assert len(drawer._sent) == MOST_HELD
    assert drawer.draw(4, 0).table == MOST_HELD + 8
    drawer.offer(message(FULL, 99, until=50), 40)
    assert drawer.draw(45, 0).table == 99
    drawer.offer(message(FULL, 100), 60)
    assert 99 not in drawer._sent, "what is over is given up first"


def test_a_staircase_that_would_be_drawn_for_ever_is_refused() -> None:
    """q = 1 - 2^-60 satisfies every bound, and takes 2^60 rounds."""
    policy = measure_policy(11, tables=False)
    square = [[-10, -10], [10, -10], [10, 10], [-10, 10]]
    body = [set_of(range(121)).to_bytes(16, "little"), square, 2**60 - 1, 2**60, [0, 0], [10, 10]]
    drawer = measurer(policy)
    with pytest.raises(FrameError, match="draws would take long"):
        drawer.offer(b"\x08" + msgpack.packb([1, 5, b"", 0, 100, 1, body]), 0)
    assert drawer.draw(0, 0).table == 0
    slow = StaircaseNoise((1 << 121) - 1, Staircase(tuple(map(tuple, square)), Fraction(4095, 4096)), (0, 0), (10, 10))
    drawer.offer(message(slow, 5, 0), 0)
    tables: set[int] = set()
    lines_run(lambda: tables.update(drawer.draw(tick, 0).table for tick in range(20)), 10_000_000)
    assert tables == {5}


@pytest.mark.parametrize("seed", range(3))
def test_bytes_that_nearly_are_a_table_change_nothing(seed: int) -> None:
    """Each is refused, or is a table that was checked; above all there is no other exception."""
    generator = random.Random(seed)
    drawer, whole, taken = measurer(), message(made(1), 7, SETS[1]), 0
    for _ in range(400):
        broken = bytearray(whole)
        for _ in range(generator.choice([1, 1, 2, 5])):
            broken[generator.randrange(1, len(broken))] = generator.randrange(256)
        try:
            drawer.offer(bytes(broken), 1)
        except FuguError:
            continue
        taken += 1
    assert len(drawer._sent) <= taken < 200
    assert drawer.draw(4, 3).table == 0


def test_what_nobody_thought_of_stops_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = SharedSensor(ReplaySensor(["c0"], loop=True))
    windows = StreamWindows((), [], seeded(1))
    stream = Stream(measured_plan(WALK), TickClock(0, 1), sensor, seeded(1), -1, windows)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("edge_agent.measurer.check_noise", broken)
    assert not stream.offer_table(message(FULL))
    assert stream.refusal == "ZeroDivisionError"
    monkeypatch.undo()
    assert stream.offer_table(message(FULL))
    assert stream.refusal == ""
    assert unpack_released(stream.mechanism.draw(4, 0, 0)).table == 7


# At a real broker


class Running:
    """An agent in a thread, and a gateway's connection."""

    def __init__(self, plan: AgentPlan, broker: Mosquitto, clock: JumpingClock | None = None) -> None:
        self.agent = Agent(plan, [ReplaySensor(["c0", "c1", "c4"], loop=True)], system_entropy(), clock)
        self.frames = Recorder(broker.broker)
        self.statuses = Recorder(broker.broker, status_topic("home", "+"))
        self.gateway = Link(broker.broker, client_id="gateway")
        self.gateway.start()
        self._thread = threading.Thread(target=self.agent.run)
        self._thread.start()
        wait_until(lambda: self.gateway.connected and self.statuses.payloads)

    def say(self, payload: bytes, topic: str = table_topic("home", "watch", "place")) -> None:
        self.gateway.publish(topic, payload)

    @property
    def stream(self) -> Stream:
        return self.agent._ticks.streams[0]

    def codes(self) -> tuple[StatusCode, ...]:
        return Status.decode(self.statuses.payloads[-1]).codes

    def stop(self) -> None:
        self.agent.stop()
        self._thread.join(PATIENCE)
        for link in (self.gateway, self.frames.link, self.statuses.link):
            link.stop()
        assert not self._thread.is_alive()


def stored_frames(plan: AgentPlan) -> list[MeasureFrame]:
    outbox = Outbox(plan.outbox, "home", "watch")
    try:
        return measure_frames(outbox)
    finally:
        outbox.close()


def used(frames: list[MeasureFrame]) -> dict[int, int]:
    """The table of every tick; fails if a tick was drawn twice."""
    found: dict[int, int] = {}
    for frame in frames:
        for tick, released in enumerate(frame.released, frame.first):
            if released is not None:
                assert tick not in found
                found[tick] = released.table
    return found


def test_a_refused_table_is_said_so_and_a_good_one_is_used(broker: Mosquitto, tmp_path: Path) -> None:
    """Stale, broken and hostile tables, and messages that nobody subscribed to; until then the fallback is used."""
    policy = measure_policy(3, tables=False)
    period = 20_000
    epoch = time.time_ns() // 1000 - 1000 * period
    plan = agent_plan(
        tmp_path,
        broker.broker,
        measured_plan(policy, epoch_us=epoch, period_us=period),
        forget="committed",
        drain_seconds=0.0,
    )
    running = Running(plan, broker)
    try:
        running.say(message(FULL, until=900))
        wait_until(lambda: running.codes() == (StatusCode.TABLE_REFUSED,))
        assert running.stream.refusal == "table 7 is stale: it ended at tick 900"
        for payload, text in (
            (b"\x08\xc1", "no msgpack message"),
            (b"\x08" + msgpack.packb([1, 5, b"\x03", 0, 10, 0, [[[0, 0]], 2, b""]]), "points has length 1"),
            (message(MARKED), "some point tells"),
            (message(FULL, policy_version=3), "is for policy version 3"),
        ):
            running.say(payload)
            wait_until(lambda text=text: text in running.stream.refusal)  # type: ignore[misc]
        running.agent._arrived("no/topic/of/ours", b"\x02")
        running.agent._arrived(committed_topic("home", "other"), b"\x02")
        assert running.agent.refused.total() == 7
        running.say(message(FULL))
        wait_until(lambda: not running.codes())
        seen = len(running.frames.payloads)
        wait_until(lambda: len(running.frames.payloads) > seen + 3)
    finally:
        running.stop()
    tables = used(stored_frames(plan))
    changes = [tick for tick in sorted(tables)[1:] if tables[tick] != tables.get(tick - 1, tables[tick])]
    assert len(changes) == 1
    assert {tables[tick] for tick in tables if tick < changes[0]} == {0}
    assert {tables[tick] for tick in tables if tick >= changes[0]} == {7}


def test_a_flood_of_messages_neither_fills_the_memory_nor_stops_the_ticks(tmp_path: Path) -> None:
    policy = measure_policy(3, tables=False)
    plan = agent_plan(tmp_path, Broker(port=9), measured_plan(policy), forget="committed", drain_seconds=0.0)
    agent = Agent(plan, [ReplaySensor(["c0"], loop=True)], system_entropy(), clock := JumpingClock(0))
    agent._delivered(table_topic("home", "watch", "place"), bytes(MOST_WAITING_BYTES + 1))
    assert (agent.refused["too_many"], agent._events.qsize()) == (1, 0)
    for _ in range(MOST_WAITING + 5):
        agent._delivered(table_topic("home", "watch", "place"), message(MARKED))
    assert (agent.refused["too_many"], agent._events.qsize()) == (6, MOST_WAITING)
    thread = threading.Thread(target=agent.run)
    thread.start()
    wait_until(lambda: agent.refused["table"] == MOST_WAITING and clock.now > 30 * SECOND)
    agent.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
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
        (0.0, "measurement_ceiling: Input should be greater than 0"),
        ("true", "measurement_ceiling: Input should be a valid number"),
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
    for found in (load(path), check_in_child(path)()):
        (stream,) = found.streams
        assert stream.noise == plan(policy)


def test_a_policy_whose_table_is_bad_does_not_start(tmp_path: Path) -> None:
    policy = measure_policy(3)
    bad = policy.model_copy(update={"epsilon": 0.5})
    path = config(tmp_path / "watch", bad, measurement_ceiling=5.0)
    with pytest.raises(ConfigError, match="a fallback table has to protect every pair of states"):
        check_in_child(path)()


# Frames and restarts


def test_a_frame_may_hold_points_of_several_tables_and_a_restart_goes_on(tmp_path: Path) -> None:
    """The walk begins at the epoch: the fallback for four ticks, then the table; frames are of one size."""
    policy = measure_policy(3, start=0)
    plan = agent_plan(tmp_path, Broker(port=9), measured_plan(policy), forget="committed", drain_seconds=0.0)

    def run(since: int, through: int) -> None:
        clock = JumpingClock(since)
        agent = Agent(plan, [ReplaySensor(["c0", "c1", "c4"], loop=True)], system_entropy(), clock)
        thread = threading.Thread(target=agent.run)
        thread.start()
        wait_until(lambda: clock.now > through * SECOND)
        agent.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()

    run(-SECOND, 25)
    first = stored_frames(plan)
    assert first[0].first == 0
    assert [one.table for one in first[0].released if isinstance(one, Released)] == [0] * 4 + [1] * 6
    run(first[-1].last * SECOND, 60)  # a tick comes a period after a start, or later
    frames = stored_frames(plan)
    assert frames[: len(first)] == first, "what was drawn is never drawn again"
    tables = used(frames)
    assert sorted(tables) == list(range(len(tables)))
    assert {tables[tick] for tick in range(4, len(tables))} == {1}
    assert {len(frame.released) + frame.padding for frame in frames} == {10}
    assert all(later.previous == earlier.last for earlier, later in pairwise(frames))
