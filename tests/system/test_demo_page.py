"""The page of a replay: what it shows, how it lies in windows of three widths, and who gets it."""

from __future__ import annotations

import base64
import http.client
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import pytest

from fugu_cli.demo import session
from fugu_cli.demo.evaluation import Replay, load_night
from fugu_cli.demo.page import Page
from fugu_cli.demo.session import NIGHTS
from tests.support.brokers import PATIENCE, wait_until
from tests.support.browser import Browser
from tests.support.replays import check_layout

WIDTHS = {390: 1, 800: 2, 1920: 3}
"""Widths of a window, and how many figures stand beside one another there."""
LOOKS = ((390, False), (800, False), (1920, False), (1920, True))
"""Every width, and the dark colours at one."""
LOADED = "return [...document.querySelectorAll('img')].every((one) => one.naturalWidth === 560)"


@pytest.fixture(scope="module")
def nights() -> list[Replay]:
    return [load_night(name, epoch=0.0) for name in NIGHTS[:2]]


@pytest.fixture
def page() -> Iterator[Page]:
    with Page(browser=False) as made:
        yield made


def ask(page: Page, path: str = "/state", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of an answer."""
    port = page._server.server_port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    found = answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    connection.close()
    return found


def test_whoever_has_no_token_gets_nothing_and_a_token_is_for_one_browser(page: Page) -> None:
    entrance = page.address.partition(f"{page._server.server_port}")[2]
    assert page.address.startswith("http://127.0.0.1:")
    assert page._server.server_address[0] == "127.0.0.1"
    for path in ("/", "/state", "/page.js", "/reading-0.svg", "/?token=", "/?token=wrong"):
        assert ask(page, path)[0] == 403, path
    status, body, headers = ask(page, entrance, Sec_Fetch_Site="cross-site")  # as of a page that is a file
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"url=/" in body
    assert b"token" not in body
    cookie, *attributes = headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Lax"} <= set(attributes)
    assert ask(page, entrance, Cookie=cookie)[0] == 200, "the same browser, which has gone back"
    assert [ask(page, path, Cookie=cookie)[0] for path in ("/", "/state", "/page.js", "/page.css")] == [200] * 4
    assert ask(page, "/../session.py", Cookie=cookie)[0] == ask(page, "/nothing", Cookie=cookie)[0] == 404
    assert ask(page, Cookie="fugu_replay=wrong")[0] == 403
    here = f"127.0.0.1:{page._server.server_port}"
    assert ask(page, Cookie=cookie, Host="evil.example")[0] == 421
    assert ask(page, Cookie=cookie, Origin="http://evil.example")[0] == 403
    assert ask(page, Cookie=cookie, Origin=f"http://{here}")[0] == 200
    for site in ("cross-site", "same-site"):
        for path in ("/", "/state", "/page.js", "/reading-0.svg"):
            assert ask(page, path, Cookie=cookie, Sec_Fetch_Site=site)[0] == 403, path
    assert ask(page, entrance, Host="evil.example")[0] == 421
    headers = ask(page, "/", Cookie=cookie)[2]
    assert headers["cache-control"] == "no-store"
    assert "default-src 'none'" in headers["content-security-policy"]


@pytest.mark.long
@pytest.mark.parametrize(("terminal", "screen"), [(True, True), (False, True), (True, False)])
def test_a_browser_is_opened_where_somebody_looks_and_its_command_line_tells_nobody_the_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, terminal: bool, screen: bool
) -> None:
    opened = seen_opening(monkeypatch, tmp_path)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setattr("fugu_cli.demo.page._screen", lambda: screen)
    with Page(browser=True) as page:
        assert len(opened) == (terminal and screen)
        for file in opened:
            token = page.address.partition("token=")[2]
            assert token not in str(file)
            assert file.stat().st_mode & 0o777 == 0o600
            assert page.address in file.read_text()
            assert ask(page, "/?token=wrong")[0] == 403
            assert file.exists()
            assert ask(page, f"/?token={token}")[0] == 200
        assert [*tmp_path.iterdir()] == []
    with Page(browser=True):
        pass
    with Page(browser=False):
        assert len(opened) == 2 * (terminal and screen)
    assert [*tmp_path.iterdir()] == [], "its end takes the file away, too"


def seen_opening(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> list[Path]:
    """Files that a browser will be told to open; temporary ones are in a folder."""
    opened: list[Path] = []
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(Path(unquote(urlsplit(address).path))))
    return opened


@pytest.mark.long
def test_a_browser_comes_in_by_the_file_and_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, browser: Browser
) -> None:
    opened = seen_opening(monkeypatch, tmp_path)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("fugu_cli.demo.page._screen", lambda: True)
    with Page(browser=True) as page:
        page.show(title="Came in", stage="here")
        browser.open(opened[0].as_uri())
        wait_until(lambda: browser.text("#title") == "Came in", "the page")
        assert browser.run("return location.href") == f"http://127.0.0.1:{page._server.server_port}/"
        assert not opened[0].exists()
        browser.driver.refresh()
        wait_until(lambda: browser.text("#title") == "Came in", "the page again")
        other = tmp_path / "other.html"  # of another site
        other.write_text(f"<a href='http://127.0.0.1:{page._server.server_port}/'>x</a>")
        browser.open(other.as_uri())
        browser.click("a")
        wait_until(lambda: "asked from another page" in browser.text(), "a refusal")


@pytest.mark.long
def test_an_address_that_two_have_ends_the_program(tmp_path: Path) -> None:
    program = (
        "import sys, threading\n"
        "from fugu_cli.commands.demo import _ending_in_order\n"
        "from fugu_cli.main import guarded\n"
        "from fugu_cli.demo.page import Page\n"
        "def run():\n"
        "    with _ending_in_order(), Page(browser=False): threading.Event().wait()\n"
        "sys.exit(guarded(run))"
    )
    output = tmp_path / "output"
    with output.open("w") as file:
        process = subprocess.Popen([sys.executable, "-u", "-c", program], stdout=file, stderr=file)
    try:
        wait_until(lambda: "?token=" in output.read_text(), "its address")
        address = output.read_text().rpartition(" ")[2].strip()
        with urlopen(address) as answer:
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        for _ in range(2):
            with suppress(OSError):  # HTTP's refusal, and later that nobody listens
                urlopen(address).close()
        assert process.wait(PATIENCE) == 1
        with pytest.raises(OSError, match="refused"):
            urlopen(Request(address.partition("?")[0], headers={"Cookie": cookie}))
        assert "fugu: somebody else on this machine has used the address" in output.read_text()
        assert "Traceback" not in output.read_text()
    finally:
        process.kill()
        process.wait(PATIENCE)


@pytest.mark.long
def test_the_page_is_right_at_every_width_and_grows(browser: Browser, nights: list[Replay]) -> None:
    with Page(browser=False) as page:
        page.show(title="Three nights", stage="replaying", done=0.4, left=30)
        for count in (1, 2):
            session.show_replay(page, nights[:count])
        browser.open(page.address)
        wait_until(lambda: browser.count("img:not([hidden])") == 6 and browser.run(LOADED), "prepared pictures")
        assert "token" not in browser.run("return location.href")
        assert "replaying, about 30 s left" in browser.text("#stage")
        assert browser.run("return document.querySelector('progress').value") == 0.4
        assert "0 of 88 values have come from the device. The others in the picture were prepared" in browser.text()
        assert "Any single heartbeat: an attacker's odds on it change by a factor of at most 2.7" in browser.text()
        assert "Any 10 minutes: " in browser.text()
        assert "Any 1 hour: nothing is promised" in browser.text()
        for width, dark in LOOKS:
            browser.look(width, dark=dark)
            check_layout(browser, width, WIDTHS[width])
            assert (max(pixel(browser, "img")) < 80) == dark, "pictures follow the colours of the page"
            if width == 390 or dark:
                assert browser.violations() == []
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        check_layout(browser, 1920, 2)
        assert pixel(browser, "img") == pixel(browser, "main") == (255, 255, 255)
        browser.look(1200, dark=False)

        some = nights[0].prepared
        arrived = session._Device(ticks=1500, bytes=74, frames={at: some[at] for at in list(some)[:4]})
        session._draw(page, 0, nights[0], arrived)
        page.show(stalled="watch-N10 has stood still", report="report.html")
        page.link("<!doctype html><title>x</title><h1>all of it</h1>")
        wait_until(lambda: "What leaves: 74 bytes every 4" in browser.text(), "what came")
        assert "4 of 88 values have come" in browser.text()
        assert browser.text("[role=alert]") == "watch-N10 has stood still"
        page.show(stalled="", ended=True, stage="all has come", paste=["On your sensor", "Paste it.", "fugu agent"])
        wait_until(lambda: browser.text("#stage") == "all has come", "the end")
        assert browser.text("pre") == "fugu agent"
        check_layout(browser, 1200, 3)
        assert browser.complaints() == []
        browser.click("#report a")
        assert browser.text("h1") == "all of it"
        browser.run("history.back()")
        wait_until(lambda: browser.count("img:not([hidden])") == 6, "the page again", instead=browser.text)
    wait_until(lambda: "has ended" in browser.text("#stage"), "a word about the end")
    assert browser.count("img:not([hidden])") == 6


def pixel(browser: Browser, selector: str) -> tuple[int, ...]:
    """Colour of the upper left corner of an element, a little inside."""
    x, y = browser.run(
        "const at = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return [at.left + scrollX + 3, at.top + scrollY + 3]",
        selector,
    )
    clip = {"x": x, "y": y, "width": 1, "height": 1, "scale": 1}
    shot = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    image = base64.b64decode(shot["data"])
    data, at = b"", 8
    while at < len(image):
        length, kind = int.from_bytes(image[at : at + 4], "big"), image[at + 4 : at + 8]
        data += image[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += length + 12
    return tuple(zlib.decompress(data)[1:4])
