"""The page of the ledger, and budgets on the page of a device, in a real browser."""

from __future__ import annotations

from contextlib import closing
from itertools import cycle, islice
from pathlib import Path

import pytest

from fugu.contract.descriptions import describe
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker, Link
from gateway.releases.ledger import Ledger
from tests.support.brokers import Mosquitto, free_port, wait_until
from tests.support.browser import Browser
from tests.support.ledgers import ALLOWED, allow, open_ledger, release, reserve
from tests.support.pages import ServedPage, Site
from tests.support.processes import AgentProcess, GatewayProcess, policy, write_device
from tests.support.release_scenes import scheduled, write_config

pytestmark = pytest.mark.long
LOW, HIGH = "0.30211947", "0.70211947"
CANARY = b"0211947"
EVIL = "<img src=x onerror=document.title=1>"
HR = "section[aria-label='Stream hr']"


def unfold(browser: Browser) -> None:
    wait_until(lambda: browser.count(f"{HR} details") > 0, "the stream")
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


def numbers(browser: Browser) -> list[int]:
    script = "return [...document.querySelectorAll('tbody tr')].map((one) => Number(one.dataset.number))"
    return [int(number) for number in browser.run(script)]


def choose(browser: Browser, audience: str) -> None:
    browser.run("document.querySelector('#audience').focus()")
    browser.type("#audience", audience)


def test_beside_a_gateway_it_is_its_ledger(broker: Mosquitto, tmp_path: Path, browser: Browser) -> None:
    """Releases of a real device are charged, shown, and off its budget; a gateway that works on is not held up."""
    device = policy(epoch_us=0, period_us=20_000)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "watch.json").write_text(device.to_json())
    (tmp_path / "night.csv").write_text("\n".join(["value", *islice(cycle([LOW, LOW, HIGH]), 600)]) + "\n")
    config = write_config(
        tmp_path, scheduled(states=["high"], share=0.25), scheduled("mine", "site", states=["high"], scale="20")
    )
    page = Site(free_port())
    gateway = GatewayProcess(tmp_path, broker.port, releases=config, page=page.open)
    wait_until(gateway.hears, "the gateway")
    address = Broker(port=broker.port, max_backoff=1)
    agent = AgentProcess(
        write_device(tmp_path / "watch", device, tmp_path / "night.csv", "value", address, loop=True),
        tmp_path / "agent.log",
    )
    browser.open(f"{page.address}/ledger")
    wait_until(lambda: "ledger of all audiences" in browser.text("#view"), "whose view it is")
    wait_until(lambda: len(numbers(browser)) > 3, "entries")
    text = browser.text("tbody")
    assert "active" in text
    assert "watch" in text
    assert "nats a tick" in text
    before = numbers(browser)[0]
    wait_until(lambda: numbers(browser)[0] > before + 2, "new entries by themselves")
    choose(browser, "site")
    wait_until(lambda: browser.count("tbody tr") > 0 and "active" not in browser.text("tbody"), "the site's entries")
    assert "nothing" in browser.text("tbody")
    with closing(Ledger(tmp_path / "gateway-ledger.sqlite", read_only=True)) as ledger:
        (account,) = ledger.accounts()
    share = round(100 * account.spent / account.allowance)
    browser.open(f"{page.address}/device/watch")
    unfold(browser)
    wait_until(lambda: f"Used {share} %:" in browser.text(f"{HR} .budget"), "the budget")
    budget = browser.text(f"{HR} .budget")
    assert "public epsilon 1" in budget
    assert "informed, by chain" in budget
    assert "site reads these messages: epsilon 1 of a tick by the policy" in budget
    for path in ("/ledger", "/events/ledger", "/events/ledger?audience=public&before=3", "/events/device/watch"):
        status, body = page.ask(path)
        assert (status, CANARY in body) == (200, False)
    assert browser.complaints() == []
    agent.kill()
    assert gateway.stop() == 0


def test_pages_a_filter_and_names_that_are_text(broker: Mosquitto, tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "home-ledger.db"
    with closing(open_ledger(path)) as ledger:
        allow(ledger, "watch", audiences=["lab"])
        for number in range(57):
            reserve(ledger, release(10 * number, 10 * number + 9, ALLOWED // 2))
        reserve(ledger, release(0, 9, ALLOWED // 3, audience="lab", topic="fugu/2/home/release/lab/count"))
        reserve(ledger, release(10, 19, ALLOWED // 2, name=EVIL, reason=f"</script>{EVIL}", scale=EVIL))
    link = Link(Broker(port=broker.port), client_id="crowd")
    link.start()
    description = describe(policy(epoch_us=0, period_us=1_000_000)).encode()
    topic = topic_of("description", "home", "watch", "hr")
    wait_until(lambda: link.publish(topic, description, retain=True) is not None, "room for a message")
    page = ServedPage(tmp_path, broker.port, ledger=path)
    narrow = ServedPage(tmp_path, broker.port, ledger=path, no_login=True, audience="lab")
    browser.open(f"{page.address}/ledger")
    wait_until(lambda: numbers(browser) == list(range(59, 9, -1)), "the newest")
    assert EVIL in browser.text("tbody")
    assert browser.count("main img") == 0
    assert browser.run("return document.title") != "1"
    browser.run("document.querySelector('.bar button:last-child').focus()")
    browser.type(".bar button:last-child", "\n")
    wait_until(lambda: numbers(browser) == list(range(9, 0, -1)), "older ones")
    browser.click(".bar button:first-child")
    wait_until(lambda: numbers(browser)[0] == 59, "the newest again")
    choose(browser, "lab")
    wait_until(lambda: numbers(browser) == [58], "those of one audience")
    for width, dark, name, ready in ((1200, False, "ledger", "tbody tr"), (390, True, "ledger", "tbody tr"),
                                     (390, True, "device/watch", ".used")):  # fmt: skip
        browser.look(width, dark=dark)
        browser.open(f"{page.address}/{name}")
        wait_until(lambda ready=ready: browser.count(ready) > 0, ready)
        assert browser.violations() == []
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), (width, name)
    unfold(browser)
    used = browser.text(f"{HR} .budget")
    assert "Used 100 %" in used
    assert "Used 33 %: 0.1 for releases, about ticks 0 to 9; left 0.2 of 0.3 nats" in used
    browser.open(f"{narrow.address}/ledger")
    wait_until(lambda: numbers(browser) == [58], "the entries of the audience")
    assert "ledger of audience lab" in browser.text("#view")
    assert "watch" not in browser.text("tbody")
    assert "public" not in browser.text()
    browser.open(f"{page.address}/ledger")
    wait_until(lambda: len(numbers(browser)) == 50)
    path.write_bytes(path.read_bytes()[:5000])
    wait_until(lambda: "The ledger cannot be read" in browser.text(".alarm"), "a word about the damage")
    assert browser.complaints() == []
    for served in (page, narrow):
        assert served.stop() == 0
