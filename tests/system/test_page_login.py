"""Who gets into the live page, for how long, and who cannot keep others out: a real server, a real browser."""

from __future__ import annotations

import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.page.login import password_line
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.browser import Browser
from tests.support.pages import ServedPage, Site

pytestmark = pytest.mark.long
PASSWORD = "correct horse battery"
SECONDS = "4"


@pytest.fixture
def login(tmp_path: Path) -> str:
    (tmp_path / "login").write_text(password_line(PASSWORD))
    return str(tmp_path / "login")


def sees_the_session_end(browser: Browser, site: Site) -> None:
    browser.open(site.address)
    wait_until(lambda: browser.count("#password") == 1, "the login")
    browser.type("#password", PASSWORD + "\n")
    wait_until(lambda: browser.text("h1") == "Fleet", "the page")
    wait_until(lambda: "session is over" in browser.text(), "the end of the session")
    assert browser.run("return location.pathname + location.hash") == "/login#expired"
    browser.open(f"{site.address}/releases")
    wait_until(lambda: browser.run("return location.pathname") == "/login", "the login, for whoever comes back later")


def test_a_session_that_has_expired_leads_to_the_login(
    broker: Mosquitto, tmp_path: Path, login: str, browser: Browser
) -> None:
    page = ServedPage(tmp_path, broker.port, login_file=login, session_seconds=float(SECONDS))
    sees_the_session_end(browser, page)
    assert page.stop() == 0


def test_nobody_keeps_others_out(broker: Mosquitto, tmp_path: Path, login: str) -> None:
    """Neither by wrong passwords from another address, nor by a form that never ends."""
    page = ServedPage(tmp_path, broker.port, login_file=login)
    assert [page.log_in("wrong horse", "127.0.0.2")[0] for _ in range(6)] == [403] * 5 + [429]
    assert page.log_in(PASSWORD, "127.0.0.2")[0] == 429
    with socket.create_connection(("127.0.0.1", page.port)) as slow:
        slow.sendall(b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\npassword=")
        assert page.log_in(PASSWORD)[0] == 303
        assert page.log_in(PASSWORD, "127.0.0.3")[0] == 303
        slow.setblocking(False)
        with pytest.raises(BlockingIOError):  # it is waited for all the while
            slow.recv(1)
    assert page.stop() == 0


@pytest.mark.parametrize("tls", [False, True])
def test_nobody_keeps_others_out_by_many_connections(
    broker: Mosquitto, tmp_path: Path, login: str, *, tls: bool
) -> None:
    """Neither silent ones nor heads that never end, from their address or from others: nor a session's open page."""
    page = tls_page(tmp_path, broker, login) if tls else ServedPage(tmp_path, broker.port, login_file=login)
    with ExitStack() as crowd:
        crowd.callback(page.stop)
        cookie = page.enter(PASSWORD)
        assert cookie is not None
        with page.following("/events/fleet", cookie) as events:
            for i in range(600):
                source = (f"127.0.0.{1 + i % 12}", 0)
                visitor = crowd.enter_context(socket.create_connection(("127.0.0.1", page.port), PATIENCE, source))
                visitor.sendall(b"" if i % 2 or tls else b"GET / HTTP/1.1\r\nHost: x\r\n")
            assert page.ask("/login")[0] == 200
            assert page.log_in(PASSWORD)[0] == 303
            assert page.log_in(PASSWORD, "127.0.0.99")[0] == 303
            for _ in range(3):  # it goes on
                assert events.readline()


def test_one_address_does_not_shut_the_page_by_its_open_streams(broker: Mosquitto, tmp_path: Path, login: str) -> None:
    page = ServedPage(tmp_path, broker.port, login_file=login)
    with ExitStack() as crowd:
        crowd.callback(page.stop)
        cookie = page.enter(PASSWORD)
        assert cookie is not None
        first = crowd.enter_context(page.following("/events/fleet", cookie))
        for _ in range(199):
            crowd.enter_context(page.following("/events/releases", cookie))
        wait_until(lambda: page.ask("/events/fleet", Cookie=cookie)[0] == 503, "too many of this address")
        with (
            page.following("/events/fleet", cookie, "127.0.0.2") as other,
            page.following("/events/fleet", cookie, "127.0.0.3") as third,
        ):
            assert other.readline()
            assert third.readline()
            while first.readline() != b"0\r\n":  # the oldest ends, with the chunk of no bytes
                pass
            assert page.ask("/events/fleet", Cookie=cookie)[0] == 503


def tls_page(folder: Path, broker: Mosquitto, login: str) -> ServedPage:
    certificate, key = folder / "page.pem", folder / "page.key"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=page"]
    subprocess.run([*make, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    words = {"login_file": login, "tls_cert": certificate, "tls_key": key}
    return ServedPage(folder, broker.port, certificate=certificate, **words)


def test_over_tls_the_session_is_never_sent_without(broker: Mosquitto, tmp_path: Path, login: str) -> None:
    page = tls_page(tmp_path, broker, login)
    status, cookie = page.log_in(PASSWORD)
    assert status == 303
    assert {"Secure", "HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    assert page.ask("/events/fleet")[0] == 401
    assert page.ask("/events/fleet", Cookie=cookie.partition(";")[0])[0] == 200
    assert not Site(page.port).answers()  # without TLS nobody answers
    assert page.stop() == 0
