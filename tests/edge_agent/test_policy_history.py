"""A device's record of its policies: which ticks each has drawn, over restarts, power cuts, clocks and refusals."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edge_agent.__main__ import main
from edge_agent.agent import Agent
from edge_agent.dating import device_history
from edge_agent.describing import Describer
from edge_agent.local_control import ask_status
from edge_agent.outbox import Outbox, OutboxError
from edge_agent.policy_history import MOST_ROWS
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.replay import ReplaySensor
from edge_agent.sensors.source import SensorUpdate
from fugu.contract.chains import BinaryChains
from fugu.contract.dating import dates_of, settling_ticks
from fugu.contract.descriptions import Description
from fugu.contract.guarantee import Guarantee
from fugu.contract.history import Noise, Span
from fugu.contract.policy import Clock, Policy
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker
from fugu.planning.window_plan import WantedWindow, joint_plan
from fugu.privacy.randomised_response import calibrate
from tests.support.agents import SECOND, JumpingClock, agent_plan, plan_of
from tests.support.brokers import Mosquitto, wait_until
from tests.support.changing_noise import odds_leakage, stretch_losses
from tests.support.outboxes import symbol_frames, window_frames
from tests.support.processes import Recorder, write_device
from tests.support.windows import policy as any_policy

CHAINS = BinaryChains(q=(0.2, 0.3), r=(0.2, 0.3))
ODDS = 16.0
SENSOR = {"kind": "call", "target": "builtins:float", "silence": "samples", "keep_alive_ticks": None}


@cache
def policy(version: int, epsilon: float, *, counted: bool = False) -> Policy:
    windows, table = (), None
    if counted:
        windows = joint_plan(CHAINS, epsilon, "universal", [WantedWindow("five", 5, (1,))]).windows
    else:
        table = calibrate(CHAINS, epsilon, "universal", slack=True).table
    fields = {"version": version, "frame_ticks": 1 if counted else 10, "table": table, "windows_guarantee": None}
    return any_policy(*windows, **fields, chains=CHAINS, guarantee=Guarantee(epsilon=epsilon, adversary="universal"))


def test_a_dating_that_fails_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was tried again only when ticks were lost, or the policy changed: so perhaps never."""
    drawn = SimpleNamespace(unchanged=False, row_starts=((0, 1), (9, 2)))
    outbox: Any = SimpleNamespace(drawn_ticks=lambda _stream: drawn, drawn_document=lambda _plan: {})
    answers, published, now = [{"detail": "no memory"}, {"descriptions": {"hr": "text"}}], list[str](), [0.0]
    describing = Describer("", {"hr": "old"}, outbox, print)
    monkeypatch.setattr(describing._child, "ask", lambda _arguments, _question, take: take(answers.pop(0)))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for now[0] in (0.0, 100.0, 599.0, 601.0, 2000.0):
        describing.pump([plan_of(policy(2, 1.0))], lambda _stream, text: not published.append(text))
        assert published == ["text"] * (now[0] > 600.0)
    assert not answers


class SetClock(JumpingClock):
    """A clock whose wall time can be set; right from the start."""

    ahead = 0

    def now_us(self) -> int:
        return self.now + self.ahead


class Watched(ReplaySensor):
    """A recording that notes which ticks it was read at."""

    def __init__(self, ticks: list[int]) -> None:
        super().__init__([0.0, 1.0], loop=True)
        self.recorded = False
        self._ticks = ticks

    def poll(self, tick: int) -> SensorUpdate:
        self._ticks.append(tick)
        return super().poll(tick)


@dataclass
class Device:
    """The real agent's ticker and outbox on a clock of the test's; `read` are the ticks that came, `kinds` what did."""

    folder: Path
    clock: SetClock = field(default_factory=lambda: SetClock(1000 * SECOND))
    read: list[int] = field(default_factory=list)
    running: list[Policy] = field(default_factory=list)
    ran: dict[int, Policy] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    lives: dict[int, int] = field(default_factory=dict)
    starts: int = 0

    def start(self, policy: Policy) -> None:
        whole = replace(agent_plan(self.folder, Broker(port=9), drain_seconds=0.0, forget="committed"))
        self.agent = Agent(
            replace(whole, streams=(plan_of(policy, SENSOR),)), [Watched(self.read)], system_entropy(), self.clock
        )
        self.running.append(policy)
        self.starts += 1

    def live(self, ticks: int) -> None:
        for _ in range(ticks):
            self.clock.now += SECOND
            seen = len(self.read)
            self.agent._ticker.catch_up()
            self.ran |= dict.fromkeys(self.read[seen:], self.running[-1])
            self.lives |= dict.fromkeys(self.read[seen:], self.starts)

    def stop(self) -> None:
        self.agent._ticker.finish()
        self.agent._outbox.close()
        self.agent._local_status.close()

    def lose_power(self) -> None:
        """All that is in memory is lost; the file is what the last transaction has left."""
        self.agent._outbox._db.close()
        self.agent._local_status.close()

    @property
    def drawn(self) -> dict[str, Any]:
        return json.loads(json.dumps(self.agent._outbox.drawn_ticks("hr").document()))

    @property
    def outbox(self) -> Outbox:
        return self.agent._outbox

    def released(self) -> dict[int, int]:
        """The version under which each tick that is durable was drawn."""
        policy_versions = {
            frame.first + i: frame.policy_version
            for frame in symbol_frames(self.outbox)
            for i in range(len(frame.symbols))
        }
        for frame in window_frames(self.outbox):
            ticks = [tick for tick in range(frame.first, frame.first + frame.length) if tick in self.ran]
            if frame.observed < len(ticks):  # begun anew in its midst: what was before is lost, or in its record
                ticks = [tick for tick in ticks if self.lives[tick] == self.lives[ticks[-1]]]
            policy_versions |= dict.fromkeys(ticks, frame.policy_version)
        # A window that begins anew within its ticks, under another version, has none of those before.
        return {
            tick: version
            for tick, version in policy_versions.items()
            if tick in self.ran and self.ran[tick].version == version
        }


def ticks_of(history: Any) -> dict[int, Span]:
    """The span of each tick; the last span ends far away."""
    return {
        tick: span
        for span in history.spans
        if span.first is not None
        for tick in range(span.first, (span.first + 5000 if span.last is None else span.last) + 1)
    }


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path)


def test_a_promise_after_a_weaker_policy_is_dated_from_its_first_tick(device: Device) -> None:
    loud, quiet = policy(1, 4.0), policy(2, 1.0)
    device.start(loud)
    device.live(30)
    device.stop()
    device.start(quiet)
    before = dates_of(quiet, device_history(quiet, {"hr": device.drawn}))
    assert before.since is None, "its first tick has not come"
    device.live(40)
    when = dates_of(quiet, device_history(quiet, {"hr": device.drawn}))
    first = min(tick for tick, ran in device.ran.items() if ran is quiet)
    settling = settling_ticks(CHAINS, 1.0)
    assert first < when.since <= first + settling
    assert when.until is None
    rows = device.drawn["rows"]
    assert [(row[2], len(device.drawn["editions"])) for row in rows] == [(1, 2), (2, 2)]


def test_a_first_version_is_always_true_and_of_what_was_before_a_later_one_nothing_is_known(device: Device) -> None:
    device.start(policy(1, 1.0))
    device.live(25)
    assert dates_of(policy(1, 1.0), device_history(policy(1, 1.0), {"hr": device.drawn})).holds_always
    device.stop()
    other = Device(device.folder / "other")
    other.folder.mkdir()
    other.start(policy(7, 1.0))
    other.live(25)
    when = dates_of(policy(7, 1.0), device_history(policy(7, 1.0), {"hr": other.drawn}))
    assert when.since > 1000, "a lost outbox may have had a weaker one"


def test_another_policy_under_the_same_number_is_another_one(device: Device) -> None:
    device.start(policy(1, 4.0))
    device.live(20)
    device.stop()
    device.start(policy(1, 1.0))
    device.live(20)
    when = dates_of(policy(1, 1.0), device_history(policy(1, 1.0), {"hr": device.drawn}))
    assert not when.holds_always
    assert when.since > 1020


def test_the_oldest_rows_are_forgotten_before_there_are_too_many(device: Device) -> None:
    device.start(policy(1, 4.0))
    device.live(4)
    device.stop()
    device.start(policy(2, 1.0))
    for _ in range(MOST_ROWS + 20):
        device.live(2)
        device.clock.now += 20 * SECOND
    assert len(device.drawn["rows"]) == MOST_ROWS
    assert len(device.drawn["editions"]) == 1, "what has no tick any more"
    device.stop()
    device.start(policy(2, 1.0))
    assert len(device.drawn["rows"]) == MOST_ROWS
    when = dates_of(policy(2, 1.0), device_history(policy(2, 1.0), {"hr": device.drawn}))
    assert when.since > device.drawn["rows"][0][0], "the first policy is not known any more"
    device.stop()
    rows = sqlite3.connect(device.folder / "outbox.sqlite").execute("SELECT count(*) FROM drawn").fetchone()
    assert rows == (MOST_ROWS,)


@pytest.mark.long
def test_a_device_without_a_gateway_dates_what_it_says_and_shows_it_to_its_owner(
    broker: Mosquitto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real processes: a second version follows a weaker one, its agent is killed, and goes on."""
    address, night, folder = Broker(port=broker.port), tmp_path / "night.csv", tmp_path / "watch"
    night.write_text("value\n0\n1\n")
    heard = Recorder(address, topic_of("description", "home", "watch", "hr"))

    def described() -> list[Description]:
        return heard.of("description", Description.decode)

    def written(version: int, epsilon: float) -> Path:
        draft = policy(version, epsilon).model_copy(update={"clock": Clock(epoch_us=0, period_us=20_000)})
        return write_device(folder, draft, night, "value", address, loop=True, forget="puback", drain_seconds=0.0)

    config = written(1, 4.0)
    with subprocess.Popen([sys.executable, "-m", "edge_agent", str(config)]) as process:
        wait_until(described)
        assert described()[-1].guarantee.holds_always
        wait_until(lambda: len(drawn_of(config)) == 1 and next_tick(config) > drawn_of(config)[0][0] + 30)
        process.terminate()
    written(2, 1.0)
    with subprocess.Popen([sys.executable, "-m", "edge_agent", str(config)]) as process:
        wait_until(lambda: described()[-1].version == 2 and described()[-1].guarantee.since is not None)
        since = described()[-1].guarantee.since
        assert drawn_of(config)[-1][0] < since
        wait_until(lambda: next_tick(config) > since + 20)
        assert main(["--status", str(config)]) == 0
        process.kill()
    assert f"promises epsilon 1 about any tick, true of what begins from tick {since} on" in capsys.readouterr().out
    before = len(described())
    with subprocess.Popen([sys.executable, "-m", "edge_agent", str(config)]) as process:
        wait_until(lambda: len(described()) > before)
        process.terminate()
    assert described()[-1].guarantee.since == since, "a restart after that tick takes nothing back"


def next_tick(config: Path) -> int:
    return int(ask_status(config.parent / "outbox.sqlite")["streams"][0]["next_tick"])


def drawn_of(config: Path) -> list[list[int]]:
    return ask_status(config.parent / "outbox.sqlite")["streams"][0]["drawn"]["rows"]


def steps_of(device: Device) -> tuple[list[int], np.ndarray]:
    """The ticks that came, in order, with the rates of what was released of each."""
    released = device.released()
    by_version = {running.version: running for running in device.running}
    rates = []
    for tick in sorted(device.ran):
        ratios = by_version[released[tick]].outputs.ratios if tick in released else (1, 1)
        rates.append([float(np.log(float(ratio))) for ratio in ratios])
    return sorted(device.ran), np.array(rates)


def check_life(seed: int, folder: Path, counts: Counter[str]) -> None:
    """Live with policies up and down, restarts, power cuts, jumps, pauses and refusals; hold it to what happened."""
    draw, device = random.Random(seed), Device(folder)
    counted, version = draw.random() < 0.3, 1
    current = policy(version, draw.choice((1.0, 2.0, 4.0)), counted=counted)
    device.start(current)
    for _ in range(draw.randint(3, 9)):
        device.live(draw.randint(1, 60))
        match kind := draw.choice(("restart", "cut", "jump", "pause", "refused", "policy", "policy", "pushed")):
            case "restart" | "cut":
                device.stop() if kind == "restart" else device.lose_power()
                device.clock.now += draw.randint(0, 30) * SECOND
                device.start(current)
            case "jump":
                device.clock.ahead += draw.randint(700, 3000) * SECOND
                device.live(620)  # until it is believed
            case "pause":
                device.agent._is_paused = True
                device.live(draw.randint(1, 30))
                device.agent._is_paused = False
            case "refused":
                with pytest.raises(OutboxError):
                    device.agent._ticker.switch(
                        [replace(plan_of(policy(version + 1, 1.0), SENSOR), period_us=7)], lambda: None
                    )
            case _:
                version += 1
                current = policy(version, draw.choice((1.0, 2.0, 4.0)), counted=counted)
                if kind == "policy":
                    device.stop() if draw.random() < 0.5 else device.lose_power()
                    device.start(current)
                else:
                    device.agent._ticker.switch([plan_of(current, SENSOR)], lambda: None)
                    device.running.append(current)
        counts[kind] += 1
    device.live(draw.randint(1, 60))
    device.stop()
    device.start(current)
    released, history = device.released(), device_history(current, {"hr": device.drawn})
    spans = ticks_of(history)
    noises = {running.version: Noise.of(running) for running in device.running}
    for tick, number in released.items():
        assert (spans[tick].version == current.version) == (number == current.version)
        assert spans[tick].noise == noises[number]
    ended = [span for span in history.spans if span.last is not None]
    assert {tick for span in ended for tick in range(span.first or 0, (span.last or 0) + 1)} <= set(device.ran)
    numbers, steps = steps_of(device)
    past, future = odds_leakage(ODDS, steps), odds_leakage(ODDS, steps[::-1])[::-1]
    truth, when, bound = stretch_losses(past, future, steps, 1), dates_of(current, history), current.bound()
    outside = when.epsilon(bound, -1, -1, 1)
    for number, loss in zip(numbers, truth.tolist(), strict=True):
        if released.get(number) != current.version:
            continue
        covered = when.covers(number, number, 1)
        assert loss <= (bound.epsilon(1) if covered else outside) + 1e-9, (seed, number)
        counts["covered" if covered else "outside"] += 1
    device.stop()


@pytest.mark.long
def test_what_a_device_says_of_its_promise_is_true_whatever_happens(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in (1, 2, 3, 5, 8, 13, 14, 18):
        folder = tmp_path / str(seed)
        folder.mkdir()
        check_life(seed, folder, counts)
    kinds = ("restart", "cut", "jump", "pause", "refused", "policy", "pushed", "covered", "outside")
    assert all(counts[kind] for kind in kinds), counts


@pytest.mark.soak
def test_what_many_devices_say_of_their_promises_is_true(tmp_path: Path) -> None:
    for seed in range(500):
        folder = tmp_path / str(seed)
        folder.mkdir()
        check_life(10_000 + seed, folder, Counter())
