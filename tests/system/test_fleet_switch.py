"""A device that is killed while it changes its policy: exactly one is in force, always, and no tick is drawn twice."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from edge_agent.config import load
from fugu.contract.topics import topic_of
from fugu.contract.trust import Trust
from fugu.core.trust import unpack
from fugu.mqtt import Broker
from tests.support.brokers import Mosquitto, wait_until
from tests.support.enrolled import Operator
from tests.support.processes import AgentProcess, Recorder, by_tick, policy, troubles
from tests.support.signing import Keys, policy_document

PERIOD_US = 5_000


@pytest.mark.parametrize("least", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_sigkill_at_random_moments_of_a_switch(broker: Mosquitto, tmp_path: Path, least: int) -> None:
    """So many kills come before a switch at least, and so many after one."""
    keys = Keys()
    enrolment = keys.enrolment()
    (tmp_path / "enrolment.json").write_text(enrolment.model_dump_json())
    (tmp_path / "readings.csv").write_text("value\n0\n1\n")
    (tmp_path / "agent.toml").write_text(
        'fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nenrolment = "enrolment.json"\nforget = "puback"\n'
        f"status_seconds = 0.2\n[broker]\nport = {broker.port}\nmax_backoff = 1\n"
        '[[streams]]\nstream = "hr"\nsensor = {kind = "replay", file = "readings.csv"}\n'
    )
    config, trust, log = tmp_path / "agent.toml", tmp_path / "trust", tmp_path / "agent.log"
    recorder = Recorder(Broker(port=broker.port))
    operator = Operator(Broker(port=broker.port, max_backoff=1))
    moments = random.Random(7)
    pause = threading.Event()
    switched = 0

    def signed(version: int) -> bytes:
        draft = policy(epoch_us=0, period_us=PERIOD_US, frame_ticks=5 + version % 3)
        return keys.signed(policy_document(draft, version=version))

    def in_force() -> int:
        """The version in the file of trust, which is complete and holds, whatever has happened."""
        if not trust.exists():
            return 0
        state = unpack(trust.read_bytes())
        verdict = Trust(enrolment, state.pack()).in_force()
        (running,) = load(config).streams
        assert running.version == state.version == verdict.policies[0].version
        return state.version

    before, version, span = 0, 0, 1.0

    def released() -> set[int]:
        return {frame.policy_version for frame in recorder.frames()}

    while min(switched, version - switched, len(released())) < least:
        version += 1
        agent = AgentProcess(config, log)
        pause.wait(moments.uniform(0.0, 0.25) * span)
        operator.say(signed(version), topic_of("policy_set", "home", "watch"))
        pause.wait(moments.uniform(0.4, 1.2) * span)
        agent.kill()
        now = in_force()
        assert before <= now <= version
        switched += now > before
        span *= 0.7 if now > before else 1.4  # however slow the machine, about half of the kills come too early
        before = now
    agent = AgentProcess(config, log)
    operator.until(lambda status: status.version == version)
    count = len(recorder.payloads)
    wait_until(lambda: len(recorder.payloads) > count + 20)
    assert agent.stop() == 0
    recorder.link.stop()
    assert troubles(log) == []
    frames = sorted({frame.first: frame for frame in recorder.frames()}.values(), key=lambda frame: frame.first)
    by_tick(recorder.frames())
    versions = [frame.policy_version for frame in frames]
    assert versions == sorted(versions), "a tick was drawn under a version that another had followed"
    assert len(set(versions)) >= least
    assert all(len(frame.symbols) <= 5 + frame.policy_version % 3 for frame in frames), (
        "frames are those of their version"
    )
