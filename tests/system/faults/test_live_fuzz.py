"""Mutated frames and documents through a live gateway and a live agent: neither ends, grows, or forgets to count."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edge_agent.local_control import LocalStatusError, ask_status
from fugu.contract.envelope import encode_roots
from fugu.contract.errors import FrameError, Reason
from fugu.contract.frames import Committed, Status, SymbolFrame, WindowFrame
from fugu.contract.topics import parse_topic, topic_of
from fugu.contract.windows import Window
from fugu.mqtt import Broker
from gateway.store.store import Store
from tests.support.brokers import Mosquitto, wait_until
from tests.support.mutations import SEEDS, mutated
from tests.support.processes import AgentProcess, GatewayProcess, Recorder, policy
from tests.support.signing import Keys, policy_document
from tests.support.work import high_water_bytes

pytestmark = pytest.mark.fresh

GROWTH = 60 << 20
"""A process may grow by so much, however many messages it gets."""
WARM = 100
"""Messages after which it has loaded what it needs."""
BURST = 25
"""Messages that an agent gets before it has said that it has seen others; more than 64 would be too many."""
TAKEN = ("stored", "duplicate", "conflict")
MANY = 300


class Attacker:
    """Publishes as fast as a broker acknowledges, and no faster."""

    def __init__(self, broker: Mosquitto) -> None:
        self.answered = 0
        self._said = 0
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="attacker", protocol=mqtt.MQTTv5)
        self._client.on_publish = self._published
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()
        wait_until(self._client.is_connected)

    def say(self, topic: str, payload: bytes, waiting: int = 200) -> None:
        """Publish, once not too much waits for the broker's answer."""
        if self._said - self.answered >= waiting:
            wait_until(lambda: self._said - self.answered < waiting, "the broker")
        self._client.publish(topic, payload, qos=1)
        self._said += 1

    def stop(self) -> None:
        wait_until(lambda: self.answered == self._said, "the broker")
        self._client.disconnect()
        self._client.loop_stop()

    def _published(self, *_: object) -> None:
        self.answered += 1


def _memory(pid: int, warm: int, number: int, before: list[int]) -> None:
    """Look once at what a process takes when it has seen some messages."""
    if number == warm:
        before.append(high_water_bytes(pid))


def _counted(counters: Mapping[str, int]) -> int:
    """How many messages were refused, stored, or said that a device is there."""
    taken = sum(count for name, count in counters.items() if name.endswith(TAKEN) and name != "not_stored")
    return sum(counters[reason] for reason in Reason) + taken + counters["births"]


@pytest.mark.long
def test_mutated_frames_through_a_live_gateway(broker: Mosquitto, tmp_path: Path) -> None:
    """The fate of each is counted, and the gateway stores what is whole afterwards."""
    window = Window(name="high", length=10, stride=10, states=("high",), scale="200")
    epoch_us = time.time_ns() // 1000 - 100_000_000
    (tmp_path / "policies").mkdir()
    for name in ("watch", "ring"):
        device = policy(epoch_us=epoch_us, period_us=1000, device=name, windows=(window,), epsilon=4.0)
        (tmp_path / "policies" / f"{name}.json").write_text(device.to_json())
    gateway = GatewayProcess(tmp_path, broker.port)
    wait_until(gateway.hears, "the gateway")
    whole = {
        "symbols": SymbolFrame(1, 9, 10, bytes(10)).encode(),
        "window": WindowFrame(1, "high", 0, 1, 10, 10, 9, (4,)).encode(),
        "status": Status(True, "1.0", 0, (), ()).encode(),
    }
    topics = [
        *(2 * [topic_of("symbols", "home", "watch", "hr"), topic_of("window", "home", "watch", "hr")]),
        *(topic_of("symbols", "home", name, stream) for name, stream in (("stranger", "hr"), ("watch", "place"))),
        topic_of("status", "home", "watch"),
    ]
    generator = random.Random(MANY)
    attacker = Attacker(broker)
    before: list[int] = []
    farewells = 0
    for number in range(MANY):
        topic = generator.choice(topics)
        fitting = whole[parse_topic(topic).kind]
        payload = mutated(fitting if generator.random() < 0.7 else generator.choice(SEEDS), generator)
        farewells += topic.endswith("/status") and _is_farewell(payload)
        attacker.say(topic, payload)
        _memory(gateway.process.pid, WARM, number, before)
    attacker.say(topic_of("symbols", "home", "ring", "hr"), whole["symbols"])
    attacker.stop()
    wait_until(lambda: gateway.counters()["received"] > MANY, "the gateway to have read everything")
    wait_until(lambda: _stored(tmp_path, "ring"), "a whole frame to be stored")
    wait_until(lambda: _counted(gateway.counters()) + farewells > MANY, "what became of each to be counted")
    counters = gateway.counters()
    grown = high_water_bytes(gateway.process.pid) - before[0]
    print(f"{MANY} messages, {grown / 1e6:.1f} MB: {dict(counters)}")
    assert _counted(counters) + farewells == MANY + 1, "each is counted, and once"
    assert sum(counters[reason] for reason in Reason) > MANY // 2
    assert counters[Reason.UNEXPECTED] == counters["store_errors"] == 0
    assert grown < GROWTH
    assert gateway.stop() == 0
    assert "Traceback" not in (tmp_path / "gateway.log").read_text()


@pytest.mark.long
def test_mutated_documents_through_a_live_agent(broker: Mosquitto, tmp_path: Path) -> None:
    """The fate of each is counted, no policy comes into force, and ticks go on."""
    keys = Keys()
    document = keys.signed(policy_document(policy(epoch_us=0, period_us=10_000), version=1))
    agent = AgentProcess(keys.enrolled(tmp_path, "drain_seconds = 0", port=broker.port), tmp_path / "agent.log")
    recorder = Recorder(Broker(port=broker.port))
    attacker = Attacker(broker)
    wait_until(lambda: _status(tmp_path).get("connected"), "the agent")
    attacker.say(topic_of("policy_set", "home", "watch"), document)
    wait_until(lambda: recorder.payloads, "the first frame")
    seeds = [document, keys.signed_time(5), encode_roots([keys.root_envelope()]), *SEEDS]
    topics = [
        *(4 * [topic_of("committed", "home", "watch")]),
        *(
            topic_of("policy_set", "home", "watch"),
            topic_of("table", "home", "watch", "hr"),
            topic_of("root", "home"),
            topic_of("time", "home"),
        ),
    ]
    generator = random.Random(MANY)
    before: list[int] = []
    taken = 0
    for number in range(MANY):
        topic = generator.choice(topics)
        while (payload := mutated(generator.choice(seeds), generator)) in seeds or not payload:
            pass
        taken += topic == topics[0] and _is_watermark(payload)
        attacker.say(topic, payload)
        if number % BURST == 0:
            least = number - taken - BURST
            wait_until(lambda least=least: _refused(tmp_path) >= least, "the agent to have seen them")
        _memory(agent.process.pid, WARM, number, before)
    attacker.stop()
    wait_until(lambda: _refused(tmp_path) >= MANY - taken, "each to be counted")
    refused = _status(tmp_path)["refused"]
    grown = high_water_bytes(agent.process.pid) - before[0]
    print(f"{MANY} messages, {grown / 1e6:.1f} MB: {refused}")
    assert sum(refused.values()) == MANY - taken, "each is counted, and once"
    assert refused.get("too_many", 0) < MANY // 2, "most were looked at"
    assert grown < GROWTH
    seen = len(recorder.payloads)
    wait_until(lambda: len(recorder.payloads) > seen + 3, "ticks to go on")
    assert {frame.policy_version for frame in recorder.frames()} == {1}
    agent.stop()
    assert "Traceback" not in (tmp_path / "agent.log").read_text()


def _stored(folder: Path, device: str) -> bool:
    with closing(Store(folder / "gateway.sqlite")) as store:
        return store.stream_id(device, "hr") is not None


def _is_farewell(payload: bytes) -> bool:
    try:
        return not Status.decode(payload).online
    except FrameError:
        return False


def _is_watermark(payload: bytes) -> bool:
    try:
        Committed.decode(payload)
    except FrameError:
        return False
    return True


def _status(folder: Path) -> dict[str, Any]:
    try:
        return ask_status(folder / "outbox.sqlite")
    except LocalStatusError:
        return {}


def _refused(folder: Path) -> int:
    return sum(_status(folder).get("refused", {}).values())
