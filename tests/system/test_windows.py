"""Windows when agents die: none is released twice with different noise, and traffic does not depend on readings."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from edge_agent.agent import Agent
from edge_agent.outbox import Outbox
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.replay import ReplaySensor
from firmware_sim.devices import simulate_recording
from fugu.contract.frames import WindowFrame
from fugu.contract.windows import Window
from fugu.mqtt import Broker
from tests.support.agents import JumpingClock, agent_plan, stream_plan, window_plan
from tests.support.brokers import PATIENCE, Mosquitto, await_end, wait_until
from tests.support.processes import AgentProcess, GatewayProcess, Recorder, by_tick, policy, troubles, write_device
from tests.support.simulated_states import simulate_states

WINDOWS = (
    Window(name="high", length=20, stride=20, states=("high",), scale="50"),
    Window(name="sliding", length=60, stride=7, states="histogram", scale="1000/7"),
)


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.soak)])
def test_an_agent_killed_at_random_moments_releases_no_window_twice(
    broker: Mosquitto, tmp_path: Path, kills: int
) -> None:
    """With noise of scale 50, two releases of one window would hardly ever be the same bytes."""
    device = policy(epoch_us=time.time_ns() // 1000, period_us=2000, windows=WINDOWS, epsilon=20.0)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "watch.json").write_text(device.to_json())
    states = simulate_states(((0.8, 0.2), (0.35, 0.65)), 5000, random.Random(4))
    simulate_recording(tmp_path / "night.csv", device, states)
    address = Broker(port=broker.port, max_backoff=1)
    config = write_device(
        *(tmp_path / "watch", device, tmp_path / "night.csv", "value", address), loop=True, drain_seconds=PATIENCE
    )
    log = tmp_path / "agent.log"
    windows, symbols = Recorder(address, "fugu/2/home/+/window/+"), Recorder(address)
    gateway = GatewayProcess(tmp_path, broker.port)
    moments, pause = random.Random(2027), threading.Event()
    published_between, done, span = 0, 0, 1.2
    while done < kills or published_between < kills / 5:
        done += 1
        before = len(windows.payloads)
        agent = AgentProcess(config, log)
        pause.wait(moments.uniform(0.2, 1.0) * span)
        agent.kill()
        in_time = len(windows.payloads) > before
        published_between += in_time
        span *= 0.8 if in_time else 1.25  # on any machine some kills come before the first window, and some after
    before = len(windows.payloads)
    agent = AgentProcess(config, log)
    wait_until(lambda: len(windows.payloads) > before + 20)
    assert agent.stop(PATIENCE) == 0, log.read_text()
    assert troubles(log) == []
    outbox = Outbox(tmp_path / "watch" / "outbox.sqlite", "home", "watch")
    assert outbox.frames.depth() == 0
    outbox.close()
    released = once(windows.payloads)
    assert [frame for _, frame in gateway.windows()] == released
    assert by_tick(gateway.frames()) == by_tick(symbols.frames())
    assert gateway.stop() == 0
    for recorder in (windows, symbols):
        recorder.link.stop()
    observed = by_tick(symbols.frames())
    for window in WINDOWS:
        frames = [frame for frame in released if frame.window == window.name]
        assert [frame.previous for frame in frames] == [-1, *(frame.index for frame in frames[:-1])]
        assert any(frame.observed < frame.length for frame in frames), "no window was cut short by a kill"
        for frame in frames:
            inside = sum(1 for tick in range(frame.first, frame.last + 1) if tick in observed)
            assert frame.observed <= inside, "a tick was counted whose symbol was not durable"


def once(payloads: list[bytes]) -> list[WindowFrame]:
    """Every window that was published, by name and index; fails if one was published with two contents."""
    found: dict[tuple[str, int], WindowFrame] = {}
    for frame in map(WindowFrame.decode, payloads):
        assert found.setdefault((frame.window, frame.index), frame) == frame, f"{frame.index} was released twice"
    return [found[key] for key in sorted(found)]


def published(broker: Mosquitto, folder: Path, values: list[float]) -> list[bytes]:
    """Window payloads of an agent that reads the given values, on a clock that jumps from tick to tick."""
    folder.mkdir()
    address = Broker(port=broker.port)
    recorder = Recorder(address, "fugu/2/home/+/window/+")
    noisy = {"numerator": 20, "denominator": 1}
    windows = (
        window_plan(length=9, stride=4, **noisy),
        window_plan(name="bars", length=25, counts=2, places=(0, 1), **noisy),
    )
    agent = Agent(
        agent_plan(folder, address, stream_plan(windows=windows)),
        [ReplaySensor(values, loop=False)],
        system_entropy(),
        JumpingClock(),
    )
    thread = threading.Thread(target=agent.run)
    thread.start()
    await_end(thread)
    assert not thread.is_alive()
    wait_until(lambda: len(recorder.payloads) >= 27)
    recorder.link.stop()
    return sorted(
        recorder.payloads, key=lambda payload: (WindowFrame.decode(payload).window, WindowFrame.decode(payload).index)
    )


@pytest.mark.parametrize("other", [[1.0] * 100, [float("nan")] * 100, [0.0, 1.0] * 50])
def test_sizes_and_ticks_of_windows_do_not_depend_on_the_readings(
    broker: Mosquitto, tmp_path: Path, other: list[float]
) -> None:
    shapes = []
    for name, values in (("a", [0.0] * 100), ("b", other)):
        payloads = published(broker, tmp_path / name, values)
        frames = [(len(payload), WindowFrame.decode(payload)) for payload in payloads]
        shapes.append([(size, f.window, f.previous, f.index, f.first, f.observed) for size, f in frames])
    assert shapes[0] == shapes[1]
    assert len(shapes[0]) == 27
    assert len({(size, window) for size, window, *_ in shapes[0]}) == 2
