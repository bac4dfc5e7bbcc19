"""A cloned device: two with one identity, on a real broker with a real gateway. It is seen at once, and both stop."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from edge_agent.local_control import LocalStatusError, ask_status
from fugu.contract.reports import AlarmCode, Health, HealthAlarm
from fugu.contract.topics import topic_of
from gateway.fleet.registry import Registry
from gateway.health.monitor import ask_gateway
from tests.support.brokers import Mosquitto, wait_until
from tests.support.enrolled import Gateway, add, write_gateway_files
from tests.support.processes import AgentProcess, policy
from tests.support.signing import Keys, policy_document
from tests.support.soak import only
from tests.support.whole_fleet import Everything

POLICY = policy(epoch_us=0, period_us=100_000, frame_ticks=4)


def alarms(heard: Everything) -> dict[AlarmCode, HealthAlarm]:
    healths = heard.of("health", Health.decode)
    return {alarm.code: alarm for alarm in healths[-1].alarms} if healths else {}


def codes(folder: Path) -> list[str]:
    """Words of an agent to those who sit at the device."""
    try:
        codes: list[str] = ask_status(folder / "outbox.sqlite")["codes"]
    except LocalStatusError:
        return []
    return codes


@pytest.mark.long
@pytest.mark.parametrize("on_conflict", only(["stop"], ["alarm", "stop"]))
def test_a_cloned_device_is_seen_and_stopped(broker: Mosquitto, tmp_path: Path, on_conflict: str) -> None:
    keys = Keys()
    write_gateway_files(tmp_path, keys)
    device, clone = tmp_path / "device", tmp_path / "clone"
    sensor = '{kind = "replay", file = "readings.csv", loop = true}'
    keys.enrolled(device, "status_seconds = 0.2", port=broker.port, sensor=sensor)
    heard = Everything(broker)
    agents: list[AgentProcess] = []
    with closing(Registry(tmp_path / "fleet.sqlite", fleet="home")) as registry:
        registry.enrol("watch", [], actor="me", time_us=1)
        add(registry, keys, policy_document(POLICY, version=1))
        gateway = Gateway(tmp_path, broker.port, on_conflict=on_conflict)
        agents.append(AgentProcess(device / "agent.toml", tmp_path / "device.log"))
        wait_until(lambda: gateway.versions() == {1}, "frames")
        assert agents[0].stop() == 0
        shutil.copytree(device, clone)
        agents += [AgentProcess(folder / "agent.toml", tmp_path / "agents.log") for folder in (device, clone)]
        wait_until(lambda: AlarmCode.CONFLICT in alarms(heard), "an alarm on the health topic")
        assert alarms(heard)[AlarmCode.CONFLICT].names == ("watch/hr",)
        (alarm,) = (alarm for alarm in ask_gateway(gateway.store)["alarms"] if alarm["code"] == "conflict")
        assert alarm["name"] == "watch/hr"
        assert alarm["detail"].startswith("first at tick ")
        if on_conflict == "alarm":
            assert not [topic for topic, _ in list(heard.messages) if topic == topic_of("stop", "home", "watch")]
            return
        wait_until(lambda: all("stopped" in codes(folder) for folder in (device, clone)), "both to stop")
        assert alarms(heard)[AlarmCode.STOPPED].names == ("watch",)
        for agent in agents[1:]:
            agent.kill()
        agents[1] = AgentProcess(device / "agent.toml", tmp_path / "agents.log")
        stored = len(heard.messages)
        wait_until(
            lambda: topic_of("status", "home", "watch") in [topic for topic, _ in heard.messages[stored:]], "a birth"
        )
        wait_until(lambda: "stopped" in codes(device), "still stopped after a restart")
        add(registry, keys, policy_document(POLICY, version=2))
        wait_until(lambda: 2 in gateway.versions(), "the original goes on with a newer document")
        wait_until(lambda: heard.messages and (topic_of("stop", "home", "watch"), b"") in heard.messages, "an end")
        wait_until(lambda: AlarmCode.STOPPED not in alarms(heard), "the alarm to end")
        assert agents[1].stop() == 0
