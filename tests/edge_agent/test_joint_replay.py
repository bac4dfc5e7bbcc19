"""Joint streams of one device on neighbouring readings and the same random words: the same lines run, as often.

Readings are neighbours if one tick differs, of one stream or of all that are read there. What a device does may depend
on them in the payloads alone. No line of the agent runs more, or less often, or in another order, and no more words are
drawn. Where a reading is missing a row of the table is drawn first, so there only the lines of the agent are compared.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import edge_agent.ticker
from edge_agent.outbox import Outbox
from edge_agent.plan import StreamPlan
from edge_agent.sensors.replay import ReplaySensor
from edge_agent.ticker import Ticker
from fugu.contract.chains import JointChains, JointStream
from fugu.contract.guarantee import Guarantee
from fugu.contract.policy import Policy
from fugu.contract.windows import Blocks, Window
from tests.support.agents import JumpingClock, device_clock, plan_of
from tests.support.outboxes import symbol_frames, window_frames
from tests.support.processes import policy

TICKS = 18
NAMES = ("hr", "steps", "doors")
SHOWS = tuple((a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1))
MOVES = tuple(tuple(0.65 if a == b else 0.05 for b in range(8)) for a in range(8))
HALF_DAYS = Blocks(zone="UTC", seconds=43_200, offsets=((0, 0),))
WINDOWS = (
    Window(name="high", length=8, stride=4, states=(1,), scale="20"),
    Window(name="day", length=86_400, stride=86_400, states=(1,), scale="20", blocks=HALF_DAYS),
)
AGENT = str(Path(edge_agent.ticker.__file__).parent)


def joint_policies() -> list[Policy]:
    """Three streams of one class of joint chains, one of them with a window that counts."""
    plain = policy(epoch_us=0, period_us=1_000_000)
    counting = plain.model_copy(update={"windows": WINDOWS, "stream": NAMES[0]})
    rates = (float(counting.outputs.rate), *[float(plain.outputs.rate)] * 2)
    streams = tuple(
        JointStream(name=name, states=2, rate=rate * 1.001) for name, rate in zip(NAMES, rates, strict=True)
    )
    chains = JointChains(streams=streams, period_us=1_000_000, shows=SHOWS, transition=MOVES, odds_ratio=170.0)
    promise = Guarantee(epsilon=chains.joint_loss("universal").epsilon, adversary="universal")
    policies = []
    for name, windows in zip(NAMES, (WINDOWS, (), ()), strict=True):
        alone = {"windows_guarantee": promise} if windows else {}
        fields = dict(plain) | {"stream": name, "chains": chains, "guarantee": promise, "windows": windows} | alone
        policies.append(Policy.model_validate(fields))
        policies[-1].verify(promise.epsilon)
    return policies


class Run(NamedTuple):
    """Summary of a run: how many lines of the agent, a digest of them all in order, bytes drawn; and messages sent."""

    lines: int
    order: str
    drawn: tuple[int, ...]
    frames: tuple[bytes, ...]
    counts: int


def replay(folder: Path, plans: Sequence[StreamPlan], readings: Sequence[Sequence[Any]]) -> Run:
    """Let a device with several streams run, with the same random words, and write down each line of the agent."""
    folder.mkdir()
    clock, outbox, drawn, state = JumpingClock(0), Outbox(folder / "outbox.sqlite", "home", "watch"), [], 1

    def entropy(buffer: memoryview) -> None:
        nonlocal state
        view = buffer.cast("B")
        drawn.append(len(view))
        for place in range(len(view)):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            view[place] = state >> 56

    ticks = Ticker(outbox, device_clock(clock), entropy, silence_code=lambda _now: None)
    lines, order = 0, hashlib.sha256()

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.startswith(AGENT):
            return None
        if event == "line":
            lines += 1
            order.update(f"{frame.f_code.co_filename}:{frame.f_lineno}\n".encode())
        return trace

    ticks.begin(plans, [ReplaySensor(reading, loop=False) for reading in readings])
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for now in range(1, TICKS):
            clock.now = now * 1_000_000
            ticks.catch_up()
        ticks.close_frames()
    finally:
        sys.settrace(before)
    frames = tuple(bytes(frame.symbols) for frame in symbol_frames(outbox))
    counts = len(window_frames(outbox))
    outbox.close()
    return Run(lines, order.hexdigest(), tuple(drawn), frames, counts)


@pytest.fixture(scope="module")
def plans() -> list[StreamPlan]:
    """Sensors are handed over open; what tells them apart is their tables."""
    return [
        plan_of(policy, {"kind": "call", "target": name}) for policy, name in zip(joint_policies(), NAMES, strict=True)
    ]


BASE = [[float((t // period) % 2) for t in range(TICKS)] for period in (3, 5, 7)]


def changed(streams: Sequence[int], tick: int, *instead: Any) -> list[list[Any]]:
    """Neighbouring readings: some streams read the other state, or something else, at one tick."""
    runs: list[list[Any]] = [list(run) for run in BASE]
    for stream in streams:
        runs[stream][tick] = instead[0] if instead else 1.0 - runs[stream][tick]
    return runs


@pytest.mark.long
def test_neighbouring_readings_of_joint_streams_run_the_same_lines(tmp_path: Path, plans: list[StreamPlan]) -> None:
    first = replay(tmp_path / "first", plans, BASE)
    assert first.lines > 100 * TICKS
    assert first.drawn
    assert first.counts
    assert replay(tmp_path / "again", plans, BASE) == first
    for number, (streams, tick) in enumerate([((0,), 1), ((1,), 12), ((0, 1, 2), 17)]):
        other = replay(tmp_path / f"{number}", plans, changed(streams, tick))
        assert other._replace(frames=()) == first._replace(frames=())
        assert [len(frame) for frame in other.frames] == [len(frame) for frame in first.frames]
    far = replay(tmp_path / "far", plans, [[1.0 - value for value in run] for run in BASE])
    assert far._replace(frames=()) == first._replace(frames=())
    assert far.frames != first.frames, "the readings did not even reach the symbols"


@pytest.mark.long
def test_readings_of_joint_streams_that_are_none_run_the_same_lines_as_one_another(
    tmp_path: Path, plans: list[StreamPlan]
) -> None:
    """A tick without a reading takes two words, whatever was read instead."""
    first = replay(tmp_path / "first", plans, changed((0, 2), 16, float("nan")))
    for number, value in enumerate(("text", None)):
        other = replay(tmp_path / f"{number}", plans, changed((0, 2), 16, value))
        assert (other.drawn, other.frames) == (first.drawn, first.frames)
