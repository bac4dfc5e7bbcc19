"""Findings of the watch are told to the device's owner, and are nowhere else: not on the network or the disk."""

from __future__ import annotations

import logging
import random
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from edge_agent.__main__ import main
from edge_agent.agent import Agent
from edge_agent.local_control import LocalStatus, LocalStatusError, ask_status, status_words
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.replay import ReplaySensor
from fugu.mqtt import Broker
from tests.support.agents import JumpingClock, agent_plan, running, stream_plan
from tests.support.brokers import wait_until
from tests.support.processes import policy, write_device

PLAN = stream_plan(watch={"q": [0.1, 0.2], "r": [0.2, 0.3], "rate": 0.1, "adversary": "ignorant", "hour": 3600})


def readings(leave: float, length: int = 1000) -> list[float]:
    generator, path = random.Random(1), [0.0]
    for _ in range(length):
        path.append(path[-1] if generator.random() >= leave else 1.0 - path[-1])
    return path


def device(folder: Path, values: Sequence[float]) -> Agent:
    folder.mkdir(exist_ok=True)
    plan = agent_plan(folder, Broker(port=9), PLAN, drain_seconds=0.0, status_seconds=0.0)
    return Agent(plan, [ReplaySensor([*values], loop=True)], system_entropy(), JumpingClock())


def go_on(agent: Agent, ticks: int) -> None:
    for _ in range(ticks):
        agent._clock.now += 1_000_000 - agent._clock.now % 1_000_000
        agent._ticker.catch_up()
        agent._ticker.judge()


@pytest.mark.long
def test_the_owner_of_a_running_agent_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "night.csv").write_text("value\n0\n")
    config = write_device(
        tmp_path / "watch", policy(epoch_us=0, period_us=1_000_000), tmp_path / "night.csv", "value", Broker(port=9)
    )
    agent = device(tmp_path / "watch", readings(0.01))
    outbox = tmp_path / "watch" / "outbox.sqlite"
    path = Path(f"{outbox}.socket")
    assert path.is_socket()
    assert path.stat().st_mode & 0o777 == 0o600
    with running(agent):
        wait_until(lambda: "this noise has epsilon" in status_words(ask_status(outbox), {}))
        assert main(["--status", str(config)]) == 0
    shown = capsys.readouterr().out
    assert "model watch, stream hr: the states are NOT in the declared class of chains, found at tick" in shown
    assert "by your own states of the last day this noise has epsilon " in shown
    assert not path.exists()
    with pytest.raises(LocalStatusError, match="no agent answers"):
        ask_status(outbox)


@pytest.mark.long
def test_nothing_of_it_is_in_a_file_the_log_or_the_status(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A device that has found something looks like one that has not, but for its symbols."""
    caplog.set_level(logging.DEBUG)
    sent, own = [], []
    for name, leave in (("wrong", 0.01), ("right", 0.2)):
        caplog.clear()
        agent = device(tmp_path / name, readings(leave))
        go_on(agent, 1000)
        watch = agent._ticker.streams[0].watch
        assert (watch.alarm is not None) == (name == "wrong")
        sizes = [(file.name, file.is_socket() or file.stat().st_size) for file in sorted((tmp_path / name).iterdir())]
        everything = b"".join(file.read_bytes() for file in (tmp_path / name).iterdir() if file.is_file())
        sent.append((sizes, agent._status(online=True).encode(), caplog.text))
        own.append(watch.own_epsilon)
        assert f"{watch.evidence}".encode() not in everything
        assert repr(watch.evidence) not in repr(agent._status(online=True))
        agent._outbox.close()
    assert sent[0] == sent[1]
    assert own[0] > 2 * own[1]


def test_a_socket_that_was_left_behind_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    first = LocalStatus(tmp_path / "outbox")
    first._answering._socket.close()  # as by SIGKILL
    second = LocalStatus(tmp_path / "outbox")
    assert second._answering._socket is not None
    second.close()
    (tmp_path / "outbox.socket").write_text("somebody's")
    third = LocalStatus(tmp_path / "outbox")
    third.answer(dict)
    third.close()
    assert (tmp_path / "outbox.socket").read_text() == "somebody's"
    assert not LocalStatus(tmp_path / ("long" * 40))._answering.is_open


def test_nobody_who_asks_and_does_not_listen_stops_the_agent(tmp_path: Path) -> None:
    watch = LocalStatus(tmp_path / "outbox")
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(tmp_path / "outbox.socket"))
        watch.answer(dict)
