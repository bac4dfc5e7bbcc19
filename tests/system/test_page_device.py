"""The page of a device: all that left it, of every kind, and what a named attacker makes of it, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from fugu.contract.topics import parse_topic
from tests.support.brokers import Mosquitto, wait_until
from tests.support.browser import Browser
from tests.support.pages import ServedPage
from tests.support.whole_fleet import WholeFleet

pytestmark = pytest.mark.long
LEFT = {"symbols", "window", "status", "policy_status"}
CANARY = "0211947"
READINGS = [(f"0.3{CANARY}", "c0"), (f"0.7{CANARY}", "c1"), (f"0.3{CANARY}", "c1")]


def shown(browser: Browser) -> set[bytes]:
    """All bytes that the page has of messages now."""
    script = "return [...document.querySelectorAll('.left code')].map((one) => one.textContent)"
    return {bytes.fromhex(digits) for digits in browser.run(script)}


def open_details(browser: Browser) -> None:
    """Unfold all that is folded."""
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


def test_all_that_left_a_device_and_what_is_made_of_it(broker: Mosquitto, tmp_path: Path, browser: Browser) -> None:
    """A device with symbols, counts, points, and statuses of itself and of its policies."""
    with WholeFleet(broker, tmp_path, READINGS) as fleet:
        page = ServedPage(tmp_path, broker.port)
        seen: dict[str, set[bytes]] = {kind: set() for kind in (*LEFT, "points")}

        def has_kind(kind: str) -> bool:
            now = shown(browser)
            for topic, payload in list(fleet.heard.messages):
                named = parse_topic(topic) if topic.startswith("fugu/") else None
                if payload in now and named is not None and named.kind in LEFT and named.device == "watch":
                    seen["points" if named.stream == "place" else named.kind].add(payload)
            return bool(seen[kind])

        browser.open(f"{page.address}/device/watch")
        for kind in seen:
            wait_until(lambda kind=kind: has_kind(kind), f"{kind} with the bytes that left")
        text = browser.text(".left")
        assert "“high”:" in text
        assert "its noise is between −" in text
        assert "point (" in text
        assert "hr under policy 1, next tick" in text
        assert "runs document 1; accepted the newest" in text
        hr = "section[aria-label='Stream hr'] .attack"
        wait_until(lambda: "Promised: no useful limit" in browser.text(hr), "what an attacker makes of it")
        assert "forward-backward" not in browser.text(hr)  # who that is, is folded
        open_details(browser)
        wait_until(lambda: browser.count(".guesses .plot path.shape") > 0, "a band")
        strip = "section[aria-label='Stream hr'] .strip"
        browser.click(strip)
        opened = "section[aria-label='Stream hr'] .messages code"
        wait_until(lambda: browser.count(opened) == 1, "a message that was chosen")
        sent = {payload for topic, payload in list(fleet.heard.messages) if "/hr" in topic}
        for key in ("", Keys.ARROW_LEFT, Keys.ARROW_RIGHT):
            browser.type(strip, key)
            assert bytes.fromhex(browser.text(opened)) in sent
        stream = browser.text("section[aria-label='Stream hr']")
        assert "Attacker “forward-backward” knows the public description, believes the one chain" in stream
        assert "Attacker “single symbol” reads the newest symbol" in stream
        assert "The promise protects nothing at a single tick" in stream
        points = "section[aria-label='Stream place']"
        wait_until(lambda: "No attacker of this page reads points" in browser.text(points), "a word about points")
        wait_until(lambda: "This page has no ledger" in browser.text(".budget"), "a word about no ledger")
        browser.look(390, dark=True)
        browser.open(f"{page.address}/ledger")
        wait_until(lambda: "This page has no ledger" in browser.text(".alarm"), "a word about no ledger")
        browser.open(f"{page.address}/device/watch")
        wait_until(lambda: browser.count(".attack details:not([hidden])") == 1 and browser.count(".left code") > 5)
        open_details(browser)
        wait_until(lambda: browser.count(".guesses .plot path.shape") > 0, "a band")
        assert browser.violations() == []
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
        assert browser.complaints() == []
        assert CANARY.encode() not in page.ask("/events/device/watch")[1]
        assert page.stop() == 0
