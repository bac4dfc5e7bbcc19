"""From the same readings and the same random words, the board and the agent make the same frames, byte for byte."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from edge_agent.device_clock import TickClock
from edge_agent.outbox import Outbox
from edge_agent.plan import StreamPlan
from edge_agent.recording import read_recording
from edge_agent.sensors.opening import SharedSensor
from edge_agent.sensors.opening import _ReplaySensor as ReplaySensor
from edge_agent.ticker import Stream
from edge_agent.window import StreamWindows
from firmware_sim.compiled_policy import compile_policy
from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.discretisers import Baseline, Categories, Thresholds
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.windows import Window
from tests.support.boards import SUPPORT, micropython, written_frames

BINARY = NoiseTable.binary(1_200_000_000, 900_000_000)
ON = Window(name="on", length=60, stride=60, states=(1,), scale="7/3")
SLIDING = Window(name="last", length=100, stride=30, start=7, states=(0,), scale="20")
SHARES = Window(name="shares", length=48, stride=50, states="histogram", scale="5")


def _policy(discretiser: Any, table: NoiseTable | None, *windows: Window, frame_ticks: int = 128) -> Policy:
    states = len(discretiser.states)
    promise = Guarantee(epsilon=60.0, adversary="universal")
    chains = BinaryChains(q=(0.2, 0.3), r=(0.35, 0.4)) if states == 2 else BoundedChains(states=states, odds_ratio=9.0)
    return Policy(
        *(), fleet="home", device="watch", stream="hr", version=3,
        clock=Clock(epoch_us=0, period_us=1_000_000),
        frame_ticks=1 if table is None else frame_ticks,
        discretiser=discretiser, table=table, chains=chains, guarantee=promise, windows=windows,
        windows_guarantee=promise if windows and table is not None else None,
    )  # fmt: skip


def _walk(generator: random.Random) -> Iterator[int | None]:
    """Readings that wander, jump, and are missing in stretches."""
    value, silent = 70, 0
    while True:
        value = min(max(value + generator.randint(-3, 3), 30), 200)
        silent = silent - 1 if silent else generator.choice([0] * 50 + [1, 4, 40])
        yield None if silent else generator.choice([value] * 20 + [-5, 10**12, 2**60])


def _names(generator: random.Random) -> Iterator[str | None]:
    while True:
        yield generator.choice(["off", "on", "on", "ON", "sitting", None])


NAMES = Categories(categories={"off": 0, "on": 1, "ON": 1}, states=("off", "on"))
LEVELS = ("low", "middle", "high")
KINDS: dict[str, tuple[Policy, Fraction, Callable[[random.Random], Iterator[Any]]]] = {
    "binary": (_policy(Thresholds(edges=(72.5,), states=("low", "high")), BINARY), Fraction(1), _walk),
    "k states, hysteresis, windows": (
        _policy(
            Thresholds(edges=(6.55, 8.1), states=(*LEVELS, "none"), hysteresis=0.3, missing="none"),
            *(NoiseTable.randomised_response(4, 900_000_000), ON, SHARES),
        ),
        *(Fraction(1, 10), _walk),
    ),
    "other symbols than states": (
        _policy(
            Thresholds(edges=(60.0, 80.0), states=LEVELS),
            NoiseTable(tuple(tuple(sorted(random.Random(s).sample(range(1, 2**32), 6))) for s in range(3))),
            *(SLIDING,),
            frame_ticks=100,
        ),
        *(Fraction(1), _walk),
    ),
    "running mean": (
        _policy(Baseline(baseline_ticks=200, lowest=30.0, highest=220.0), BINARY, ON),
        *(Fraction(1), _walk),
    ),
    "multiples of a running mean": (
        _policy(
            Baseline(
                *(), baseline_ticks=50, lowest=3.1, highest=22.7, compare="multiple", edges=(0.9, 1.05),
                states=(*LEVELS, "none"), missing="none",
            ),
            NoiseTable.randomised_response(4, 800_000_000),
        ),
        *(Fraction(1, 8), _walk),
    ),
    "names": (_policy(NAMES, BINARY, ON, SLIDING), Fraction(1), _names),
    "windows only": (_policy(NAMES, None, ON, SLIDING, SHARES), Fraction(1), _names),
}  # fmt: skip


def _in_order(data: bytes, *, turned: bool) -> Callable[[memoryview], None]:
    """Fill buffers from some bytes; the words of a block in turned order, as they are taken from its end."""
    at = 0

    def fill(buffer: memoryview) -> None:
        nonlocal at
        part = data[at : at + len(buffer)].ljust(len(buffer), b"\0")
        at += len(buffer)
        if turned:
            part = b"".join(part[i : i + 4] for i in range(len(part) - 4, -1, -4))
        buffer[:] = part

    return fill


def _agent(folder: Path, policy: Policy, ticks: list[int], words: bytes, noise: bytes) -> list[tuple[str, bytes]]:
    """The frames of the agent's own stream and outbox, for the readings in `readings.csv`."""
    plan = StreamPlan.of(policy.model_dump(mode="json"), {})
    sensor = SharedSensor(ReplaySensor(read_recording(folder / "readings.csv", "value"), loop=False))
    with_noise = _in_order(noise, turned=False)
    windows = StreamWindows(plan.windows, [-1] * len(plan.windows), with_noise)
    clock = TickClock(plan.epoch_us, plan.period_us)
    stream = Stream(plan, clock, sensor, _in_order(words, turned=True), -1, windows)
    outbox = Outbox(folder / "outbox.sqlite", policy.fleet, policy.device)
    outbox.register(plan)
    for window in plan.windows:
        outbox.register_window(plan.stream, window)
    for tick in ticks:  # as `edge_agent.ticker` does
        state = stream.observe(tick)
        outbox.append(plan, tick, stream.mechanism.draw(tick, state, 0))
        if not stream.discretiser.beginning:
            windows.observe(tick, state)
        if closed := windows.close(tick):
            outbox.append_windows(plan, closed)
    frames, after = [], 0
    while (frame := outbox.frames.next(after)) is not None:
        after = frame.id
        frames.append((frame.sequence, frame.payload))
    outbox.close()
    return frames


def _compare(folder: Path, name: str, count: int) -> None:
    policy, unit, readings = KINDS[name]
    generator = random.Random(name)
    (folder / "policy.bin").write_bytes(compile_policy(policy, unit))
    words, noise = generator.randbytes(8 * count + 8192), generator.randbytes(40 * count + (1 << 20))
    (folder / "words").write_bytes(words)
    (folder / "noise").write_bytes(noise)
    values = [value for value, _ in zip(readings(generator), range(count + count // 50 + 10), strict=False)]
    ticks = [tick for tick in range(len(values)) if generator.random() > 0.001][:count]
    lines = [f"{tick} {'' if values[tick] is None else values[tick]}" for tick in ticks]
    (folder / "lines").write_text("\n".join(lines) + "\n")
    shown = [value if value is None or isinstance(value, str) else repr(float(value * unit)) for value in values]
    rows = "".join(f"{tick},{'' if value is None else value}\n" for tick, value in enumerate(shown))
    (folder / "readings.csv").write_text(f"t,value\n{rows}")
    files = [folder / name for name in ("policy.bin", "lines", "words", "noise", "frames")]
    micropython(SUPPORT / "board_ticks.py", *files)
    board = list(written_frames(folder / "frames"))
    agent = _agent(folder, policy, ticks, words, noise)
    assert len(board) > len(ticks) // 200
    assert board == agent


@pytest.mark.long
@pytest.mark.parametrize("name", KINDS)
def test_the_board_makes_the_agents_frames(name: str, tmp_path: Path) -> None:
    _compare(tmp_path, name, 2_500)


@pytest.mark.soak
@pytest.mark.parametrize("name", KINDS)
def test_the_board_makes_the_agents_frames_for_a_hundred_thousand_ticks(name: str, tmp_path: Path) -> None:
    _compare(tmp_path, name, 100_000)
