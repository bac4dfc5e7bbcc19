"""Somebody who may publish at a device's topic of watermarks, beside a real broker, gateway and agent."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from edge_agent.local_control import ask_status
from fugu.contract.frames import Committed, Status, StreamCommit
from fugu.contract.topics import parse_topic, topic_of
from fugu.host.files import write_secret
from gateway.fleet.registry import Registry
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.enrolled import Gateway, add, write_gateway_files
from tests.support.processes import AgentProcess, policy
from tests.support.signing import Keys, policy_document
from tests.support.whole_fleet import Everything

FAR = Committed((StreamCommit("hr", 2**40, ()),), 2**64 - 1)
TOPIC = topic_of("committed", "home", "watch")


class Attacker(Everything):
    """Hears everything, and may publish everything."""

    def watermarks(self) -> list[bytes]:
        """Watermarks of the gateway to the device."""
        said = [payload for topic, payload in list(self.messages) if topic == TOPIC]
        return [payload for payload in said if any(one.through >= 0 for one in Committed.decode(payload).streams)]

    def frames(self) -> int:
        """How many frames the device has sent, repetitions included."""
        return sum(parse_topic(topic).kind == "symbols" for topic, _ in list(self.messages))

    def depth(self) -> int:
        """How many frames the device says it keeps."""
        said = [
            payload
            for topic, payload in list(self.messages)
            if topic.endswith("watch/status") and "policy" not in topic
        ]
        return Status.decode(said[-1]).outbox_depth if said else 0


@pytest.mark.long
def test_a_forged_or_replayed_watermark_deletes_no_frame(broker: Mosquitto, tmp_path: Path) -> None:
    keys = Keys()
    write_gateway_files(tmp_path, keys)
    (tmp_path / "readings.csv").write_text("value\n0\n1\n")
    (tmp_path / "agent.toml").write_text(
        'fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nenrolment = "enrolment.json"\n'
        f"status_seconds = 0.2\ndrain_seconds = 0.0\n[broker]\nport = {broker.port}\nmax_backoff = 1\n"
        '[[streams]]\nstream = "hr"\nsensor = {kind = "replay", file = "readings.csv", loop = true}\n'
    )
    with closing(Registry(tmp_path / "fleet.sqlite", fleet="home")) as registry:
        key = registry.enrol("watch", ["wrists"], who="me", time_us=1)
        ring = registry.enrol("ring", ["wrists"], who="me", time_us=1)
        write_secret(tmp_path / "enrolment.json", keys.enrolment(key=key.hex()).model_dump_json())
        heart = policy(epoch_us=time.time_ns() // 1000, period_us=50_000, frame_ticks=4)
        add(registry, keys, policy_document(heart, version=1))
    attacker = Attacker(broker)
    gateway = Gateway(tmp_path, broker.port)
    agent = AgentProcess(tmp_path / "agent.toml", tmp_path / "agent.log")
    wait_until(lambda: len(attacker.watermarks()) > 5, "watermarks")
    genuine = Committed.decode(attacker.watermarks()[-1])
    assert genuine.is_authentic(key, "home", "watch")
    gateway.process.kill()
    gateway.process.wait(PATIENCE)
    captured, sent = attacker.watermarks()[-5:], attacker.frames()
    wait_until(lambda: attacker.depth() >= 20, "frames that nobody has")
    last = Committed.decode(captured[-1])
    forged = [
        *(replace(FAR, tag=tag) for tag in (b"", bytes(32), last.tag)),
        replace(last, streams=FAR.streams),
        replace(last, counter=FAR.counter),
        FAR.signed(ring, "home", "watch"),
        FAR.signed(ring, "home", "ring"),
        FAR.signed(key, "home", "ring"),
        FAR.signed(key, "away", "watch"),
    ]
    for payload in [*map(Committed.encode, forged), *captured]:
        attacker.link.publish(TOPIC, payload)

    def refused() -> int:
        return int(ask_status(tmp_path / "outbox.sqlite")["refused"].get("watermark", 0))

    wait_until(lambda: refused() >= len(forged) + len(captured), "the forged ones")
    before = attacker.frames()
    wait_until(lambda: attacker.frames() > before + 2, "the device to go on")
    assert attacker.depth() >= 20
    assert attacker.frames() > sent
    gateway = Gateway(tmp_path, broker.port)
    wait_until(lambda: attacker.depth() < 10, "the gateway, which the device still believes")
    agent.kill()
    gateway.process.kill()
    attacker.link.stop()
    assert (tmp_path / "agent.log").read_text().count("a watermark is not the gateway's") == 1
