"""Rights of Home Assistant's account at a real broker, and of the gateway because there is one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fugu.contract.descriptions import describe
from fugu.contract.frames import Status
from fugu.contract.topics import available_topic, discovery_topic, topic_of
from fugu.mqtt import Link
from fugu_cli.main import main
from gateway.deployment.mosquitto import Account, access_list
from gateway.parts import Message
from gateway.parts.home_assistant import GATEWAY, HomeAssistant
from gateway.store.store import Store
from tests.support.brokers import wait_until
from tests.support.home_assistant import Listener
from tests.support.processes import policy
from tests.support.scenes import catalogue, loop_of
from tests.support.shipped import Shipped, fugu

WATCH = describe(policy(epoch_us=0, period_us=60_000_000))
SURE = str(math.ceil(1000 / (1 + math.exp(-(WATCH.guarantee.epsilon or 0.0)))) / 10)
"""How sure anybody becomes at most, in per cent."""
HOME_ASSISTANT = Account(name="ha", role="home-assistant")


@pytest.mark.long
def test_the_gateway_tells_home_assistant_which_reads_nothing_but_that_and_json(tmp_path: Path) -> None:
    shipped = Shipped(tmp_path)
    for kind, name in (("gateway", "gateway"), ("operator", "operator"), ("device", "watch"), ("home-assistant", "ha")):
        shipped.add(kind, name)
    store = Store(tmp_path / "s.sqlite")
    with shipped:
        listener = Listener(shipped.address("ha"))
        link = Link(shipped.address("gateway"), client_id="gateway")
        link.start()
        wait_until(lambda: link.connected)
        loop = loop_of(link=link, store=store, catalogue=catalogue())
        assistant = HomeAssistant(loop, lambda: {"watch": [WATCH]})
        assistant.pump()
        wait_until(lambda: len(listener.documents) == 2)
        link.publish(topic_of("description", "home", "watch", "hr"), WATCH.encode(), retain=True)
        assistant.heard(Message(topic_of("status", "home", "watch"), Status(True, "1", 0, (), ()).encode()))
        assistant.pump()
        link.publish(topic_of("health", "home"), b'{"online": true}', retain=True)
        wait_until(lambda: listener.state("sensor.home_watch_hr_privacy") == SURE)
        assert listener.problems == []
        listener.say_online()
        fugu("deploy", "remove", "--broker", shipped.folder, "watch")
        shipped.reload()
        words = ["--operator", tmp_path / "operator" / "broker.toml"]
        remove = ["deploy", "remove", "--broker", str(shipped.folder), "watch", *map(str, words)]
        wait_until(lambda: main(remove) == 0)
        late = Listener(shipped.address("ha"))  # what was retained comes before what is published from now on
        wait_until(lambda: link.publish(topic_of("health", "home"), b'{"online": true}', retain=True) is not None)
        wait_until(lambda: late.state("binary_sensor.home_health_alarm") == "OFF")
        assert late.documents.keys() == {discovery_topic("home", GATEWAY)}
        assert available_topic("home", "watch") not in late.topics
        for client in (link, listener.link, late.link):
            client.stop()


def test_without_an_account_of_home_assistant_there_is_nothing_of_it() -> None:
    others = [Account(name=role, role=role) for role in ("gateway", "operator", "site")]
    assert "homeassistant" not in access_list("home", others)
    assert "topic write homeassistant/device/home/+/config" in access_list("home", [*others, HOME_ASSISTANT])


def test_home_assistant_is_of_the_site() -> None:
    """Its account reads what a site reads, and nothing else of the fleet."""
    lines = access_list("home", [Account(name="site", role="site"), HOME_ASSISTANT])
    read = {name: text.splitlines() for name, _, text in (part.partition("\n") for part in lines.split("user ")[1:])}
    ours = {line for line in read["ha"] if line.startswith("topic read fugu/")}
    assert ours
    assert ours <= set(read["site"])
    assert not any("symbols" in line or "window" in line for line in ours)
