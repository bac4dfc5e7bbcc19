"""A profile all the way: a device that counts parts of the day, broker, gateway, subscribers, Home Assistant, page."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from edge_agent.agent import Agent
from edge_agent.config import load
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.replay import ReplaySensor
from fugu.contract.windows import Window
from fugu.mqtt import Broker
from fugu.mqtt.readings import CountReading
from fugu.mqtt.subscription import Subscription
from fugu.planning.profiles import profile_blocks
from fugu_cli.view.readings import ReadingLines
from tests.support.agents import SECOND, JumpingClock
from tests.support.brokers import PATIENCE, Mosquitto, await_end, wait_until
from tests.support.browser import chromium
from tests.support.home_assistant import Listener
from tests.support.pages import ServedPage
from tests.support.processes import GatewayProcess, policy, write_device

pytestmark = pytest.mark.soak
PERIOD, DAY = 600, 86_400
TICKS = 2 * DAY // PERIOD
BUSY = 2
"""The part of the local day in which the state is high: from 08:00 to 12:00."""


def test_a_profile_reaches_subscribers_home_assistant_and_the_page(broker: Mosquitto, tmp_path: Path) -> None:
    """Two days of ticks of ten minutes, on a clock that jumps, by the blocks of Berlin."""
    epoch = int(time.time()) // DAY * DAY - 5 * DAY
    blocks = profile_blocks("4h/Europe/Berlin", epoch)
    fields = {"name": "day", "length": TICKS, "stride": TICKS, "states": ("high",), "scale": "2"}
    window = Window.model_validate(fields | {"blocks": vars(blocks)})
    draft = policy(epoch_us=epoch * SECOND, period_us=PERIOD * SECOND, windows=(window,), epsilon=50.0)
    device = draft.model_copy(update={"useful_for": "share"})
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "watch.json").write_text(device.to_json())
    places = [blocks.index_at((epoch + tick * PERIOD) * SECOND) for tick in range(TICKS + 1)]
    values = [float(place == BUSY) for place in places]
    (tmp_path / "days.csv").write_text("\n".join(["value", *map(str, values)]) + "\n")
    address = Broker(port=broker.port, max_backoff=1)
    config = write_device(tmp_path / "watch", device, tmp_path / "days.csv", "value", address)
    listener, gateway = Listener(broker.broker), GatewayProcess(tmp_path, broker.port, home_assistant=True)
    page = ServedPage(tmp_path, broker.port)
    wait_until(gateway.hears, "the gateway")
    agent = Agent(load(config), [ReplaySensor(values, loop=False)], system_entropy(), JumpingClock(epoch * SECOND))
    running = threading.Thread(target=agent.run)
    try:
        with (
            chromium(tmp_path / "profile") as browser,
            Subscription(address, fleet="home", symbols=False, counts=True, timeout=PATIENCE) as heard,
        ):
            browser.open(f"{page.address}/device/watch")
            running.start()
            reading = next(reading for reading in heard if isinstance(reading, CountReading))
            count = reading.window
            assert count.blocks == blocks.labels
            assert TICKS - 1 <= count.observed <= TICKS  # the clock stood at the first tick
            assert abs(count.values[BUSY] - places[:TICKS].count(BUSY)) < 24
            assert max(abs(value) for place, value in enumerate(count.values) if place != BUSY) < 24
            assert all(
                low <= value <= high for low, value, high in zip(count.low, count.values, count.high, strict=True)
            )
            assert "08:00-12:00 " in ReadingLines()(reading)
            share = [f"sensor.home_watch_hr_window_day_{place}" for place in range(6)]
            wait_until(lambda: all(listener.state(entity) not in (None, "unavailable") for entity in share), "shares")
            shown = float(listener.state(share[BUSY]) or "")
            assert shown == pytest.approx(600 * count.values[BUSY] / count.observed, abs=0.01)
            beside = listener.attributes(share[BUSY])
            assert beside["low"] <= shown <= beside["high"]
            wait_until(lambda: browser.count(".share.parts") == 6, "the parts of the day")
            parts = browser.text(".counted")
            assert "high, share of each part of the day" in parts
            assert all(label in parts for label in blocks.labels)
            assert browser.count(".share.parts svg path.band") == 6
            assert browser.complaints() == [] == listener.problems
    finally:
        agent.stop()
        await_end(running)
        page.stop()
        listener.link.stop()
        assert gateway.stop() == 0
