"""The live page inside Home Assistant: behind its ingress, below a path, in a frame, and for nobody else."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fugu.contract.frames import Status, StreamStatus
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker, Link
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.browser import Browser
from tests.support.pages import ServedPage, Site

pytestmark = pytest.mark.long
SUPERVISOR = "127.0.0.2"
PREFIX = "/api/hassio_ingress/x-Y_9"
PATHS = ("/", "/device/ring", "/releases", "/login", "/assets/main.js", "/events/fleet", "/events/device/ring")


def asked(page: Site, source: str, path: str, **headers: str) -> tuple[int, str, str]:
    """Status, policy and text of an answer to an address of this machine."""
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=PATIENCE, source_address=(source, 0))
    with closing(connection):
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-security-policy", ""), answer.read().decode()


@contextmanager
def ingress(page: Site) -> Iterator[str]:
    """Home Assistant's part: a page with a frame, and what is asked in it passed on below a path of its own."""

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(PREFIX):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(f'<!doctype html><iframe src="{PREFIX}/"></iframe>'.encode())
                return
            upstream = http.client.HTTPConnection("127.0.0.1", page.port, source_address=(SUPERVISOR, 0))
            with closing(upstream):
                upstream.request(
                    "GET", self.path[len(PREFIX) :], headers=dict(self.headers) | {"X-Ingress-Path": PREFIX}
                )
                answer = upstream.getresponse()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name not in ("transfer-encoding", "content-length"):
                        self.send_header(name, value)
                self.end_headers()
                try:
                    while part := answer.read1(4096):
                        self.wfile.write(part)
                except OSError:  # the reader has gone
                    return

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.block_on_close = False  # streams of events do not end
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def answers_nobody_but_the_supervisor(page: Site) -> None:
    """All paths, with every header that says where somebody comes from."""
    for source in ("127.0.0.1", "127.0.0.3"):
        for path in PATHS:
            assert asked(page, source, path, X_Ingress_Path=PREFIX)[::2] == (403, "not from here"), (source, path)
    for forwarded in ("X_Forwarded_For", "X_Real_IP", "Forwarded"):
        assert asked(page, "127.0.0.1", "/", **{forwarded: SUPERVISOR})[0] == 403
    status, policy, text = asked(page, SUPERVISOR, "/", Host="home.example", X_Ingress_Path=PREFIX)
    assert (status, "frame-ancestors 'self'" in policy) == (200, True)
    assert f'src="{PREFIX}/assets/main.js"' in text
    for wrong in ('"><script>', "//evil.example", "/a/../b", "/a b", "http://evil.example"):
        assert 'src="/assets/main.js"' in asked(page, SUPERVISOR, "/", X_Ingress_Path=wrong)[2], wrong


def test_the_page_works_below_the_path_that_home_assistant_gives_it_and_for_nobody_else(
    broker: Mosquitto, tmp_path: Path, browser: Browser
) -> None:
    page = ServedPage(tmp_path, broker.port, supervisor=SUPERVISOR, ingress=True)
    answers_nobody_but_the_supervisor(page)
    link = Link(Broker(port=broker.port), client_id="ring")
    link.start()
    status = Status(True, "1.0", 0, ("clock",), (StreamStatus("hr", 1, 5),))
    wait_until(lambda: link.publish(topic_of("status", "home", "ring"), status.encode(), retain=True) is not None)
    with ingress(page) as home:
        browser.open(f"{home}{PREFIX}/")
        wait_until(lambda: browser.count("tbody a") == 1, "the device")
        browser.click("tbody a")
        wait_until(lambda: browser.text("h1") == "ring")
        assert browser.run("return location.pathname") == f"{PREFIX}/device/ring"
        wait_until(lambda: "clock" in browser.text("main"), "what the device says")
        browser.driver.refresh()
        wait_until(lambda: "clock" in browser.text("main"), "the same, asked for by its address")
        for name in ("Releases", "Ledger", "Fleet"):
            browser.run(
                "[...document.querySelectorAll('nav a')].find((a) => a.innerText === arguments[0]).click()", name
            )
            wait_until(lambda name=name: browser.text("h1") == name)
            assert browser.text("nav a[aria-current]") == name
        browser.open(f"{home}{PREFIX}/nowhere")
        wait_until(lambda: "There is no page /nowhere" in browser.text())
        browser.click("main a")
        wait_until(lambda: browser.count("tbody a") == 1, "all devices")
        assert [
            complaint for complaint in browser.complaints() if "/nowhere" not in complaint
        ] == []  # its status is 404
        browser.open(home)
        framed = "return document.querySelector('iframe').contentDocument?.querySelector('tbody a')?.innerText"
        wait_until(lambda: browser.run(framed) == "ring", "the page in a frame of Home Assistant")
    assert page.stop() == 0


def test_another_page_takes_no_path_from_who_asks_and_stands_in_no_frame(broker: Mosquitto, tmp_path: Path) -> None:
    page = ServedPage(tmp_path, broker.port)
    status, policy, text = asked(page, "127.0.0.1", "/", X_Ingress_Path=PREFIX)
    assert page.stop() == 0
    assert (status, "frame-ancestors 'none'" in policy, PREFIX in text) == (200, True, False)
