"""The demo's page: two pictures that grow with what comes, and a truth that nothing but the demo has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fugu.cli.demo.evaluation import BEATS, FLEET, Person, load_person, policy_for
from fugu.cli.demo.page import demo_page
from fugu.contract.descriptions import describe, encode_description
from fugu.contract.frames import WindowFrame
from fugu.contract.topics import description_topic, window_topic
from fugu.mqtt import Link
from tests.support.brokers import Mosquitto, wait_until
from tests.support.browser import Browser, chromium
from tests.support.pages import Site

pytestmark = pytest.mark.long
DEVICE = "watch-N10"
NORMAL = ("/", f"/device/{DEVICE}", "/events/fleet", f"/events/device/{DEVICE}", "/events/releases", "/releases")


@pytest.fixture(scope="module")
def person() -> Person:
    return load_person("N10")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with chromium(tmp_path / "profile") as made:
        yield made


def test_pictures_grow_and_only_the_demo_has_the_truth(person: Person, broker: Mosquitto, browser: Browser) -> None:
    policy = policy_for(person, epoch=0.0, period_seconds=0.001)
    link = Link(broker.broker, client_id="watch")
    link.start()

    def publish(index: int) -> None:
        first = index * BEATS
        count = int((person.states[first : first + BEATS] == 1).sum()) + 10
        frame = WindowFrame(1, "above", index - 1, index, first, BEATS, BEATS, (count,))
        topic = window_topic(FLEET, DEVICE, "heart-rate")
        wait_until(lambda: link.publish(topic, frame.encode()) is not None, "room for a message")

    with demo_page([person], {DEVICE: policy}, broker.broker) as page:
        site = Site(page.settings.listen[1])
        wait_until(site.answers, "the page")
        wait_until(lambda: b'"connected":true' in site.ask("/events/fleet")[1], "the broker")
        browser.open(f"{site.address}/demo")
        wait_until(lambda: "live" in browser.text("#view"))
        sent = 0

        def came(most: int) -> bool:
            # What is published before the page has subscribed does not come: so more is, until some does.
            nonlocal sent
            if sent < most:
                sent += 1
                publish(sent)
            return bool(json.loads(site.ask(f"/demo/{DEVICE}")[1])["windows"])

        wait_until(lambda: came(40), "a window")
        wait_until(lambda: browser.run("return document.querySelector('#private').naturalWidth") == 560, "a picture")
        assert "of 88 windows" in browser.text("#far")
        before = site.ask(f"/demo/{DEVICE}/useful.svg")[1]
        for index in range(sent + 1, sent + 6):
            publish(index)
        wait_until(lambda: site.ask(f"/demo/{DEVICE}/useful.svg")[1] != before, "more in the picture")
        assert "off by 3.3 points" in browser.text("#useful-said")  # ten heartbeats of 300
        assert browser.violations() == []
        assert browser.complaints() == []

        description = encode_description(describe(policy))
        topic = description_topic(FLEET, DEVICE, "heart-rate")
        wait_until(lambda: link.publish(topic, description, retain=True) is not None, "room for a message")
        browser.open(f"{site.address}/device/{DEVICE}")
        wait_until(lambda: browser.count(".attack canvas") == 1, "what an attacker makes of counts")
        said = browser.text("section[aria-label='Stream heart-rate']")
        assert "believes the typical chain of its class" in said
        assert "weighs the counts of window above, one window at a time" in said
        assert "Attacker “single window” reads the newest count" in said
        assert browser.violations() == []

        above = np.add.reduceat(person.states[BEATS:] == 1, np.arange(0, 88 * BEATS, BEATS))[1:5]
        truth = {f"{share:.6f}"[:6].encode() for share in above / BEATS}
        for path in NORMAL:
            status, body = site.ask(path)
            assert status == 200, path
            assert b"truth" not in body
            assert not [one for one in truth if one in body]
        assert site.ask("/demo/watch-N05")[0] == 404
        assert site.ask("/demo", Host=f"evil.example:{site.port}")[0] == 421
        browser.open(f"{site.address}/demo")
        wait_until(lambda: browser.run("return document.querySelector('#private').naturalWidth") == 560, "a picture")
    assert not site.answers()
    wait_until(lambda: "has ended" in browser.text("#view"), "a word about the end")
    assert browser.run("return document.querySelector('#useful').naturalWidth") == 560
    link.stop()
