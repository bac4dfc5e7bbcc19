"""A signed rollout over a real broker, as the fleet's page shows it; and alarms of devices without names."""

from __future__ import annotations

import time
from fractions import Fraction
from pathlib import Path

import pytest

from fugu.contract.frames import Status
from fugu.contract.reports import AlarmCode, Health, HealthAlarm
from fugu.contract.topics import topic_of
from fugu.mqtt import Link
from gateway.fleet.entries import RolloutPlan, Stage
from gateway.fleet.rollouts import Rollouts
from tests.support.brokers import Mosquitto, wait_until
from tests.support.browser import Browser
from tests.support.enrolled import Gateway
from tests.support.pages import ServedPage
from tests.support.rollout_crowd import Crowd, prepare
from tests.support.signing import Keys

pytestmark = pytest.mark.long
NAMES = [f"watch-{number:02d}" for number in range(40)]
REFUSING, OFFLINE = {"watch-03", "watch-17"}, {"watch-05", "watch-11", "watch-30"}


def test_a_rollout_is_seen_as_a_wave(broker: Mosquitto, tmp_path: Path, browser: Browser) -> None:
    registry, enrolments = prepare(tmp_path, Keys(), REFUSING, NAMES)
    rollouts = Rollouts(registry)
    crowd = Crowd(broker.broker, enrolments, OFFLINE)
    gateway = Gateway(tmp_path, broker.port)
    page = ServedPage(tmp_path, broker.port)
    browser.open(page.address)
    wait_until(lambda: browser.text(".tiles strong") == "37", "the devices that are online")
    assert browser.count(".wave") == 0
    stages = (Stage(share=Fraction(1), success=Fraction(4, 5)),)
    plan = RolloutPlan(1, stages, Fraction(1, 2), pace=6000, patience_seconds=600, seed="autumn")
    number = rollouts.draft(plan, actor="me", time_us=time.time_ns() // 1000)
    wait_until(lambda: sum(device.online for device in registry.devices()) == 37, "births")
    rollouts.start(number, actor="me", time_us=time.time_ns() // 1000)
    wait_until(lambda: browser.count(".wave") == 1, "the wave")
    reached = "Document 1, sent to 40 of 40 devices: 35 run it, 2 refused it, 3 are away"
    wait_until(lambda: browser.text(".wave p") == reached, "the end of it")
    widths = browser.run("return [...document.querySelectorAll('.wave rect')].map((one) => +one.getAttribute('width'))")
    assert widths == [35, 2, 0, 3]
    assert "needs attention" in browser.text("tr[data-name='watch-03']")
    assert "ceiling" in browser.text("tr[data-name='watch-03']")
    for width, dark in ((1200, True), (390, False)):
        browser.look(width, dark=dark)
        assert browser.violations() == []
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.complaints() == []
    assert (page.stop(), gateway.process.poll(), crowd.heard >= len(NAMES) - len(OFFLINE)) == (0, None, True)


def test_devices_that_an_alarm_does_not_name_are_not_taken_for_well(
    broker: Mosquitto, tmp_path: Path, browser: Browser
) -> None:
    """A report of 2,000 silent devices names eight of them."""
    names = tuple(f"watch-{number:04}" for number in range(8))
    alarm = HealthAlarm(AlarmCode.SILENT, 1, 2000, names, 1992, "look at <b>them</b>")
    link = Link(broker.broker, client_id="crowd")
    link.start()
    page = ServedPage(tmp_path, broker.port)
    wait_until(lambda: link.connected, "a connection")
    for number in range(2000):
        topic, status = topic_of("status", "home", f"watch-{number:04}"), Status(True, "1", 0, (), ()).encode()
        wait_until(lambda topic=topic, status=status: link.publish(topic, status, retain=True) is not None)
    browser.open(page.address)
    wait_until(lambda: browser.text(".tiles strong") == "2,000", "all devices")
    assert "The report does not name them" not in browser.text("main")
    link.publish(topic_of("health", "home"), Health(True, alarms=(alarm,)).encode(), retain=True)
    wait_until(lambda: "At least 1,992 more devices have an alarm" in browser.text("main"), "the others")
    assert browser.text(".tiles button:last-child span") == "● well, or with an alarm that names none"
    assert browser.text("[aria-pressed]:nth-child(2) strong") == "8"
    assert "watch-0007 and 1,992 more" in browser.text(".alarm")
    assert browser.violations() == []
    assert browser.complaints() == []
    assert page.stop() == 0
