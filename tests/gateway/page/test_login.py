"""Who may look at the page, against those who guess, and on a clock of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from fugu.contract.errors import FuguError
from fugu.mqtt import Broker
from gateway.config import PageConfig, PageSettings
from gateway.page import login as login_module
from gateway.page.login import Login, network_of, password_line
from gateway.page.server import PageBeside

PASSWORD = "correct horse battery"
HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"


class Clock:
    """Stands where it is put."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def login(folder: Path, clock: Clock) -> Login:
    (folder / "login").write_text(password_line(PASSWORD))
    return Login(folder / "login", 60.0, clock)


@pytest.fixture
def cheap_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of who may try, and when: a hash that takes long shows nothing of these."""
    monkeypatch.setattr(login_module, "_N", 2)


def test_a_session_ends_after_its_time_or_when_it_is_ended(tmp_path: Path) -> None:
    clock = Clock()
    some = login(tmp_path, clock)
    first, second = some.enter(PASSWORD, HERE), some.enter(PASSWORD, HERE)
    assert first is not None
    assert second is not None
    assert first != second
    some.end(second)
    assert (some.knows(first), some.knows(second), some.knows(""), some.knows("x")) == (True, False, False, False)
    clock.now += 60.0
    assert not some.knows(first)


@pytest.mark.usefixtures("cheap_hash")
def test_five_failures_a_minute_and_no_more(tmp_path: Path) -> None:
    clock = Clock()
    some = login(tmp_path, clock)
    for _ in range(5):
        assert some.wait_seconds(HERE) == 0.0
        assert some.enter("wrong horse", HERE) is None
        clock.now += 1.0
    assert some.wait_seconds(HERE) == 55.0
    assert some.enter(PASSWORD, HERE) is None
    clock.now += 55.0
    assert some.enter(PASSWORD, HERE) is not None
    clock.now += 60.0
    for _ in range(5):
        assert some.enter("wrong horse", HERE) is None
    assert some.wait_seconds(HERE) == 60.0


@pytest.mark.usefixtures("cheap_hash")
def test_failures_shut_out_the_network_they_came_from_and_no_other(tmp_path: Path) -> None:
    some = login(tmp_path, Clock())
    for last in range(5):
        assert some.enter("wrong horse", f"2001:db8:0:1::{last}") is None
    assert some.wait_seconds("2001:db8:0:1:ffff::1") > 0.0
    assert some.enter(PASSWORD, "2001:db8:0:1::9") is None
    assert some.wait_seconds("2001:db8:0:2::1") == some.wait_seconds(HERE) == 0.0
    assert some.enter(PASSWORD, HERE) is not None


def test_what_counts_as_one_network() -> None:
    assert network_of("::ffff:192.0.2.1") == network_of(HERE) != network_of(ELSEWHERE)
    assert network_of("fe80::1%eth0") == network_of("fe80::2") != network_of("fe80:0:0:1::1")
    assert network_of("") == ""


@pytest.mark.usefixtures("cheap_hash")
def test_a_flood_of_addresses_takes_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network whose last failure is the oldest is forgotten; one that goes on failing is not."""
    monkeypatch.setattr(login_module, "_MOST_NETWORKS", 3)
    some = login(tmp_path, Clock())
    for number in range(5):
        for peer in (HERE, f"198.51.100.{number}"):
            assert some.enter("wrong horse", peer) is None
    assert some.wait_seconds(HERE) > 0.0
    assert set(some._failures) == {HERE, "198.51.100.3", "198.51.100.4"}
    monkeypatch.setattr(login_module, "_MOST_SESSIONS", 3)
    first, *others = [some.enter(PASSWORD, ELSEWHERE) or "" for _ in range(4)]
    assert [some.knows(session) for session in (first, *others)] == [False, True, True, True]


def test_the_file_has_no_password_and_one_without_a_hash_is_refused(tmp_path: Path) -> None:
    assert PASSWORD not in password_line(PASSWORD)
    assert password_line(PASSWORD) != password_line(PASSWORD)
    for text in ("", "x", PASSWORD, "scrypt$$", "scrypt$AAAA$AAAA", "argon$AAAA$" + "A" * 88):
        (tmp_path / "login").write_text(text)
        with pytest.raises(FuguError):
            Login(tmp_path / "login")
    for password in ("short one", "x" * 1025):
        with pytest.raises(FuguError, match="10 to 1024"):
            password_line(password)


def test_other_machines_get_in_with_a_password_over_tls_only() -> None:
    password, tls = {"login_file": "file"}, {"tls_cert": "file", "tls_key": "file"}
    for host in ("0.0.0.0", "192.168.1.2", "[::]", "page.example"):
        for options in ({}, password, tls, {**password, "tls_key": "file"}, {**tls, "no_login": True}):
            with pytest.raises(ValidationError):
                PageConfig(listen=f"{host}:8443", **options)
        PageConfig(listen=f"{host}:8443", **password, **tls)
    for seconds in (0.0, -1.0, float("nan")):
        with pytest.raises(ValidationError, match="session_seconds"):
            PageConfig(listen="127.0.0.1:8080", no_login=True, session_seconds=seconds)
    for host in ("127.0.0.1", "::1", "localhost"):
        PageConfig(listen=f"[{host}]:8080" if ":" in host else f"{host}:8080", no_login=True)


@pytest.mark.parametrize("file", ["ca_file", "password_file"])
def test_a_page_that_cannot_connect_for_want_of_a_file_is_not_served(tmp_path: Path, file: str) -> None:
    broker = Broker(username="site", **{file: str(tmp_path / "lost")})
    page = PageConfig(listen="127.0.0.1:1", no_login=True)
    with pytest.raises(FuguError, match=r"cannot (load|read) the (TLS files|password file): No such file"):
        PageBeside(PageSettings("home", broker, page, ("127.0.0.1", 0)))
