"""Missing readings: such ticks have no state, lose nothing, and nothing but payloads depends on readings."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.agent import Agent
from edge_agent.measurer import Measurer, PointSource, public_row
from edge_agent.outbox import Outbox
from edge_agent.plan import StreamPlan
from edge_agent.randomiser import BLOCK_WORDS, randomiser
from edge_agent.sensors.replay import ReplaySensor
from edge_agent.sensors.source import Sensor
from edge_agent.ticker import Ticker
from fugu.contract.compiler import compile_discretiser
from fugu.contract.discretisers import Thresholds
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.core.policy import NONE
from fugu.mqtt import Broker
from tests.support.agents import SECOND, JumpingClock, agent_plan, device_clock, plan_of, stream_plan, window_plan
from tests.support.measured import measure_policy
from tests.support.outboxes import measure_frames, symbol_frames, window_frames

NAN = float("nan")
RESPONSE = NoiseTable.binary(SCALE // 4, SCALE // 4)


class Sequence32:
    """The same random bytes for whoever asks for as many."""

    def __init__(self, seed: int = 1) -> None:
        self._state = seed

    def __call__(self, buffer: memoryview) -> None:
        view = buffer.cast("B")
        for place in range(len(view)):
            self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
            view[place] = self._state >> 56


class Live:
    """A sensor whose readings are known beforehand, but which is not a recording."""

    recorded = False
    trouble = ""

    def __init__(self, values: Sequence[Any]) -> None:
        self._replay = ReplaySensor(values, loop=True)
        self.read, self.poll = self._replay.read, self._replay.poll

    def finished(self, tick: int) -> bool:
        return False


def ticker(folder: Path, clock: JumpingClock, plan: StreamPlan, sensor: Sensor) -> tuple[Ticker, Outbox]:
    outbox = Outbox(folder / "outbox.sqlite", "home", "watch")
    ticks = Ticker(outbox, device_clock(clock), Sequence32(), silence_code=lambda _now: None)
    ticks.begin([plan], [sensor])
    return ticks, outbox


def symbols(folder: Path, readings: Sequence[Any], plan: StreamPlan | None = None) -> bytes:
    """The symbols of consecutive ticks from 1 on, with the same random bytes every time."""
    folder.mkdir()
    clock = JumpingClock(0)
    ticks, outbox = ticker(folder, clock, plan or stream_plan(table=RESPONSE), ReplaySensor(readings, loop=False))
    for now in range(1, len(readings)):
        clock.now = now * SECOND
        ticks.catch_up()
    ticks.close_frames()
    symbols = b"".join(frame.symbols for frame in symbol_frames(outbox))
    outbox.close()
    return symbols


def public_weights(states: int) -> list[int]:
    """How many of the 2^32 words take each row, for k rows."""
    return [high - low for low, high in pairwise([-(-row * SCALE // states) for row in range(states + 1)])]


@pytest.mark.parametrize("states", [2, 3, 7, 100, 255])
def test_a_device_takes_each_row_at_the_words_that_the_public_distribution_gives_it(states: int) -> None:
    """Row i draws symbol 1 from the word i + 1 on."""
    edges = list(accumulate(public_weights(states), initial=0))
    asked = [
        (word, row + second, second)
        for row in range(states)
        for word in (edges[row], edges[row + 1] - 1)
        for second in (0, 1)
    ]
    words = iter([word for first, second, _ in asked for word in (first, second)])

    def entropy(buffer: memoryview) -> None:
        view = buffer.cast("I")
        for place in range(BLOCK_WORDS - 1, -1, -1):
            view[place] = next(words, 0)

    draw = randomiser(NoiseTable(tuple((row + 1,) for row in range(states))), entropy)
    assert [draw(None) for _ in asked] == [symbol for _, _, symbol in asked]


Row = tuple[Fraction, ...]


def losses(start: Row, steps: Sequence[Row], emission: Sequence[Row], missing: Sequence[bool]) -> list[Fraction]:
    """For each tick the largest ratio of the likelihoods of all outputs under two of its states, by enumeration."""
    k, m = len(emission), len(emission[0])
    weights = public_weights(k)
    public = tuple(sum(Fraction(weights[x], SCALE) * emission[x][z] for x in range(k)) for z in range(m))
    paths = []
    for path in product(range(k), repeat=len(missing)):
        likelihood = start[path[0]]
        for before, after in pairwise(path):
            likelihood *= steps[before][after]
        if likelihood:
            paths.append((path, likelihood))
    worst = [Fraction(1)] * len(missing)
    for outputs in product(range(m), repeat=len(missing)):
        likelihoods = []
        for path, likelihood in paths:
            for x, z, gone in zip(path, outputs, missing, strict=True):
                likelihood *= public[z] if gone else emission[x][z]
            likelihoods.append(likelihood)
        for tick in range(len(missing)):
            of_state = []
            for x in range(k):
                inside = [i for i, (path, _) in enumerate(paths) if path[tick] == x]
                prior = sum(paths[i][1] for i in inside)
                if prior:
                    of_state.append(sum((likelihoods[i] for i in inside), Fraction(0)) / prior)
            worst[tick] = max(worst[tick], max(of_state) / min(of_state))
    return worst


@st.composite
def distributions(draw: st.DrawFn, size: int, positive: bool = False) -> Row:
    parts = draw(st.lists(st.integers(int(positive), 12), min_size=size, max_size=size).filter(any))
    return tuple(Fraction(part, sum(parts)) for part in parts)


@pytest.mark.long
@given(data=st.data(), states=st.integers(2, 3))
@settings(max_examples=25, deadline=None)
def test_no_loss_grows_for_any_chain_start_and_pattern_of_missing_ticks(data: st.DataObject, states: int) -> None:
    """By enumeration in fractions, the secret tick included; zeros in chain and start are ordinary."""
    ticks = 5 - states
    start = data.draw(distributions(states))
    steps = [data.draw(distributions(states)) for _ in range(states)]
    emission = [data.draw(distributions(2, positive=True)) for _ in range(states)]
    complete = losses(start, steps, emission, [False] * ticks)
    for missing in product((False, True), repeat=ticks):
        lost = losses(start, steps, emission, missing)
        assert all(before <= other for before, other in zip(lost, complete, strict=True))
        if all(missing):
            assert set(lost) == {1}


def test_a_point_of_a_tick_without_a_state_is_drawn_from_the_table_in_force_and_from_no_state() -> None:
    """Weights and staircase alike: the row comes first, then the draw of that row."""
    for side in (4, 11):
        policy = measure_policy(side, tables=side == 4)
        plan = PointSource.of(policy.model_dump(mode="json"))
        states = len(plan.measurement.coordinates)
        for seed in range(1, 20):
            source = Sequence32(seed)
            word = memoryview(bytearray(4))
            source(word)
            row = public_row(int.from_bytes(word, "little"), states)
            expected = Measurer(plan, source).draw(5, row)
            assert Measurer(plan, Sequence32(seed)).draw(5, None) == expected


# Everything but payloads


def everything(folder: Path, plan: StreamPlan, readings: Sequence[Any], ticks: int = 47) -> tuple[list[Any], list[Any]]:
    """Actions of a device over some ticks: (all that nothing covers, the covered payloads)."""
    folder.mkdir()
    clock = JumpingClock(1000 * SECOND)
    agent = Agent(agent_plan(folder, Broker(port=9), plan), [Live(readings)], Sequence32(), clock)
    seen: list[Any] = []
    for _ in range(ticks):
        clock.now += SECOND
        agent._ticker.prepare()
        agent._ticker.catch_up()
        seen.append((agent._status(online=True).encode(), agent._ticker.seconds_to_tick()))
    agent._ticker.close_frames()
    connection: sqlite3.Connection = agent._outbox._db
    payloads = [row[0] for row in connection.execute("SELECT payload FROM frames ORDER BY id")]
    seen += connection.execute("SELECT id, stream, previous, last, LENGTH(payload) FROM frames ORDER BY id").fetchall()
    for table in ("streams", "windows"):
        seen += connection.execute(f"SELECT * FROM intact_{table}").fetchall()
    seen += [(frame.first, frame.previous, frame.last, frame.padding) for frame in symbol_frames(agent._outbox)]
    seen += [(f.index, f.first, f.length, f.observed, len(f.counts)) for f in window_frames(agent._outbox)]
    seen += [
        (f.first, f.last, f.previous, [point.table for point in f.released]) for f in measure_frames(agent._outbox)
    ]
    agent._outbox.close()
    return seen, payloads


USABLE = ([0.0, 0.0, 0.0], [1.0, 0.0, 1.0], ["1", "-inf", 10**400], [1e308, "9" * 5000, -(10**5000)])
UNUSABLE = ([NAN, 0.0, ""], ["n/a", object(), 1j], [NAN, NAN, NAN])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["symbols", "windows", "points"])
def test_but_for_covered_payloads_nothing_depends_on_readings_or_on_whether_they_are_usable(
    tmp_path: Path, kind: str
) -> None:
    """Tick for tick and byte for byte; and covered payloads have one size."""
    plans = {
        "symbols": stream_plan(table=RESPONSE),
        "windows": stream_plan(table=RESPONSE, windows=(window_plan(), window_plan(name="all", length=7, stride=3))),
        "points": plan_of(measure_policy(), epoch_us=0, period_us=SECOND),
    }
    cells: tuple[list[Any], ...] = (["c0", "c0", "c0"], ["c1", "c4", "c2"], ["c3", "c3", "c0"])
    usable, unusable = (cells, (["", None, "c1"], [NAN, "nowhere", 3])) if kind == "points" else (USABLE, UNUSABLE)
    traces = [everything(tmp_path / f"{i}", plans[kind], r) for i, r in enumerate((*usable, *unusable))]
    assert all(run[0] == traces[0][0] for run in traces)
    assert len({tuple(payloads) for _, payloads in traces}) >= 3, "only the payloads do"


# Overdue ticks


@pytest.mark.parametrize(("period", "grace"), [(SECOND, SECOND), (10 * SECOND, 10 * SECOND), (100_000, 250_000)])
def test_a_tick_of_a_live_sensor_is_drawn_on_time_or_never(tmp_path: Path, period: int, grace: int) -> None:
    """At the boundary from both sides."""
    for late, drawn in ((grace - 1, True), (grace, False)):
        folder = tmp_path / f"{late}"
        folder.mkdir()
        clock = JumpingClock(1000 * period)
        ticks, outbox = ticker(folder, clock, stream_plan(period_us=period), Live([1.0]))
        clock.now = 1001 * period + late
        ticks.catch_up()
        ticks.close_frames()
        sealed_ticks = [frame.first + i for frame in symbol_frames(outbox) for i in range(len(frame.symbols))]
        assert (sealed_ticks[0] == 1001) == drawn
        assert len(sealed_ticks) == 1, "the same reading is not drawn for twice in a moment"
        outbox.close()


def test_ticks_that_come_faster_than_they_are_drawn_for_leave_room_for_other_work(tmp_path: Path) -> None:
    clock = JumpingClock(0)

    sensor = Live([1.0])
    read = sensor.read

    def slow(tick: int) -> Any:
        clock.now += 1_000
        assert clock.now < SECOND, "it never looks at anything else"
        return read(tick)

    sensor.recorded, sensor.read = True, slow
    ticks, _ = ticker(tmp_path, clock, stream_plan(period_us=1_000), sensor)
    reached = []
    for _ in range(3):
        clock.now += 1_000
        ticks.catch_up()
        (stream,) = ticks.streams
        reached.append(stream.last_tick)
    assert 200 < reached[0] < reached[1] < reached[2] < 1_000


def test_missing_as_a_state_of_its_own_is_drawn_from_its_row(tmp_path: Path) -> None:
    """Rows that nearly tell: state 2 is that of a missing reading, in symbols and in windows."""
    rows = ((SCALE - 2, SCALE - 1), (1, SCALE - 1), (1, 2))
    gone_too = Thresholds(edges=(0.5,), states=("low", "high", "gone"), missing="gone")
    plan = stream_plan(table=NoiseTable(rows), discretiser=compile_discretiser(gone_too))
    assert symbols(tmp_path / "a", [0.0, 0.0, 1.0, NAN, "", 1.0], plan) == bytes([0, 1, 2, 2, 1])
    gone = window_plan(places=(NONE, NONE, 0))
    seen, payloads = everything(
        tmp_path / "b", stream_plan(table=NoiseTable(rows), discretiser=plan.discretiser, windows=(gone,)), [NAN]
    )
    assert seen
    assert SymbolFrame.decode(payloads[1]).symbols == bytes([2] * 10)
    assert [WindowFrame.decode(payloads[i]).counts for i in (0, 2, 4)] == [(9,), (10,), (10,)]
