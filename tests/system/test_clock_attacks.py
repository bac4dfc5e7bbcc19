"""Real agents whose wall clock is set under them: what they publish, at a real broker."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from firmware_sim.devices import simulate_recording
from fugu.contract.errors import StatusCode
from fugu.contract.frames import Status, SymbolFrame
from fugu.mqtt import Broker
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.clocks import WallClock
from tests.support.processes import Recorder, by_tick, policy, write_device
from tests.support.simulated_states import simulate_states

pytestmark = pytest.mark.processes
PERIOD_US = 50_000
YEAR = 365 * 86400
UNSYNCHRONISED = """
import pathlib, sys
import fugu.host.clock as clock
clock._TIMESYNC = pathlib.Path(sys.argv.pop())
clock._steered = lambda: False
from edge_agent.__main__ import main
sys.exit(main())
"""


class Attacked:
    """A device with a wall clock of its own, and all that it has published."""

    def __init__(self, broker: Mosquitto, folder: Path, *, clock: str = "", sensor: str = "", ahead: int = 0) -> None:
        self.folder, self.wall = folder, WallClock(folder / "wall", ahead)
        self.policy = policy(epoch_us=time.time_ns() // 1000 - 3600 * 1_000_000, period_us=PERIOD_US)
        states = simulate_states(((0.8, 0.2), (0.35, 0.65)), 1000, random.Random(4))
        simulate_recording(folder / "night.csv", self.policy, states)
        address = Broker(port=broker.port, max_backoff=1)
        self.config = write_device(
            *(folder / "watch", self.policy, folder / "night.csv", "value", address),
            loop=True,
            forget="puback",
            status_seconds=0.2,
        )
        text = self.config.read_text().replace("[broker]", f"[clock]\n{clock}\n[broker]")
        if sensor:
            text = text[: text.index("[streams.sensor]")] + f"[streams.sensor]\n{sensor}\n"
        self.config.write_text(text)
        self.recorder = Recorder(Broker(port=broker.port))
        self.statuses = Recorder(Broker(port=broker.port), "fugu/2/home/+/status")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> None:
        command = [sys.executable, *(words or ("-m", "edge_agent"))]
        command.insert(len(command) - (len(words) > 2), str(self.config))
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | self.wall.environment)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE)
        self.recorder.link.stop()
        self.statuses.link.stop()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE)

    @property
    def frames(self) -> list[SymbolFrame]:
        return self.recorder.frames()

    def more(self, ticks: int) -> None:
        """Wait until so many further ticks have been published."""
        before = len(by_tick(self.frames))
        wait_until(lambda: len(by_tick(self.frames)) >= before + ticks)

    def codes(self) -> tuple[StatusCode, ...]:
        found = [Status.decode(payload) for payload in self.statuses.payloads]
        return found[-1].codes if found else ()

    def shifted(self) -> bool:
        return bool(self.frames) and self.frames[-1].shift > 0

    def check(self) -> None:
        """Numbers ascend over frames, shifts do not fall, and no tick has two symbols."""
        ordered = sorted(set(self.frames), key=lambda frame: frame.first)
        for one, later in pairwise(ordered):
            assert later.first > one.last
            assert later.previous == one.last
            assert later.shift >= one.shift
        by_tick(self.frames)


@pytest.fixture
def attacked(broker: Mosquitto, tmp_path: Path) -> Iterator[Callable[..., Attacked]]:
    made: list[Attacked] = []

    def make(**options: object) -> Attacked:
        made.append(Attacked(broker, tmp_path, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.end()


def test_a_clock_one_year_ahead_for_3_seconds_silences_no_device(attacked: Callable[..., Attacked]) -> None:
    device = attacked()
    device.start()
    device.more(20)
    device.wall.set(YEAR)
    device.more(60)
    wait_until(lambda: StatusCode.CLOCK in device.codes())
    device.kill()
    device.start()
    device.more(20)
    device.wall.set(0)
    wait_until(lambda: StatusCode.CLOCK not in device.codes())
    device.more(20)
    device.check()
    assert {frame.shift for frame in device.frames} == {0}, "as if nothing had happened, and over a restart"
    assert max(frame.last for frame in device.frames) <= device.wall.tick(device.policy)


def test_a_board_that_boots_in_1970_draws_nothing_until_it_is_synchronised(attacked: Callable[..., Attacked]) -> None:
    device = attacked(sensor='kind = "call"\ntarget = "time:time"', ahead=-int(time.time()) + 10)
    synchronised = device.folder / "synchronised"
    device.start("-c", UNSYNCHRONISED, str(synchronised))
    wait_until(lambda: device.codes() == (StatusCode.CLOCK,))
    assert device.frames == []
    assert "timedatectl set-ntp true" in (device.folder / "agent.log").read_text()
    device.wall.set(0)
    before = device.wall.tick(device.policy)
    synchronised.touch()
    device.more(20)
    wait_until(lambda: device.codes() == ())
    device.check()
    assert before <= device.frames[0].first <= device.wall.tick(device.policy)
    assert {frame.shift for frame in device.frames} == {0}
