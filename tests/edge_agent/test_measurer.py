"""Points are drawn by the table in force, and nothing that arrives weakens that, stops the device, or slows it down."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import msgpack
import pytest

from edge_agent.measurer import MAX_TABLE_BYTES, Measurer
from edge_agent.sensors.replay import ReplaySensor
from edge_agent.sensors.sharing import SharedSensor
from edge_agent.ticker import Stream
from fugu.contract.errors import FrameError, FuguError, GuaranteeError
from fugu.contract.measure_frames import Released
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import MOST_HELD, Staircase, StaircaseNoise, set_of, states_in
from fugu.contract.noise_table import SCALE
from fugu.core.clocks import TickClock
from gateway.estimates.points import MeasureModel
from tests.support.agents import plan_of
from tests.support.entropy import seeded
from tests.support.measured import measure_policy
from tests.support.walk_tables import FULL, MARKED, SETS, WALK, message, noise_at, plan
from tests.support.work import lines_run


def measurer(policy: MeasurePolicy = WALK, seed: int = 1) -> Measurer:
    return Measurer(plan(policy), seeded(seed))


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


@pytest.fixture
def drawer() -> Measurer:
    return measurer()


@pytest.mark.long
@pytest.mark.parametrize("state", [0, 4, 8])
def test_points_follow_the_table(drawer: Measurer, state: int) -> None:
    drawer.offer(message(FULL), 0)
    distributions = [
        {point: weight / SCALE for point, weight in zip(FULL.points, FULL.row_weights(x), strict=True)}
        for x in range(9)
    ]
    drawn = distribution(drawer, 4, state)
    assert fits(drawn, distributions[state])
    assert not any(fits(drawn, distributions[other]) for other in range(9) if other != state)


@pytest.mark.long
def test_points_follow_a_staircase() -> None:
    """121 states; the distribution of the noise, clamped to the box, by adding up."""
    policy = measure_policy(11, tables=False, epsilon=2.0)
    noise = policy.measure_tables[0].noise
    small = StaircaseNoise(noise.likely, noise.staircase, (4, 4), (6, 6))
    drawer = measurer(policy)
    drawer.offer(message(small, constraint=0), 0)
    from fugu.places.tables import emission

    matrix = emission(small, MeasureModel(policy).values)
    drawn = distribution(drawer, 0, 60, 3000)
    assert fits(drawn, {point: matrix.probabilities[60, column] for point, column in matrix.points.items()})
    assert set(drawn) == {(x, y) for x in (4, 5, 6) for y in (4, 5, 6)}


@pytest.mark.long
@pytest.mark.parametrize("tick", [1, 2, 3])
def test_a_state_that_should_not_be_possible_is_answered_for_by_its_stand_in(tick: int) -> None:
    """With the same randomness both give the same points."""
    constraint = SETS[tick]
    measurement = WALK.measurement
    for state in range(9):
        answer = state if constraint >> state & 1 else measurement.surrogate(state, states_in(constraint))
        drawn = []
        for at in (state, answer):
            drawer = measurer(seed=5)
            drawer.offer(message(noise_at(tick), 7, constraint), 0)
            drawn.append([drawer.draw(tick, at) for _ in range(200)])
        assert drawn[0] == drawn[1]
        assert {draw.table for draw in drawn[0]} == {7}


def test_a_state_that_a_staircase_does_not_keep_is_answered_for_by_its_stand_in() -> None:
    policy = measure_policy(11, tables=False)
    noise = policy.measure_tables[0].noise
    likely = replace(noise, likely=set_of([0, 5, 60, 120]))
    for state in (1, 59, 61, 119):
        drawn = []
        for near in (state, policy.measurement.surrogate(state, [0, 5, 60, 120])):
            drawer = measurer(policy, seed=5)
            drawer.offer(message(likely, constraint=0), 0)
            drawn.append([drawer.draw(9, near) for _ in range(50)])
        assert drawn[0] == drawn[1]


def test_the_table_in_force_is_for_the_tick_and_its_set(drawer: Measurer) -> None:
    """The newest that fits, and the fallback where none does."""
    tables = {tick: drawer.draw(tick, 0).table for tick in range(8)}
    assert set(tables.values()) == {0}
    drawer.offer(message(noise_at(1), 11, SETS[1]), 0)
    drawer.offer(message(noise_at(2), 12, SETS[2], first=0, until=2), 0)  # over before its set comes
    drawer.offer(message(FULL, 14, SETS[4], first=5, until=8), 0)
    drawer.offer(message(FULL, 15, SETS[4], first=6, until=7), 0)
    assert [drawer.draw(tick, 0).table for tick in range(10)] == [0, 11, 0, 0, 0, 14, 15, 14, 0, 0]
    drawer.offer(message(FULL, 14, SETS[4], first=5, until=9), 6)  # prolonged, and now the newest
    assert [drawer.draw(tick, 0).table for tick in range(5, 10)] == [14, 14, 14, 14, 0]


def test_where_one_state_is_possible_the_fallback_is_used(drawer: Measurer) -> None:
    """Even if there is a table for any set."""
    drawer.offer(message(WALK.measure_tables[0].noise, 9, 0), 0)
    assert [drawer.draw(tick, 0).table for tick in (0, 1, 4)] == [0, 9, 9]


def test_the_tables_of_the_policy_need_nobody() -> None:
    drawer = measurer(measure_policy(3, start=0))
    assert [drawer.draw(tick, 0).table for tick in range(6)] == [0, 0, 0, 0, 1, 1]


def test_where_the_clock_was_set_only_the_table_that_protects_every_pair_is_drawn_from() -> None:
    drawer = measurer(measure_policy(3, start=0))
    tables = [drawer.draw(5, 0, shift).table for shift in range(6)]
    assert tables == [1, 1, 0, 0, 0, 0], "by what is possible at its time"
    assert [drawer.draw(1000, 0, shift).table for shift in (0, 900, 996, 997)] == [1, 1, 1, 0]


# What is refused


@pytest.mark.parametrize(
    ("payload", "error", "text"),
    [
        (b"", FrameError, "empty"),
        (b"\x08", FrameError, "no msgpack"),
        (message(FULL)[:-1], FrameError, "no msgpack"),
        (bytes(MAX_TABLE_BYTES + 1), FuguError, "a table of 524289 bytes"),
        (message(FULL, policy_version=2), FuguError, "for policy version 2"),
        (message(FULL, until=100), FuguError, "stale: it ended at tick 100"),
        (message(FULL, number=0), FuguError, "number 0 is that of a table of the policy"),
        (message(MARKED), GuaranteeError, "some point tells"),
        (message(MARKED, constraint=0), GuaranteeError, "some point tells"),
        (
            message(MARKED, constraint=SETS[3]),
            GuaranteeError,
            "state 8, which should not be possible, is hidden together",
        ),
        (message(MARKED, constraint=SETS[1]), GuaranteeError, "hidden together with none"),
        (message(FULL, constraint=0b11), FuguError, "never the possible one"),
        (message(FULL, constraint=1 << 9), FuguError, "never the possible one"),
        (message(FULL, constraint=SETS[0]), GuaranteeError, "one possible state protects nothing"),
        (message(measure_policy(2).measure_tables[1].noise), GuaranteeError, "has 4 states, the policy 9"),
    ],
)
def test_a_table_that_may_not_be_used_changes_nothing(
    drawer: Measurer, payload: bytes, error: type[FuguError], text: str
) -> None:
    drawer.offer(message(FULL, 20), 50)
    before = [drawer.draw(tick, 3).table for tick in range(10)]
    with pytest.raises(error, match=text):
        drawer.offer(payload, 100)
    assert [drawer.draw(tick, 3).table for tick in range(10)] == before


def test_the_last_tick_of_a_table_is_not_stale(drawer: Measurer) -> None:
    drawer.offer(message(FULL, until=101), 100)
    assert drawer.draw(100, 0).table == 7
    with pytest.raises(FuguError, match="stale"):
        drawer.offer(message(FULL, until=101), 101)


def test_a_number_never_means_something_else(drawer: Measurer) -> None:
    drawer.offer(message(FULL), 0)
    for other in (
        message(WALK.measure_tables[0].noise),
        message(FULL, constraint=0),
        message(noise_at(3), constraint=SETS[3]),
    ):
        with pytest.raises(FuguError):
            drawer.offer(other, 0)
    drawer.offer(message(FULL, first=3, until=9), 0)
    assert [drawer.draw(tick, 0).table for tick in (4, 8, 9)] == [7, 7, 0], "only its validity may change"


def test_only_so_many_tables_are_held(drawer: Measurer) -> None:
    for number in range(1, MOST_HELD + 9):
        drawer.offer(message(FULL, number), 0)
    assert len(drawer._arrived) == MOST_HELD
    assert drawer.draw(4, 0).table == MOST_HELD + 8
    drawer.offer(message(FULL, 99, until=50), 40)
    assert drawer.draw(45, 0).table == 99
    drawer.offer(message(FULL, 100), 60)
    assert 99 not in drawer._arrived, "what is over is given up first"


@pytest.mark.long
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
    lines_run(lambda: tables.update(drawer.draw(tick, 0).table for tick in range(2)), 1_000_000)
    assert tables == {5}


@pytest.mark.parametrize("seed", range(3))
def test_bytes_that_nearly_are_a_table_change_nothing(seed: int) -> None:
    """Each is refused, or is a table that was checked; above all there is no other exception."""
    generator = random.Random(seed)
    drawer, whole, taken = measurer(), message(noise_at(1), 7, SETS[1]), 0
    for _ in range(400):
        broken = bytearray(whole)
        for _ in range(generator.choice([1, 1, 2, 5])):
            broken[generator.randrange(1, len(broken))] = generator.randrange(256)
        try:
            drawer.offer(bytes(broken), 1)
        except FuguError:
            continue
        taken += 1
    assert len(drawer._arrived) <= taken < 200
    assert drawer.draw(4, 3).table == 0


def test_what_nobody_thought_of_stops_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = SharedSensor(ReplaySensor(["c0"], loop=True))
    stream = Stream(plan_of(WALK), TickClock(0, 1), sensor, seeded(1), -1)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("edge_agent.measurer.check_noise", broken)
    assert not stream.offer_table(message(FULL))
    assert stream.refusal == "ZeroDivisionError"
    monkeypatch.undo()
    assert stream.offer_table(message(FULL))
    assert stream.refusal == ""
    assert Released.unpack(stream.mechanism.draw(4, 0, 0)).table == 7
