"""The average of twenty homes, from a plan for a group over real agents, a broker and a gateway to a subscriber."""

from __future__ import annotations

import math
import random
import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from edge_agent.agent import Agent
from edge_agent.config import load
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.sharing import open_sensors
from fugu.contract.policy import Policy
from fugu.mqtt import Broker
from fugu.mqtt.readings import CountReading, WindowReading
from fugu.mqtt.subscription import Subscription
from fugu_cli.main import main
from tests.support.agents import JumpingClock
from tests.support.brokers import PATIENCE, Mosquitto, await_end, wait_until
from tests.support.processes import GatewayProcess, write_device

HOMES, EPOCH, PERIOD, WINDOW, WINDOWS = 20, 1_700_000_000, 10, 30, 12


def recorded(path: Path, ticks: int, seed: int) -> list[int]:
    """A room that is used more in every other 5 minutes, in all homes at the same time."""
    rng, state, states = random.Random(seed), 0, list[int]()
    for tick in range(ticks):
        often = 0.8 if tick // WINDOW % 2 else 0.2
        if rng.random() < 0.8:
            state = int(rng.random() < often)
        states.append(state)
    rows = (f"{EPOCH + tick * PERIOD},{state}" for tick, state in enumerate(states))
    path.write_text("\n".join(["t,value", *rows]) + "\n")
    return states


@pytest.mark.soak
def test_the_average_of_twenty_homes_is_off_by_what_the_plan_says(broker: Mosquitto, tmp_path: Path) -> None:
    """Errors of homes are independent: theirs is that of one home over the root of twenty, not more and not less."""
    recorded(tmp_path / "room.csv", 9000, 1)
    asked = ("--devices", HOMES, "--epsilon", 2, "--want", "share", "--latency", "5m", "--protect", "tick")
    words = ("plan", "auto", tmp_path / "room.csv", *asked, "--epoch", EPOCH, "-o", tmp_path / "plan")
    assert main([str(word) for word in words]) == 0
    policy = Policy.from_json((tmp_path / "plan" / "policy.json").read_text())
    (window,) = policy.windows
    assert (policy.useful_for, window.length) == (None, WINDOW), "what is recommended is the average of a group"
    address = Broker(port=broker.port, max_backoff=1)
    (tmp_path / "policies").mkdir()
    agents, truth = [], []
    for number in range(HOMES):
        home = policy.model_copy(update={"device": f"home-{number}"})
        (tmp_path / "policies" / f"{number}.json").write_text(home.to_json())
        truth.append(recorded(tmp_path / f"{number}.csv", WINDOW * WINDOWS, 2 + number))
        config = write_device(tmp_path / home.device, home, tmp_path / f"{number}.csv", "value", address)
        plan = load(config)
        clock = JumpingClock(policy.clock.epoch_us)
        agents.append(Agent(plan, open_sensors(plan.streams), system_entropy(), clock))
    gateway = GatewayProcess(tmp_path, broker.port)
    wait_until(gateway.hears, "the gateway")
    with Subscription(address, fleet=policy.fleet, stream=policy.stream) as readings:
        wait_until(lambda: readings.link.connected, "the subscriber")
        threads = [threading.Thread(target=agent.run) for agent in agents]
        for thread in threads:
            thread.start()
        counts: dict[tuple[str, int], int] = {}
        reported: dict[str, float] = {}
        while len(counts) < HOMES * WINDOWS or len(reported) < HOMES:
            one = readings.wait(PATIENCE)
            assert one is not None, "windows or reports are missing"
            if isinstance(one, WindowReading):
                counts[one.device, one.first // WINDOW] = one.counts[0]
            if isinstance(one, CountReading):
                reported[one.device] = one.window.values[0]
        for thread in threads:
            await_end(thread)
    assert gateway.stop() == 0
    told = np.array([[counts[f"home-{number}", index] for index in range(WINDOWS)] for number in range(HOMES)])
    for number in range(HOMES):
        assert reported[f"home-{number}"] in told[number], "the gateway reports what the device has released"
    true = np.array(truth).reshape(HOMES, WINDOWS, WINDOW).sum(axis=2)
    errors = (told - true).mean(axis=0)
    single = math.sqrt(2.0) * float(Fraction(window.scale))
    assert 0.4 < np.sqrt(np.mean(errors**2)) / (single / math.sqrt(HOMES)) < 1.8
