"""Real devices that release windows, a gateway that adds them up, and an audience that is told the truth, nearly."""

from __future__ import annotations

import math
import random
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from firmware_sim.devices import simulate_recording
from fugu.contract.chains import BinaryChains
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker
from fugu.planning.policy_builder import PolicyHeader, build_window_policy, thresholds
from fugu.planning.window_plan import WantedWindow, joint_plan
from gateway.releases.audit import verify
from gateway.releases.ledger import Ledger
from tests.support.brokers import Mosquitto, wait_until
from tests.support.processes import AgentProcess, Recorder, write_device
from tests.support.release_scenes import Public, scheduled, start_gateway, write_config
from tests.support.simulated_states import simulate_states
from tests.support.stored import stored_symbols

CHAINS = BinaryChains(q=(0.2, 0.2), r=(0.35, 0.35))
WINDOW, LENGTH, TICKS = 500, 1000, 4321
DEVICES = {"watch": None, "ring": None, "belt": 0.3}
"""The share of epsilon that a device leaves to symbols."""
EVERYBODY = '[audiences.public]\nepsilon = 1.0\nadversary = "universal"\n'


def _most_noise(scales: list[Fraction]) -> int:
    """Size that a sum of discrete Laplace noises exceeds once in 10^9 times, or more rarely."""
    reach, whole = 400, np.ones(1)
    for ratio in (math.exp(-1.0 / float(scale)) for scale in scales):
        chances = (1.0 - ratio) / (1.0 + ratio) * ratio ** np.abs(np.arange(-reach, reach + 1))
        whole = np.convolve(whole, chances)
    beyond = np.cumsum(whole[::-1])  # of both ends alike
    return len(whole) // 2 - int(np.searchsorted(beyond, 0.5e-9)) + 1


@pytest.mark.long
def test_a_group_release_from_device_windows_is_within_a_few_percent(broker: Mosquitto, tmp_path: Path) -> None:
    """At epsilon 1, against everybody, and for everything that the devices say together."""
    address, epoch = Broker(port=broker.port, max_backoff=1), float(int(time.time()))
    (tmp_path / "policies").mkdir()
    states: dict[str, list[int]] = {}
    configs, policies = [], []
    for number, (device, share) in enumerate(DEVICES.items()):
        plan = joint_plan(CHAINS, 1.0, "universal", [WantedWindow("count", WINDOW, (1,))], share)
        header = PolicyHeader("home", device, "hr", thresholds((0.5,)), 0.002, latency_seconds=0.2, epoch=epoch)
        policy = build_window_policy(plan, header)
        policies.append(policy)
        (tmp_path / "policies" / f"{device}.json").write_text(policy.to_json())
        states[device] = list(simulate_states(((0.8, 0.2), (0.35, 0.65)), TICKS, random.Random(number)))
        simulate_recording(tmp_path / f"{device}.csv", policy, states[device])
        source = tmp_path / f"{device}.csv"
        configs.append(write_device(tmp_path / device, policy, source, "value", address, loop=True, ceiling=1.0))
    write_config(tmp_path, scheduled(states=["high"], length=LENGTH), audiences=EVERYBODY)
    public, symbols = Public(broker), Recorder(address, topic_of("symbols", "home", "watch", "hr"))
    gateway = start_gateway(broker, tmp_path)
    agents = [AgentProcess(config, tmp_path / "agent.log") for config in configs]
    wait_until(lambda: any(frame.observed == LENGTH * len(DEVICES) for frame in public.releases))
    (frame, *_) = (frame for frame in public.releases if frame.observed == LENGTH * len(DEVICES))
    for agent in agents:
        assert agent.stop() == 0
    assert gateway.stop() == 0
    truth = sum(
        path[tick % TICKS] for path in states.values() for tick in range(frame.first, frame.first + frame.length)
    )
    scales = [Fraction(window.scale) for policy in policies for window in policy.windows]
    assert abs(frame.values[0] - truth) <= _most_noise(scales * (LENGTH // WINDOW)) <= 0.11 * truth
    assert frame.low[0] <= frame.values[0] <= frame.high[0]  # an end where no truth is beyond the number
    assert frame.high[0] - frame.low[0] < 0.1 * truth
    assert (frame.noise, frame.charge, frame.devices) == ("device-windows", 0.0, 3)
    assert symbols.payloads == [], "a device with windows alone sends no symbols"
    assert {device for device, _ in stored_symbols(tmp_path / "s.sqlite")} == {"belt"}
    ledger = Ledger(tmp_path / "l.sqlite", create=False)
    assert verify(ledger).problems == ()
    assert {account.spent for account in ledger.accounts()} == {0}
    assert all(
        0.99 < account.base / account.allowance <= 1.0 for account in ledger.accounts() if account.key.device != "belt"
    )
    ledger.close()
    assert "Traceback" not in (tmp_path / "gateway.log").read_text() + (tmp_path / "agent.log").read_text()
