"""A broker that is not there, or says nothing, is named once, with the fleet that is waited for."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fugu.mqtt import Broker, Link, LinkError
from fugu.mqtt.probe import listen, probe
from gateway.deployment.folders import clear_retained
from tests.support.brokers import Mosquitto, free_port, wait_until
from tests.support.command import Fugu
from tests.support.gateway_files import gateway_file

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds are a twentieth of what they are."""
    monkeypatch.setattr("fugu.mqtt.link.ANSWER_SECONDS", 0.15)
    monkeypatch.setattr("fugu.mqtt.probe.ANSWER_SECONDS", 0.15)
    monkeypatch.setattr("fugu.mqtt.probe._PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr("fugu.mqtt.probe._ACCEPT_SECONDS", 0.5)


@pytest.fixture
def silent() -> Iterator[Broker]:
    """Something that takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Broker(port=listening.getsockname()[1])


def test_a_broker_that_says_nothing_is_named_once(silent: Broker) -> None:
    lines: list[str] = []
    link = Link(silent, "one", on_absent=lines.append)
    link.start()

    def falls_back() -> bool:
        link.maintain()
        return link.protocol == "3.1.1"

    wait_until(falls_back, what="the fall-back, which takes longer")
    assert lines == [f"no answer from the broker at {silent.address}"]


def test_a_broker_that_is_not_there_is_named_with_the_reason() -> None:
    lines: list[str] = []
    broker = Broker(port=free_port())
    link = Link(broker, "one", on_absent=lines.append)
    link.start()
    wait_until(lambda: link.last_error, what="the refusal")

    def is_told() -> bool:
        link.maintain()
        return bool(lines)

    wait_until(is_told, what="the line")
    assert lines == [f"no broker at {broker.address}: Connection refused"]


def test_of_a_broker_that_answers_nothing_is_said(broker: Mosquitto) -> None:
    lines: list[str] = []
    link = Link(broker.broker, "one", on_absent=lines.append)
    link.start()
    wait_until(lambda: link.connected, what="the connection")
    link._waits_since = None if link._waits_since is None else 0.0  # long ago, if it still counts
    link.maintain()
    assert lines == []


@pytest.mark.parametrize("name", ["_waits_since", "_max_packet"])
def test_what_the_network_s_thread_takes_away_between_two_looks_is_looked_at_once(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    link = Link(broker.broker, "one", on_absent=lambda _: None)
    link.start()
    wait_until(lambda: link.connected, what="the connection")
    looks = iter([0])
    monkeypatch.setattr(Link, name, property(lambda _: next(looks, None), lambda *_: None), raising=False)
    link.maintain()
    link.publish("fugu/2/home/watch/status", b"", retain=True)


def test_who_tries_once_or_clears_is_told(silent: Broker) -> None:
    lines: list[str] = []
    assert probe(silent, on_wait=lines.append).step == "login"
    with pytest.raises(LinkError):
        clear_retained(silent, ["fugu/2/home/description/watch/heart"], on_wait=lines.append)
    assert lines == [f"no answer from the broker at {silent.address}"] * 2


def test_the_doctor_names_broker_and_fleet(fugu: Fugu, silent: Broker, tmp_path: Path) -> None:
    done = fugu("doctor", gateway_file(tmp_path / "gateway.toml", silent, store="none.db"))
    assert done.code == 1
    assert done.err == f"fugu: no answer from the broker at {silent.address}; waiting for fleet home\n"


def test_who_listens_is_told_of_a_broker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fugu.mqtt.probe._CONNECT_SECONDS", 0.5)
    lines: list[str] = []
    with pytest.raises(LinkError, match="no broker at"):
        listen(Broker(port=free_port()), ["fugu/2/home/release/+/+"], 0.1, lines.append)
    assert [line.partition(": ")[2] for line in lines] == ["Connection refused"]


def test_a_device_is_not_tested_without_a_broker(fugu: Fugu, tmp_path: Path) -> None:
    chain = ("--q", ".3", "--r", ".3", "--epsilon", 1, "--for", "home/w/s", "--period", "1", "--threshold", "1")
    assert fugu("plan", "stream", *chain, "-o", tmp_path / "p.json").code == 0
    address = f"127.0.0.1:{free_port()}"
    done = fugu("check", "device", tmp_path / "p.json", "--broker", address)
    assert (done.code, done.err) == (1, f"fugu: the agent has to reach the broker: {address}: Connection refused\n")


def test_an_agent_under_test_finds_the_files_of_the_broker(
    fugu: Fugu, silent: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chain = ("--q", ".3", "--r", ".3", "--epsilon", 1, "--for", "home/w/s", "--period", "1", "--threshold", "1")
    assert fugu("plan", "stream", *chain, "-o", "p.json").code == 0
    Path("password").write_text("secret")
    Path("broker.toml").write_text(f'[broker]\nport = {silent.port}\nusername = "w"\npassword_file = "password"\n')
    command = f"{sys.executable} -c 'import sys; print(*[line for line in open(sys.argv[1]) if \"password\" in line])'"
    done = fugu("check", "device", "p.json", "--broker", "broker.toml", "--command", command)
    assert f'password_file = "{tmp_path / "password"}"' in done.err
