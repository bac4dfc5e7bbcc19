"""A plan from a recording runs: the agent that it configures releases its windows, with the noise that was planned."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fugu.contract.frames import WindowFrame
from fugu.contract.policies import read_policy
from fugu.contract.policy import Policy
from fugu.mqtt import Broker
from fugu_cli.main import main
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.processes import AgentProcess, Recorder, troubles


def test_the_agent_of_a_plan_releases_what_was_planned(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fugu.planning.auto._EPSILONS", (1.0,))
    rng, state, rows = random.Random(5), 0, ["t,value"]
    for tick in range(6_000):
        state ^= rng.random() < ((0.15, 0.25)[tick // 400 % 2] if state == 0 else (0.25, 0.15)[tick // 400 % 2])
        rows.append(f"{tick * 0.01:.2f},{state}")
    file = tmp_path / "fast.csv"
    file.write_text("\n".join(rows) + "\n")
    assert main(["plan", "auto", str(file), "-o", str(tmp_path / "plan")]) == 0
    policy = read_policy((tmp_path / "plan" / "policy.json").read_bytes())
    assert isinstance(policy, Policy)
    (window,) = policy.windows
    config = tmp_path / "plan" / "agent.toml"
    config.write_text(
        config.read_text()
        .replace("port = 1883", f"port = {broker.port}")
        .replace("outbox", 'forget = "puback"\noutbox', 1)
    )
    seen = Recorder(Broker(port=broker.port), "fugu/2/home/+/window/+")
    agent = AgentProcess(config, tmp_path / "agent.log")
    wait_until(lambda: len(seen.payloads) >= 2)
    assert agent.stop(PATIENCE) == 0
    seen.link.stop()
    frames = [WindowFrame.decode(payload) for payload in seen.payloads]
    assert {(frame.window, frame.length) for frame in frames} == {(window.name, window.length)}
    assert troubles(tmp_path / "agent.log") == []
