"""Pages of two accounts of one broker, in a real browser: each shows what it may read, and says whose view it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu.contract.frames import Status, StreamStatus, SymbolFrame
from fugu.contract.reports import ReleaseFrame
from fugu.contract.topics import topic_of
from tests.support.brokers import wait_until
from tests.support.browser import Browser
from tests.support.pages import ServedPage
from tests.support.processes import GatewayProcess, Recorder
from tests.support.release_scenes import scheduled
from tests.support.scenes import policy, write_policies
from tests.support.shipped import Client, Shipped

pytestmark = pytest.mark.long
STREET = '[audiences.street]\nepsilon = 0.5\nadversary = "informed"\n'
TICKS = 40


def significant(value: float) -> str:
    return f"{float(f'{value:.4g}'):g}"


def send(watch: Client, firsts: range) -> None:
    """Frames of 10 ticks, as the watch sends them."""
    for first in firsts:
        frame = SymbolFrame(1, first - 1, first, bytes([first // 10 % 2] * 10))
        assert watch.publish(topic_of("symbols", "home", "watch", "hr"), frame.encode()) == 0


def test_what_each_account_sees(tmp_path: Path, browser: Browser) -> None:
    draft = policy(1)
    write_policies(tmp_path / "policies", [draft])
    releases = tmp_path / "releases.toml"
    releases.write_text(
        STREET + scheduled("walk", "street", length=TICKS) + scheduled("inside", "site", length=20, scale="3")
    )
    shipped = Shipped(tmp_path)
    shipped.add("device", "watch")
    shipped.add("gateway", "gateway")
    shipped.add("subscriber", "site", "--audience", "site")
    promises = ("--audience", "street", "--releases", releases, "--policies", tmp_path / "policies")
    for name in ("street", "reader"):
        shipped.add("subscriber", name, *promises)
    with shipped:
        gateway = GatewayProcess(tmp_path, shipped.address("gateway"), releases=releases)
        pages = {name: ServedPage(tmp_path, shipped.address(name)) for name in ("site", "street")}
        wait_until(gateway.hears, "the gateway")
        reader = Recorder(shipped.address("reader"), topic_of("release", "home", "street", "walk"))
        with shipped.client("watch") as watch:
            status = Status(True, "1.0", 0, (), (StreamStatus("hr", 1, TICKS),)).encode()
            assert watch.publish(topic_of("status", "home", "watch"), status, retain=True) == 0
            send(watch, range(0, TICKS + 10, 10))
        wait_until(lambda: reader.payloads, "the release")
        answer = ReleaseFrame.decode(reader.payloads[0])

        for name, seen in (("site", {"walk", "inside"}), ("street", {"walk"})):
            browser.open(f"{pages[name].address}/releases")
            wait_until(lambda seen=seen: seen <= set(browser.text("tbody").split()), "the releases")
            assert ("inside" in browser.text("tbody")) == ("inside" in seen)
            assert browser.text("#view") == f"● live, as account {name} may read it"
            rows = browser.run("return [...document.querySelectorAll('tbody tr')].map((one) => one.innerText)")
            (row,) = (row for row in rows if row.startswith("walk"))
            numbers = [significant(number) for number in (answer.values[0], answer.low[0], answer.high[0])]
            assert "{} ({} to {})".format(*numbers) in row
            assert f"#{answer.entry}" in row
            assert "for street" in row
            assert f"epsilon {significant(answer.epsilon)}" in row
            assert f"noise of scale {answer.scale}" in row
            browser.look(390, dark=name == "site")
            assert browser.violations() == []

        browser.open(pages["site"].address)
        wait_until(lambda: browser.count("tr[data-name='watch']") == 1, "the device")
        browser.open(pages["street"].address)
        wait_until(lambda: "No device is visible to this account" in browser.text("main"), "a word about that")
        assert "fugu start plans and writes an agent's files" in browser.text("main")
        assert browser.count("tbody tr") == 0
        browser.open(f"{pages['street'].address}/device/watch")
        wait_until(lambda: "This account may not read the device's status" in browser.text("main"))
        assert browser.count(".left li") == browser.count(".stream") == 0
        assert b"inside" not in pages["street"].ask("/events/releases")[1]
        with shipped.client("watch") as watch:  # an estimate is not retained: a page remembers those that it hears
            ahead = iter(range(TICKS + 10, 100_000, 10))

            def remembered() -> bool:
                first = next(ahead)
                send(watch, range(first, first + 10, 10))
                return b'"kind":"history"' in pages["site"].ask("/events/device/watch")[1]

            wait_until(remembered, "a history")
        for path in ("/events/device/watch", "/events/fleet"):  # of another's devices it has heard, and keeps, nothing
            answer = pages["street"].ask(path)[1]
            assert not [word for word in (b'"history"', b'"estimate"', b'"count"', b'"newest"') if word in answer]
        assert browser.complaints() == []
        codes = [process.stop() for process in (*pages.values(), gateway)]
        assert codes == [0, 0, 0]
