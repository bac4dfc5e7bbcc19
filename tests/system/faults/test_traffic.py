"""An observer of the wire cannot tell what is measured: neither sizes nor times depend on it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fugu.contract.topics import topic_of
from fugu.mqtt import Broker, Link
from tests.support.brokers import wait_until
from tests.support.eavesdropping import features, records, told_apart
from tests.support.faulty_lines import Line, Lines
from tests.support.processes import AgentProcess, GatewayProcess, policy, write_device
from tests.support.shipped import Shipped

PERIOD_US, FRAME_TICKS = 2_000, 25
FRAME_SECONDS = PERIOD_US * FRAME_TICKS / 1e6
RECORDINGS = {"below": [0] * 20, "above": [1] * 19 + [0]}
"""Opposite readings, and as opposite in how often the state changes: never, and in two ticks of twenty."""
ALARM, TOLD = 1e-4, 1e-5
"""How rarely a difference may be seen where none is, and how surely one has to be where there is one."""


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """The shipped broker, and a gateway that answers."""
    with Scene(tmp_path) as running:
        yield running


class Scene:
    """A device of one policy, whose recording can be another from run to run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = Shipped(folder)
        self.broker.add("gateway", "gateway")
        self.broker.add("device", "watch")
        self.policy = policy(epoch_us=time.time_ns() // 1000, period_us=PERIOD_US, frame_ticks=FRAME_TICKS)
        (folder / "policies").mkdir()
        (folder / "policies" / "watch.json").write_text(self.policy.to_json())
        for name, readings in RECORDINGS.items():
            (folder / f"{name}.csv").write_text("\n".join(["value", *map(str, readings), ""]))
        self._run = 0

    def __enter__(self) -> Scene:
        self.broker.start()
        self.gateway = GatewayProcess(self.folder, self.broker.address("gateway"))
        return self

    def __exit__(self, *_: object) -> None:
        self.gateway.kill()
        self.broker.kill()

    def replay(self, recording: str, lines: Lines, enough: Callable[[Line], bool]) -> Line:
        """Let a new agent replay a recording until it has said enough, then end it at once."""
        self._run += 1
        line = lines.add(str(self._run))
        config = write_device(
            self.folder / str(self._run),
            self.policy,
            self.folder / f"{recording}.csv",
            "value",
            self.address(line),
            loop=True,
            status_seconds=3600.0,
        )
        agent = AgentProcess(config, self.folder / "agent.log")
        wait_until(lambda: enough(line), "the agent to have said enough")
        agent.kill()
        return line

    def address(self, line: Line) -> Broker:
        return replace(self.broker.address("watch"), port=line.port)


def _order(runs: int) -> list[str]:
    """As many of either recording, in an order that no drift of the machine follows."""
    order = [*RECORDINGS] * (runs // 2)
    random.Random(runs).shuffle(order)
    return order


@pytest.mark.soak
def test_no_test_of_lengths_and_times_tells_which_of_two_opposite_recordings_was_replayed(scene: Scene) -> None:
    """Forty runs of the real agent; thirty of a sender that speaks when something changes are told at once."""
    generator = np.random.default_rng(2026)
    order = _order(40)
    with Lines(scene.broker.port, tapped=True) as lines:
        seen = [_features(scene.replay(recording, lines, _has_frames)) for recording in order]
        surprise = told_apart(np.array(seen), np.array(order) == "above", generator)
        order = _order(30)
        seen = [_features(_event_driven(scene, recording, lines)) for recording in order]
        control = told_apart(np.array(seen), np.array(order) == "above", generator)
    print(f"p of the agent {surprise:.3g}, of an event-driven sender {control:.3g}")
    assert surprise > ALARM
    assert control < TOLD


def _has_frames(line: Line) -> bool:
    return sum(chunk.up for chunk in list(line.chunks)) > 60


def _features(line: Line) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    chunks = list(line.chunks)
    return features(records(chunks, up=True)[10:], records(chunks, up=False)[10:], FRAME_SECONDS)


def _event_driven(scene: Scene, recording: str, lines: Lines) -> Line:
    """Says that it is there as often as a frame would come, and every change of the state when it happens."""
    line = lines.add(f"control {len(lines.lines)}")
    connected = threading.Event()
    link = Link(scene.address(line), client_id="watch", on_connected=connected.set)
    link.start()
    wait_until(connected.is_set)
    topic, readings, tick, before = topic_of("symbols", "home", "watch", "hr"), RECORDINGS[recording], 0, None
    while not _has_frames(line):
        reading = readings[tick % len(readings)]
        if reading != before or tick % FRAME_TICKS == 0:
            link.publish(topic, b"\1" + bytes(50))
        before, tick = reading, tick + 1
        time.sleep(PERIOD_US / 1e6)
    link.stop()
    return line
