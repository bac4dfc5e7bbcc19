"""The page of where a device may be, in a real browser, of real devices that walk, and a real gateway."""

from __future__ import annotations

import time
from itertools import cycle, islice
from pathlib import Path

import pytest

from fugu.contract.discretisers import Cells
from fugu.contract.policies import AnyPolicy
from fugu.mqtt import Broker
from tests.support.brokers import Mosquitto, free_port, wait_until
from tests.support.browser import Browser
from tests.support.measured import measure_policy
from tests.support.pages import Site
from tests.support.processes import AgentProcess, GatewayProcess, policy, write_device

pytestmark = pytest.mark.long
CANARY = "0211947"
ORIGIN, STEP = (46.0, 14.25), (0.001, 0.00125)
NINE = tuple((i % 3, i // 3) for i in range(9))
PERIOD_US = 20_000


def walks() -> dict[str, AnyPolicy]:
    """One that releases points over nine cells, and one whose symbols are two."""
    epoch = time.time_ns() // 1000
    nine = Cells(origin=ORIGIN, step=STEP, cells=NINE, states=tuple(f"square {x}" for x in range(9)))
    two = Cells(origin=ORIGIN, step=STEP, cells=((0, 0), (1, 0)), states=("<b>west", "east"))
    clock = {"epoch_us": epoch, "period_us": PERIOD_US}
    points = measure_policy(3, tables=False, device="phone", discretiser=nine, clock=clock, resolution=(100.0, 111.0))
    symbols = policy(epoch_us=epoch, period_us=PERIOD_US, device="tag").model_copy(update={"discretiser": two})
    return {"phone": points, "tag": symbols}


def test_where_devices_may_be(broker: Mosquitto, tmp_path: Path, browser: Browser) -> None:
    (tmp_path / "policies").mkdir()
    rows = [f'"46.0005{CANARY},14.2505{CANARY}"', f'"46.0005{CANARY},14.2518{CANARY}"']
    (tmp_path / "walk.csv").write_text("\n".join(["place", *islice(cycle(rows), 600)]) + "\n")
    page = Site(free_port())
    for name, walk in walks().items():
        (tmp_path / "policies" / f"{name}.json").write_text(walk.to_json())
    gateway = GatewayProcess(tmp_path, broker.port, page=page.open)
    agents = []
    wait_until(gateway.hears, "the gateway")
    for name, device_walk in walks().items():
        address = Broker(port=broker.port, max_backoff=1)
        config = write_device(tmp_path / name, device_walk, tmp_path / "walk.csv", "place", address, loop=True)
        agents.append(AgentProcess(config, tmp_path / f"{name}.log"))
    wait_until(page.answers, "the page")

    browser.open(f"{page.address}/device/tag")
    wait_until(lambda: browser.count("main a[href='/place/tag']") == 1, "the way to the map")
    browser.run("document.querySelector(\"a[href='/place/tag']\").focus()")
    browser.driver.switch_to.active_element.send_keys("\n")  # with the keyboard alone
    wait_until(lambda: browser.text("h1") == "Where tag may be")
    wait_until(lambda: browser.count(".map ellipse") == 1, "an ellipse")
    wait_until(lambda: browser.count(".map circle") > 3, "released cells")
    assert browser.count(".map .cell") == 2
    assert browser.count("main b") == 0
    likely = [float(part) for part in browser.text("tbody").split() if part.isdigit()]
    assert sum(likely) == pytest.approx(100, abs=1)
    assert "“<b>west”" in browser.text("ol.newest") or "“east”" in browser.text("ol.newest")
    assert "ellipse with half-axes of" in browser.run("return document.querySelector('.mapped').ariaLabel")
    assert browser.complaints() == []

    for width, dark, path in ((390, False, "/place/tag"), (1200, True, "/place/phone")):
        browser.look(width, dark=dark)
        browser.open(page.address + path)
        wait_until(lambda: browser.count(".map ellipse") == 1 and browser.count(".map circle") > 3, "a map")
        assert browser.violations() == []
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
        assert "With 95 % or more the true place is in an ellipse" in browser.text(".outline")
        wait_until(lambda: "live" in browser.text("#view"), "a word about the connection")
        assert "46.00" in browser.text("ol.newest")
    wait_until(lambda: "hidden among" in browser.text(".now"), "the protection")
    assert "about the same centre" in browser.text(".outline")
    assert "publishes no probability of each" in browser.text(".stream")
    assert browser.count(".likely tbody tr") == 0
    assert browser.complaints() == []

    browser.open(f"{page.address}/place/nobody")
    assert "waiting for a stream of places" in browser.text("main")
    for path in ("/place/phone", "/events/device/phone", "/events/device/tag"):
        status, body = page.ask(path)
        assert status == 200
        assert CANARY.encode() not in body
    assert gateway.stop() == 0


def test_an_address_that_names_nothing_is_said_to(broker: Mosquitto, tmp_path: Path, browser: Browser) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "watch.json").write_text(policy(epoch_us=0, period_us=PERIOD_US).to_json())
    page = Site(free_port())
    gateway = GatewayProcess(tmp_path, broker.port, page=page.open)
    wait_until(page.answers, "the page")
    for path in ("/nothing", "/place/+", "/device/%E0%A4%A"):
        browser.open(page.address + path)
        wait_until(lambda: browser.text("h1") == "Not found", path)
        assert browser.run("return document.title") == "Not found – Fugu"
    assert browser.violations() == []
    browser.click("main a")
    wait_until(lambda: browser.text("h1") == "Fleet")
    wait_until(lambda: "live" in browser.text("#view"))
    assert page.ask("/nothing")[0] == page.ask("/device/a/b", Accept="text/html")[0] == 404
    assert page.ask("/nothing")[1] == b"not found"
    for asked in ("page=99999", "page=-1", "page=x", "condition=nothing", "search=" + "x" * 2000):
        assert page.ask(f"/events/fleet?{asked}")[0] == 200
    assert gateway.stop() == 0
