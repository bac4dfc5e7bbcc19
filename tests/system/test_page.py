"""The live page in a real browser, of a real gateway, which serves it, and a real device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import pytest

from fugu.contract.descriptions import describe
from fugu.contract.discretisers import Categories
from fugu.contract.frames import Status, StreamStatus
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker, Link
from gateway.page.login import password_line
from tests.support.brokers import Mosquitto, free_port, wait_until
from tests.support.browser import Browser
from tests.support.documents import Page
from tests.support.pages import ServedPage, Site
from tests.support.processes import AgentProcess, GatewayProcess, policy, write_device
from tests.support.whole_fleet import Everything

pytestmark = pytest.mark.long
DEVICES = 200
LOW, HIGH = "0.30211947", "0.70211947"
CANARY = "0211947"
PASSWORD = "correct horse battery"
EVIL = "<img src=x onerror=document.title=1>"
PATHS = (
    *("/", "/device/watch", "/place/watch", "/releases", "/ledger", "/events/fleet", "/events/releases"),
    "/events/ledger",
)
PATHS += ("/events/device/watch",)
ASSETS = tuple(
    f"/assets/{file.name}" for file in (Path(__file__).parents[2] / "gateway/page/assets").iterdir() if file.is_file()
)


class Fleet:
    """A broker, a gateway, a device that runs, and the statuses of many."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = Mosquitto(folder).start()
        device = policy(epoch_us=0, period_us=20_000)
        (folder / "policies").mkdir()
        (folder / "policies" / "watch.json").write_text(device.to_json())
        (folder / "night.csv").write_text("\n".join(["value", *islice(cycle([LOW, LOW, HIGH]), 600)]) + "\n")
        self.page = Site(free_port())
        self.gateway = GatewayProcess(folder, self.broker.port, page=self.page.open)
        address = Broker(port=self.broker.port, max_backoff=1)
        config = write_device(folder / "watch", device, folder / "night.csv", "value", address, loop=True)
        self.agent = AgentProcess(config, folder / "agent.log")
        self.link = Link(address, client_id="crowd")
        self._answered: set[int] = set()
        self.link.on_published = lambda number, _: self._answered.add(number)
        self.link.start()
        wait_until(self.gateway.hears, "the gateway")
        for number in range(DEVICES):
            codes = ("clock",) if number == 123 else ()
            self.say(
                topic_of("status", "home", f"ring-{number:04}"),
                Status(number % 100 != 0, "1.0", 0, codes, (StreamStatus("hr", 1, 5),)).encode(),
            )

    def say(self, topic: str, payload: bytes) -> None:
        """Publish, retained, until the broker has it: a connection that breaks on a busy machine takes what it has."""

        def answered() -> bool:
            sent, end = self.link.publish(topic, payload, retain=True), time.monotonic() + 5
            while sent is not None and sent not in self._answered and time.monotonic() < end:
                time.sleep(0.001)
            return sent in self._answered

        wait_until(answered, "the broker's answer")

    def stop(self) -> None:
        """End all of it: the page ends with the gateway."""
        self.link.stop()
        self.agent.kill()
        assert self.gateway.stop() == 0
        assert not self.page.answers()
        self.broker.stop()


@pytest.fixture(autouse=True, scope="module")
def _no_process_outlives_its_test() -> None:
    """Here they outlive it: a fleet and a browser serve all tests, and are ended by their own fixtures."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    try:
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture(scope="module")
def page(fleet: Fleet) -> Site:
    wait_until(fleet.page.answers, "the page")
    return fleet.page


def test_a_device_is_found_among_hundreds(page: Site, browser: Browser) -> None:
    browser.open(page.address)
    wait_until(lambda: browser.text(".tiles strong") == "201", "all devices")
    assert "needs attention" in browser.text("tbody tr")  # the sick are the first
    assert browser.count("tbody tr") == 50
    browser.click(".bar button:last-child")
    wait_until(lambda: "51–100 of 201" in browser.text())
    browser.type("#search", "ring-0123")
    wait_until(lambda: browser.count("tbody tr") == 1 and "(clock)" in browser.text("tbody tr td:nth-child(2)"))
    browser.run("document.querySelector('#search').value = ''")
    browser.type("#search", "ring-0077")
    wait_until(lambda: browser.count("tbody tr") == 1 and "ring-0077" in browser.text("tbody"))
    browser.click("tbody a")
    wait_until(lambda: browser.text("h1") == "ring-0077")
    browser.driver.back()
    wait_until(lambda: browser.text("h1") == "Fleet")
    assert browser.complaints() == []


def test_the_bytes_that_are_shown_are_those_that_left(fleet: Fleet, page: Site, browser: Browser) -> None:
    heard = Everything(fleet.broker)
    try:
        browser.open(f"{page.address}/device/watch")
        wait_until(lambda: "with probability" in browser.text(".estimate"), "an estimate")
        wait_until(lambda: browser.count(".series .plot") == 1)
        wait_until(lambda: browser.count(".left .frames code") > 3)
        script = "return [...document.querySelectorAll('.frames code')].map((one) => one.textContent)"
        shown = {bytes.fromhex(digits) for digits in browser.run(script)}
        sent = {payload for topic, payload in list(heard.messages) if "/symbols/" in topic}
        assert len(shown & sent) > 1, (shown, sent)
    finally:
        heard.link.stop()
    assert browser.count(".estimate.guess") == 1  # the policy says of nothing that it is useful
    assert "maybe no better than a guess" in browser.text(".estimate")
    browser.open(f"{page.address}/")
    wait_until(lambda: browser.count("#search") == 1)
    browser.type("#search", "watch")
    wait_until(lambda: browser.count("td .guess") > 0, "a grey value")
    assert "maybe no better than a guess" in browser.text("td .guess")
    browser.open(f"{page.address}/device/watch")
    wait_until(
        lambda: "between 17 % and 61 %" in browser.text(".stream"), "the description"
    )  # q = 0.2, r = 0.35, epsilon = 1
    assert browser.complaints() == []


def test_a_broker_that_dies_and_returns(fleet: Fleet, page: Site, browser: Browser) -> None:
    browser.open(f"{page.address}/device/watch")
    wait_until(lambda: browser.count(".left .frames li") > 0, "a frame")
    fleet.broker.kill()
    wait_until(lambda: "No connection to the broker" in browser.text("#view"), "a word about the broker")
    fleet.broker.start()
    wait_until(lambda: "live" in browser.text("#view"), "the connection")
    before = browser.text(".left .frames")
    wait_until(lambda: browser.text(".left .frames") != before, "a new frame")


def test_whatever_a_device_is_called_is_text(fleet: Fleet, page: Site, browser: Browser) -> None:
    named = Categories(categories={"a": 0, "b": 1}, states=(EVIL, "</script><b>"))
    description = describe(
        policy(epoch_us=0, period_us=20_000, device="evil").model_copy(update={"discretiser": named})
    )
    fleet.say(topic_of("description", "home", "evil", "hr"), description.encode())
    browser.open(f"{page.address}/device/evil")
    shown = "return document.querySelector('.stream .promise')?.textContent ?? ''"  # also what is folded
    wait_until(lambda: "</script><b>" in browser.run(shown), "the description")
    browser.open(f"{page.address}/device/%3Cimg%20src=x%20onerror=document.title=1%3E")
    wait_until(lambda: browser.text("h1") == "Not found")
    assert browser.count("main img") == browser.count("main b") == 0
    assert browser.run("return document.title") != "1"
    for name in ("%3Cb%3E", "+", "%23", "release", "x" * 65):
        assert page.ask(f"/events/device/{name}")[0] == 404, name
    browser.complaints()


def test_nothing_is_in_the_way_of_anybody(page: Site, browser: Browser) -> None:
    """Neither axe-core nor a narrow window finds anything wrong, in light and in dark."""
    for width, dark, path, ready in (
        (1200, False, "/device/watch", ".charts .plot path.shape"),
        (390, True, "/", "tbody tr"),
    ):
        browser.look(width, dark=dark)
        browser.open(page.address + path)
        wait_until(lambda: "live" in browser.text("#view"))
        wait_until(lambda ready=ready: browser.count(ready) > 0)
        assert browser.violations() == []
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")


def test_no_answer_holds_a_reading(page: Site) -> None:
    for path in (*PATHS, *ASSETS, "/login", "/nothing"):
        status, body = page.ask(path)
        assert CANARY.encode() not in body
        assert status in (200, 303, 404), path
    assert page.ask("/demo")[0] == page.ask("/demo/watch")[0] == 404  # only the demo has a truth to draw


def test_another_name_for_this_machine_is_refused(page: Site) -> None:
    """A page elsewhere may let its own name point here."""
    assert page.ask("/", Host=f"evil.example:{page.port}")[0] == 421
    assert page.ask("/", Host=f"localhost:{page.port}")[0] == 200
    assert page.ask("/", Host="localhost")[0] == 200, "as a browser says it at port 80"


def test_who_has_no_password_sees_nothing(fleet: Fleet, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "login").write_text(password_line(PASSWORD))
    page = ServedPage(fleet.folder, fleet.broker.port, login_file=tmp_path / "login")
    try:
        for path in (*PATHS, "/assets/main.js"):
            assert page.ask(path) == (401, b'{"error":"refused"}'), path
            assert page.ask(path, Cookie="fugu_session=x")[0] == 401
        browser.open(page.address)
        wait_until(lambda: browser.count("#password") == 1)
        assert browser.violations() == []
        browser.type("#password", "wrong horse battery\n")
        wait_until(lambda: "not the password" in browser.text())
        browser.type("#password", PASSWORD + "\n")
        wait_until(lambda: browser.text("h1") == "Fleet")
        assert browser.run("return document.cookie") == ""
        cookie = browser.driver.get_cookie("fugu_session")
        page.ask("/logout", "POST", Cookie=f"fugu_session={cookie['value']}", Sec_Fetch_Site="same-origin")
        wait_until(lambda: "session is over" in browser.text(), "the end of the session")
        assert page.ask("/login", "POST", f"password={PASSWORD}", Sec_Fetch_Site="cross-site")[0] == 403
    finally:
        assert page.stop() == 0


def test_what_the_manual_says(fleet: Fleet, tmp_path: Path) -> None:
    port = free_port()
    with Page("docs/page.md", tmp_path, {"1883": str(fleet.broker.port), "8080": str(port)}) as manual:
        assert manual.run() == 2
    assert (tmp_path / "page.login").stat().st_mode & 0o777 == 0o600
