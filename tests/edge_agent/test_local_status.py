"""Words on the device itself: the local status, a broker that is not there, an outbox that is in use."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from edge_agent.__main__ import main
from edge_agent.agent import Agent
from edge_agent.local_control import status_words
from edge_agent.outbox import Outbox
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.replay import ReplaySensor
from fugu.host.process import Wake
from fugu.mqtt import Broker
from tests.support.agents import SECOND, JumpingClock, agent_plan, running
from tests.support.brokers import PATIENCE, Mosquitto, await_end, wait_until
from tests.support.processes import policy, write_device


def test_a_second_agent_on_one_outbox_is_told_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "night.csv").write_text("value\n0\n")
    device = policy(epoch_us=0, period_us=SECOND)
    config = write_device(tmp_path / "watch", device, tmp_path / "night.csv", "value", Broker(port=9))
    first = Outbox(tmp_path / "watch" / "outbox.sqlite", device.fleet, device.device)
    command = [sys.executable, "-m", "edge_agent", str(config)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    first.close()
    assert second.returncode == 1
    assert len(second.stderr.splitlines()) == 1
    assert f"outbox {first.path} is in use by another agent that runs" in second.stderr


class Unhurried(JumpingClock):
    """One that leaves the processor to others while the agent waits for its broker."""

    def wait(self, wake: Wake, seconds: float) -> None:
        time.sleep(0.002)
        super().wait(wake, seconds)


def test_an_unreachable_broker_is_told_once_and_again_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Mosquitto(tmp_path)
    plan = agent_plan(tmp_path, Broker(port=broker.port, max_backoff=1))
    clock = Unhurried(0)
    agent = Agent(plan, [ReplaySensor([0.0], loop=True)], system_entropy(), clock)
    with running(agent) as thread:
        wait_until(lambda: bool(caplog.messages))
        seen = clock.now
        wait_until(lambda: clock.now > seen + 500 * SECOND)
        assert caplog.messages == [
            f"broker 127.0.0.1:{broker.port}: no broker at 127.0.0.1:{broker.port}: Connection refused; "
            "frames wait in the outbox"
        ]
        with broker:
            wait_until(lambda: len(caplog.messages) == 3)
            again, first = sorted(caplog.messages[1:])
            assert again == f"broker 127.0.0.1:{broker.port}: connected again"
            assert re.fullmatch(r"connected; first share at (\d{4}-\d\d-\d\d )?\d\d:\d\d", first)
            agent.stop()  # which sends all that waits
            await_end(thread)


def test_the_local_status_tells_of_the_sensor_in_counts_and_fixed_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = policy(epoch_us=0, period_us=SECOND)
    config = write_device(tmp_path / "watch", device, tmp_path / "night.csv", "value", Broker(port=9))
    assert main(["--status", str(config)]) == 1
    refused = capsys.readouterr().err
    assert (len(refused.splitlines()), "no agent answers" in refused) == (1, True)
    plan = agent_plan(tmp_path / "watch", Broker(port=9))
    clock = JumpingClock(1000 * SECOND)
    agent = Agent(plan, [ReplaySensor([71.5, "", "wrong 71.5"], loop=True)], system_entropy(), clock)
    for _ in range(9):
        clock.now += SECOND
        agent._ticker.catch_up()
    answering = threading.Thread(
        target=lambda: wait_until(
            lambda: agent._local_status._answering.answer(lambda: json.dumps(agent._status_document()), 1.0)
        )
    )
    answering.start()
    assert main(["--status", str(config)]) == 0
    await_end(answering)
    files = {file.name for file in (tmp_path / "watch").iterdir() if file.name.startswith("outbox")}
    assert files == {"outbox.sqlite", "outbox.sqlite-wal", "outbox.sqlite.socket"}, "nothing of it is in a file"
    assert set(agent._status_document()["streams"][0]) == {
        *("stream", "policy_version", "drawn", "next_tick", "ticks", "silent", "unusable", "sensor", "watch"),
        "own_epsilon",
    }
    agent._outbox.close()
    shown = capsys.readouterr().out
    assert "not connected, 0 frames in the outbox" in shown
    assert "next tick 1010; 3 of 9 ticks without a reading, 3 unusable readings" in shown
    assert "71" not in shown
    assert "what came is no number" not in shown, "some readings are of use"


def test_the_local_status_says_that_no_reading_so_far_is_of_use(tmp_path: Path) -> None:
    device = policy(epoch_us=0, period_us=SECOND)
    write_device(tmp_path / "watch", device, tmp_path / "night.csv", "value", Broker(port=9))
    clock = JumpingClock(1000 * SECOND)
    sensors = [ReplaySensor(["wrong 71.5", ""], loop=True)]
    agent = Agent(agent_plan(tmp_path / "watch", Broker(port=9)), sensors, system_entropy(), clock)
    for _ in range(9):
        clock.now += SECOND
        agent._ticker.catch_up()
    status = agent._status_document()
    agent._outbox.close()
    shown = status_words(status, {})
    assert "sensor: what came is no number, category or place of its policy" in shown
    assert ("71.5" in shown, status["codes"]) == (False, ()), "nothing of it is published"
    assert (agent._ticker.is_over, status["streams"][0]["ticks"]) == (False, 9), "it goes on"
