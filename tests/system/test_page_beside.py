"""The page beside a gateway: it begins and ends with it, and is never in its way."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from fugu.contract.frames import WindowFrame
from fugu.contract.windows import Window
from fugu.mqtt import Broker
from gateway.page.login import password_line
from gateway.store.store import Store
from tests.support.brokers import PATIENCE, Mosquitto, free_port, has_ended, wait_until
from tests.support.browser import Browser
from tests.support.gateway_files import gateway_file
from tests.support.pages import ServedPage, Site
from tests.support.processes import GatewayProcess, policy

pytestmark = pytest.mark.long
PASSWORD = "correct horse battery"
POINTS = """
const paths = [...document.querySelectorAll(arguments[0])].map((one) => one.getAttribute("d"));
return Math.max(0, ...paths.map((path) => path.split(/[ML]/).length - 1));
"""


@pytest.fixture(autouse=True)
def _policies(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "watch.json").write_text(policy(epoch_us=0, period_us=20_000).to_json())


def children(pid: int) -> list[int]:
    return [
        int(part) for task in Path(f"/proc/{pid}/task").iterdir() for part in (task / "children").read_text().split()
    ]


def page_of(gateway: GatewayProcess) -> int | None:
    for pid in children(gateway.process.pid):
        with contextlib.suppress(OSError):  # it has just ended
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


def test_it_needs_a_password_comes_back_and_ends_with_the_gateway(broker: Mosquitto, tmp_path: Path) -> None:
    (tmp_path / "login").write_text(password_line(PASSWORD))
    site = Site(free_port())
    page = {"listen": f"127.0.0.1:{site.port}", "login_file": "login"}
    gateway = GatewayProcess(tmp_path, broker.port, page=page)
    wait_until(site.answers, "the page")
    assert site.ask("/events/fleet")[0] == 401
    assert site.enter("wrong horse battery") is None
    session = site.enter(PASSWORD)
    assert session is not None
    assert site.ask("/events/fleet", Cookie=session)[0] == 200
    wait_until(gateway.answers, "the gateway")

    first = page_of(gateway)
    assert first is not None
    assert os.getpriority(os.PRIO_PROCESS, first) > os.getpriority(os.PRIO_PROCESS, gateway.process.pid)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: page_of(gateway) not in (None, first), "another page")
    assert site.ask("/events/fleet", Cookie=session)[0] == 401  # sessions end with the process that has them
    session = site.enter(PASSWORD)
    assert session is not None
    assert site.ask("/events/fleet", Cookie=session)[0] == 200
    assert gateway.answers()

    second = page_of(gateway)
    assert second is not None
    assert gateway.stop() == 0
    assert has_ended(second)
    assert not site.answers()


def test_it_ends_when_the_gateway_is_killed(broker: Mosquitto, tmp_path: Path) -> None:
    site = Site(free_port())
    gateway = GatewayProcess(tmp_path, broker.port, page=site.open)
    wait_until(site.answers, "the page")
    page = page_of(gateway)
    assert page is not None
    os.kill(page, signal.SIGSTOP)
    gateway.kill()
    wait_until(lambda: has_ended(page), "the end of the page")
    assert not site.answers()


def test_a_device_has_a_week_of_counts_from_the_store_and_attackers_read_them(
    broker: Mosquitto, tmp_path: Path, browser: Browser
) -> None:
    """Beside a store; a page without one says when the first value comes."""
    period, length = 5, 60
    window = Window(name="active", length=length, stride=length, states=("high",), scale="57/10")
    promise = {"table": None, "windows": (window,), "windows_guarantee": None}
    counted = policy(epoch_us=0, period_us=period * 1_000_000).model_copy(update=promise)
    (tmp_path / "policies" / "watch.json").write_text(counted.to_json())
    newest, week = int(time.time()) // period // length - 1, 7 * 86_400 // period // length
    with closing(Store(tmp_path / "gateway.sqlite")) as store, store.transaction():
        number = store.number_of("watch", "hr/active")
        for at in range(newest - week + 10, newest + 1):
            store.windows.add(number, WindowFrame(1, "active", at - 1, at, at * length, length, length, (at % length,)))
    site = Site(free_port())
    gateway = GatewayProcess(tmp_path, broker.port, page=site.open)
    alone = ServedPage(tmp_path, broker.port)
    wait_until(site.answers, "the page")
    browser.open(f"{site.address}/device/watch")
    wait_until(lambda: browser.run(POINTS, "path.line") > 250, "a day of counts, one of every 5 minutes")
    browser.run("[...document.querySelectorAll('.spans button')].at(-1).click()")
    wait_until(lambda: browser.run(POINTS, "path.line") > 300, "a week of counts, one of every half hour")
    wait_until(lambda: browser.run(POINTS, ".guesses path.end") > 300, "what attackers make of each")
    # A day that began a few hours after the chart does has no room for its name at the chart's edge.
    days = browser.run("return [...document.querySelectorAll('.series .mark')].map((one) => one.textContent)")
    assert re.fullmatch(r"(\w{3} \d+ ){6,8}", "".join(f"{day} " for day in days)), days
    attack, promise = browser.text(".attack"), browser.text(".promise summary")
    assert re.search(r"says 36 %; with what left this device, \d+ %, .* 61 %; had it been 50 % .* 73 %\.", attack)
    assert "(one tick): from 50 % to at most 73 % sure. Not hidden: habits, and 5 min or longer." in promise
    browser.open(f"{alone.address}/device/watch")
    wait_until(lambda: "The first count (window “active”) comes when" in browser.text(), "when")
    assert browser.run(POINTS, "path.line") == 0
    assert gateway.stop() == 0


def test_what_cannot_be_served_is_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "login").write_text("no hash")
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        here, site, gateway = "127.0.0.1:1", Broker(port=1), Broker(port=1, username="gateway")
        refused: list[tuple[Broker, dict[str, object], str]] = [
            (
                site,
                {"listen": f"127.0.0.1:{port}", "no_login": True},
                "another program listens there: stop it, or name another port",
            ),
            (site, {"listen": "0.0.0.0:1", "no_login": True}, "needs a password"),
            (site, {"listen": "0.0.0.0:1", "login_file": "login"}, "needs a certificate"),
            (gateway, {"listen": here, "no_login": True}, "an account of its own"),
            (site, {"listen": here}, "one of login_file, no_login"),
            (site, {"listen": here, "no_login": True, "login_file": "login"}, "one of login_file, no_login"),
            (site, {"listen": here, "no_login": True, "tls_cert": "x"}, "a certificate and its key"),
            (site, {"listen": here, "no_login": True, "tls_cert": "x", "tls_key": "y"}, "No such"),
            (site, {"listen": here, "login_file": "login"}, "no hash"),
            (site, {"listen": "nowhere:0", "login_file": "login"}, "is not host:port"),
            (site, {"no_login": True}, "page.listen: is missing"),
            (site, {"listen": here, "no_logn": True}, "page.no_logn: unknown key; did you mean no_login?"),
        ]
        for index, (broker, page, _) in enumerate(refused):
            gateway_file(tmp_path / f"{index}.toml", broker, store="s.db", policies="policies", page=page)
        run = [sys.executable, "-m", "fugu", "gateway", "run"]
        some = [
            subprocess.Popen([*run, f"{index}.toml"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
            for index in range(len(refused))
        ]
        lines = [process.communicate(timeout=PATIENCE)[1] for process in some]
    for line, reason in zip(lines, (reason for *_, reason in refused), strict=True):
        assert reason in line, line
        assert line.count("\n") == 1, line
    assert not (tmp_path / "s.db").exists()
