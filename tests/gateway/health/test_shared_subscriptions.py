"""One account's many shared subscriptions at the shipped broker: an alarm, and doctor names the account."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

from fugu.contract.reports import AlarmCode
from gateway.deployment import doctor
from gateway.health.shared_subscriptions import CLIENTS_TOPIC, SHARED_TOPIC, SharedSubscriptions
from gateway.parts import Message
from tests.support.brokers import wait_until
from tests.support.gateway_files import gateway_config
from tests.support.gateway_service import gateway_here
from tests.support.scenes import POLICIES, catalogue, loop_of, write_policies
from tests.support.shipped import Shipped


def test_more_of_them_than_accounts_are_an_alarm_and_as_many_are_none() -> None:
    held: list[dict[str, str]] = []
    monitor = SimpleNamespace(hold=lambda _code, details: held.append(dict(details)))
    part = SharedSubscriptions(loop_of(catalogue=catalogue(POLICIES), monitor=monitor))  # two devices

    def says(topic: str, payload: bytes) -> None:
        assert part.heard(Message(topic, payload))
        part.pump()

    says(SHARED_TOPIC, b"3")
    assert held[-1] == {}
    says(SHARED_TOPIC, b"4")
    assert held[-1] == {"": "4 of at least 3 accounts"}
    says(CLIENTS_TOPIC, b"4")
    assert held[-1] == {}
    for nonsense in (b"", b"-5", b"many", b"9" * 13, b"\xb2"):
        says(SHARED_TOPIC, nonsense)
    assert held[-1] == {}
    assert not part.heard(Message("fugu/2/home/watch/status", b"5"))


def test_an_account_that_shares_many_subscriptions_is_an_alarm_and_doctor_names_it(tmp_path: Path) -> None:
    broker = Shipped(tmp_path)
    for kind, name in (("device", "watch"), ("device", "ring"), ("gateway", "gateway")):
        broker.add(kind, name)
    configuration = broker.folder / "mosquitto.conf"
    text = re.sub("(?m)^sys_interval 10$", "sys_interval 1", configuration.read_text())
    assert text != configuration.read_text()
    configuration.write_text(text)
    policies = write_policies(tmp_path / "policies")
    settings = gateway_config("home", broker.address("gateway"), tmp_path / "s.sqlite", policies)

    def alarms() -> set[AlarmCode]:
        return {alarm.code for alarm in gateway._monitor.latest.alarms}

    def verdicts() -> list[tuple[str, str]]:
        findings = [
            finding
            for process, _ in doctor._running_brokers(broker.port)
            for finding in doctor._check_shares(doctor._read_log(process))
        ]
        return [(finding.verdict, finding.text) for finding in findings]

    with broker, broker.client("watch") as watch, broker.client("ring") as ring, gateway_here(settings) as gateway:
        ring.subscribe_many(["$share/group/fugu/2/home/time"])
        wait_until(lambda: gateway._link.subscribed, "the gateway's subscriptions")
        assert [verdict for verdict, _ in verdicts()] == ["ok"]
        watch.subscribe_many([f"$share/g{number}/fugu/2/home/+/symbols/+" for number in range(200)])
        wait_until(lambda: AlarmCode.SUBSCRIPTIONS in alarms(), "the alarm")
        ((verdict, text),) = verdicts()
        assert verdict == "FAIL"
        assert "account watch has shared 200 of them" in text
