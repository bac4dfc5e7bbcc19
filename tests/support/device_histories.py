"""Histories of an agent's ticks and windows on clocks that jump, through crashes and restarts, as digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from edge_agent.plan import StreamPlan
from edge_agent.sensors.source import Reading
from tests.support.agents import stream_plan, window_plan
from tests.support.clocked_device import Device, Live
from tests.support.clocks import SECOND, TwoClocks
from tests.support.device_source import Source

__all__ = ["HISTORIES", "LONG", "NOW", "SHORT", "Step", "history_digests", "plans", "steps"]

NOW = 1_800_000_000
HOUR = 3600 * SECOND
SHORT, LONG = 700, 12_000
"""Steps of a history in `make test`, and in the soak."""
HISTORIES = {"clocks 1": False, "clocks 2": False, "clocks 3": False, "lives 1": True, "lives 2": True, "lives 3": True}
"""True if the device is restarted, too."""
_SENSOR = {"kind": "call", "target": "time:time", "silence": "samples", "keep_alive_ticks": None}


@dataclass(frozen=True)
class Step:
    """So much time passes, the wall clock is moved by so much, or something else happens."""

    passed: int = 0
    moved: int = 0
    what: str = ""


def steps(name: str) -> Iterator[Step]:
    """A device that does not know the time, then drift, small steps, jumps that last and jumps that do not; for ever.

    Of a device that is restarted, also crashes, orderly stops, and signed times that confirm a jump.
    """
    source, lives = Source(f"history {name}"), HISTORIES[name]
    for _ in range(40):
        yield Step(250_000)
    yield Step(250_000, NOW * SECOND)
    while True:
        what = source.below(9 if lives else 6)
        if what == 0:
            yield Step(100_000, source.among((-HOUR, -70 * SECOND, -3 * SECOND, 5 * SECOND, 2 * HOUR)))
            for _ in range(source.among((60, 700))):
                yield Step(SECOND)
        elif what == 1:
            away = source.among((-HOUR, 365 * 24 * HOUR, 90 * SECOND))
            yield Step(100_000, away)
            for _ in range(source.among((5, 100, 500))):
                yield Step(SECOND)
            yield Step(100_000, -away)
        elif what == 2:
            drift = source.among((-900, -300, 300, 900))  # microseconds a second
            for _ in range(200):
                yield Step(SECOND // 2, drift // 2)
        elif what == 3:
            yield Step(100_000, source.below(1_800_000) - 900_000)
            for _ in range(100):
                yield Step(100_000)
        elif what == 4:
            for _ in range(5):
                yield Step(SECOND + source.below(7 * SECOND))  # a machine that was late
        elif what == 5:
            for _ in range(1 + source.below(40)):
                yield Step(250_000)
            yield Step(what="switch")
            for _ in range(40):
                yield Step(250_000)
        else:
            for _ in range(source.below(60)):
                yield Step(SECOND)
            yield Step(source.below(100 * SECOND), what=("crash", "stop", "signed")[what - 6])
            for _ in range(source.below(200)):
                yield Step(SECOND)


class _Changing(Live):
    """Readings that a tick's number gives, some of them missing."""

    def read(self, tick: int) -> Reading | None:
        number = hashlib.sha256(b"%d" % tick).digest()[0]
        return None if number < 20 else Reading(float(number & 1))


class _Seeded(Device):
    """A device whose readings and randomness are those of a name; a life has other words than the one before."""

    def __init__(self, folder: Path, clocks: TwoClocks, plan: StreamPlan, name: str) -> None:
        self.name, self.lives = name, 0
        super().__init__(folder, clocks, plan)

    def start(self) -> None:
        self.lives += 1
        self.entropy, self.sensor = Source(f"noise of {self.name}, life {self.lives}").noise, _Changing
        super().start()


def plans(period_us: int = SECOND) -> list[StreamPlan]:
    """Two plans of a stream, between which a device switches: their windows shift ticks by other multiples."""
    first = stream_plan(period_us=period_us, windows=(window_plan(name="minute", length=60),), sensor=_SENSOR)
    return [first, replace(first, version=2, windows=(window_plan(name="more", length=90),))]


def history_digests(name: str, count: int, folder: Path) -> tuple[str, str]:
    """Digests of so many steps: of each tick that was drawn, its shift and its moment; and of all frames."""
    mine, clocks = plans(), TwoClocks(0.5, synchronised=False)
    device = _Seeded(folder, clocks, mine[0], name)
    for step in islice(steps(name), count):
        if step.what == "switch":
            mine.reverse()
            device.plans = (mine[0],)
            device.ticks.switch(mine[:1], lambda: None)
            continue
        if step.what in ("crash", "stop"):
            device.crash() if step.what == "crash" else device.stop()
        clocks.pass_us(step.passed)
        clocks.wall += step.moved
        clocks.known = clocks.wall >= (NOW - 1) * SECOND
        if step.what in ("crash", "stop"):
            device.start()
        elif step.what == "signed":
            device.time.follow(clocks.wall // SECOND)
        device.ticks.catch_up()
        device.ticks.prepare()
    ticks, frames, after = hashlib.sha256(), hashlib.sha256(), 0
    device.ticks.close_frames()
    for drawn in device.drawn:
        ticks.update(b"%d %d %d\n" % drawn)
    while (frame := device.outbox.frames.next(after)) is not None:
        after = frame.id
        frames.update(b"%s %d\n" % (frame.sequence.encode(), len(frame.payload)) + frame.payload)
    device.crash()
    assert after > 0
    return ticks.hexdigest()[:32], frames.hexdigest()[:32]
