"""Deaths in the middle: of agents, broker, gateway. Nothing is lost, and no tick is randomised twice."""

from __future__ import annotations

import random
import sqlite3
import time
from pathlib import Path

import numpy as np

from edge_agent.outbox import Outbox
from firmware_sim.devices import simulate_recording
from fugu.chains import filter_beliefs
from fugu.mqtt import Broker
from gateway.estimates.models import model_of
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.processes import AgentProcess, GatewayProcess, Recorder, by_tick, policy, write_device
from tests.support.simulated_states import simulate_states


class Device:
    """A simulated device with a recording of its own."""

    def __init__(self, folder: Path, port: int, *, period_us: int) -> None:
        self.policy = policy(epoch_us=time.time_ns() // 1000, period_us=period_us)
        (folder / "policies").mkdir()
        (folder / "policies" / "watch.json").write_text(self.policy.to_json())
        states = simulate_states(((0.8, 0.2), (0.35, 0.65)), 5000, random.Random(4))
        simulate_recording(folder / "night.csv", self.policy, states)
        broker = Broker(port=port, max_backoff=1)
        self.folder = folder / "watch"
        self.config = write_device(
            self.folder, self.policy, folder / "night.csv", "value", broker, loop=True, drain_seconds=PATIENCE
        )
        self.log = folder / "agent.log"

    def start(self) -> AgentProcess:
        return AgentProcess(self.config, self.log)

    def depth(self) -> int:
        """Frames in the outbox of a device that is not running."""
        outbox = Outbox(self.folder / "outbox.sqlite", "home", "watch")
        try:
            return outbox.frames.depth()
        finally:
            outbox.close()


def test_broker_and_gateway_die_in_the_middle_and_the_beliefs_are_those_of_an_undisturbed_run(
    broker: Mosquitto, tmp_path: Path
) -> None:
    device = Device(tmp_path, broker.port, period_us=5000)
    gateway = GatewayProcess(tmp_path, broker.port)
    agent = device.start()

    def stored() -> int:
        return len(gateway.frames())

    wait_until(lambda: stored() >= 5)
    broker.kill()
    broker.start()
    reached = stored()
    wait_until(lambda: stored() >= reached + 5)
    gateway.kill()
    reached = stored()
    gateway = GatewayProcess(tmp_path, broker.port)
    wait_until(lambda: stored() >= reached + 5)
    broker.kill()
    gateway.kill()
    broker.start()
    gateway = GatewayProcess(tmp_path, broker.port)
    reached = stored()
    wait_until(lambda: stored() >= reached + 5)
    assert agent.stop(PATIENCE) == 0, device.log.read_text()
    assert device.depth() == 0
    frames = gateway.frames()
    assert gateway.stop() == 0
    symbols = by_tick(frames)
    first, last = min(symbols), max(symbols)
    assert sorted(symbols) == list(range(first, last + 1)), "ticks are missing although the device never stopped"
    assert [frame.previous for frame in frames] == [-1, *(frame.last for frame in frames[:-1])]
    model = model_of(device.policy)
    sequence = np.array([symbols[tick] for tick in range(first, last + 1)])
    undisturbed = filter_beliefs(sequence, model.initial, model.transition, model.emission).beliefs
    np.testing.assert_allclose(gateway_belief(gateway), undisturbed[-1], atol=1e-12)


def gateway_belief(gateway: GatewayProcess) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The belief at the newest tick that a gateway has sealed at its end."""
    with sqlite3.connect(gateway.store) as db:
        (belief,) = db.execute("SELECT distribution FROM heads").fetchone()
    return np.frombuffer(belief, dtype=np.float64)


def test_sigterm_sends_what_is_left_and_ends_with_zero(broker: Mosquitto, tmp_path: Path) -> None:
    device = Device(tmp_path, broker.port, period_us=20_000)
    gateway = GatewayProcess(tmp_path, broker.port)
    recorder = Recorder(Broker(port=broker.port))
    wait_until(gateway.hears, "the gateway")  # what is sent before is sent again seconds later
    agent = device.start()
    wait_until(lambda: len(recorder.payloads) >= 2)
    assert agent.stop(PATIENCE) == 0
    assert device.depth() == 0
    frames = recorder.frames()
    assert {len(frame.symbols) + frame.padding for frame in frames} == {10}
    wait_until(lambda: by_tick(gateway.frames()) == by_tick(frames))
    assert gateway.stop() == 0
    recorder.link.stop()
