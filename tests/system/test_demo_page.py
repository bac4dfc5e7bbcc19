"""The page of a replay: what it shows, how it lies in windows of three widths, and who gets it."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest

from fugu.places.graphs import complete, lattice
from fugu.places.protection import protect
from fugu_cli.demo import session
from fugu_cli.demo.evaluation import Replay, load_night
from fugu_cli.demo.page import Page
from fugu_cli.demo.replay_lanes import replay_lanes, stretches_lane
from fugu_cli.demo.session import NIGHTS
from fugu_cli.view.measure_plan import graph_lanes
from papers.chart import chart_lane
from papers.rows import Chart, Line
from tests.support.brokers import wait_until
from tests.support.browser import Browser
from tests.support.replays import check_first_screen, check_layout, check_points

WIDTHS = (390, 800, 1200, 1920)
PRESS = """
[...document.querySelectorAll(".choice button")].find((one) => one.textContent === arguments[0]).click();
"""
TOPS = "return [...document.querySelectorAll('.lane, #hidden')].map((one) => one.getBoundingClientRect().top)"
PRESSED = "return [...document.querySelectorAll('.choice [aria-pressed=true]')].map((one) => one.textContent)"
LOADED = "return performance.getEntriesByType('resource').some((one) => one.name.includes(arguments[0]))"


@pytest.fixture(scope="module")
def nights() -> list[Replay]:
    return [load_night(name, epoch=0.0) for name in NIGHTS[:2]]


@pytest.fixture
def page() -> Iterator[Page]:
    with Page(browser=False) as page:
        yield page


def ask(page: Page, path: str = "/state", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    port = page._server.server_port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    response = answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    connection.close()
    return response


def test_whoever_has_no_token_gets_nothing_and_a_token_is_for_one_browser(page: Page) -> None:
    entrance = page.address.partition(f"{page._server.server_port}")[2]
    assert page.address.startswith("http://127.0.0.1:")
    assert page._server.server_address[0] == "127.0.0.1"
    for path in ("/", "/state", "/page.js", "/lanes.js", "/lanes-0.json", "/?token=", "/?token=wrong"):
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
        for path in ("/", "/state", "/page.js", "/lanes.js", "/lanes-0.json"):
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
    monkeypatch.setattr("fugu_cli.demo.page._has_screen", lambda: screen)
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
    monkeypatch.setattr("fugu_cli.demo.page._has_screen", lambda: True)
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
def test_the_page_is_right_at_every_width_and_grows(browser: Browser, nights: list[Replay]) -> None:
    night = nights[0]
    frames = dict(night.simulated_frames())
    some = {first: frames[first] for first in list(frames)[:40]}
    with Page(browser=False) as page:
        page.show(title=session._TITLE, sub=session._SUB, about="three real nights, replayed", stage="reading")
        browser.look(1200, dark=False)
        browser.open(page.address)
        wait_until(lambda: browser.count("main:not([hidden]) .lane") == 3, "lanes before anything is read")
        assert browser.count(".choice:not([hidden])") == 0
        empty = browser.run(TOPS)
        for at, name in enumerate(("Night 1", "Night 2", "Night 3", "A home")):
            page.show_replay(at, name=name)
        page.show_replay(1, title="Another night", sub="It has words of its own.")
        session.show_recording(page, 0, night.values, night.hours, night.quantity)
        session.show_recording(page, 1, nights[1].values, nights[1].hours, nights[1].quantity)
        wait_until(lambda: browser.text(".stays .number") == "26,923", "the recording")
        assert browser.run(TOPS) == pytest.approx(empty, abs=1), "nothing makes room for what comes"
        assert "token" not in browser.run("return location.href")
        assert browser.text(".leaves .number") == "0"
        page.show(stage="replaying: 40 of 143 numbers sent", done=0.4, seconds_left=30)
        session.draw_replay(page, 0, night, 12_300, night.results(some))
        wait_until(lambda: browser.text(".leaves .number") == "40", "what has come")
        assert "replaying: 40 of 143 numbers sent · 30 s left" in browser.text("#stage")
        assert browser.run("return document.querySelector('progress').value") == 0.4
        assert browser.text(".stays .number") == "12,300"
        assert line_of(browser, "promise") == "the promise: at most 73 %"
        assert pressed(browser) == ["knows the habits", "Night 1"]
        session.draw_replay(page, 0, night, night.states.size, night.results(frames, attack_all=True))
        page.show(ended=True, stage="all has come")
        wait_until(
            lambda: browser.text("#stage") == "all has come" and browser.text(".leaves .number") == "88", "the end"
        )
        browser.check_still()
        assert browser.run(TOPS) == pytest.approx(empty, abs=8), "seven buttons and what is not hidden are in one row"
        check_first_screen(browser)
        for choice, line in (("learns them", "one who knows the habits: 73 %"), ("ordinary noise", "habits: 73 %")):
            choose(browser, choice)
            assert line_of(browser, "nobody").endswith(line)
            assert browser.count(".attacker.beyond") == 1
            assert float(browser.text(".attacker .number").split()[0]) > 73
            check_layout(browser, 1200)
        choose(browser, "knows the habits")
        for width in WIDTHS:
            for dark in (False, True) if width in (390, 1920) else (False,):
                browser.look(width, dark=dark)
                check_layout(browser, width)
                ground = browser.run("return getComputedStyle(document.body).backgroundColor")
                assert (max(map(int, re.findall(r"\d+", ground))) < 80) == dark, (
                    "the page follows the colours that are asked for"
                )
                if width == 390 or dark:
                    assert browser.violations() == []
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        check_layout(browser, 1920)
        browser.look(1200, dark=False)
        choose(browser, "Night 2")
        wait_until(lambda: browser.text(".stays .number") == "16,859", "another night")
        assert (browser.text("h1"), browser.text("#sub")) == ("Another night", "It has words of its own.")
        page.show(
            stalled="watch-N10 has stood still", paste=["On your sensor", "Paste it.", "fugu agent"], details=["all"]
        )
        page.link("<!doctype html><title>x</title><h1>all of it</h1>")
        wait_until(lambda: browser.text("[role=alert]") == "watch-N10 has stood still", "an alarm")
        assert browser.text("pre") == "fugu agent"
        check_layout(browser, 1200)
        assert browser.complaints() == []
        browser.run("document.getElementById('details').open = true")
        browser.click("#report a")
        assert browser.text("h1") == "all of it"
        browser.driver.back()
        wait_until(lambda: browser.text(".stays .number") == "26,923", "the page again", instead=browser.text)
        browser.run("document.querySelector('#hidden a').click()")
        wait_until(lambda: "no promise hides habits" in browser.text("#habits"), "what is not hidden")
    wait_until(lambda: "has ended" in browser.text("#stage"), "a word about the end")
    assert browser.text(".leaves .number") == "88"


def line_of(browser: Browser, look: str) -> str:
    return str(browser.run(f"return document.querySelector('.attacker text.{look}')?.textContent"))


def choose(browser: Browser, words: str) -> None:
    browser.run(PRESS, words)


def pressed(browser: Browser) -> list[str]:
    return list(browser.run(PRESSED))


@pytest.mark.long
@pytest.mark.parametrize("font", ["DejaVu Sans", "Liberation Sans"])
def test_words_of_a_promise_have_room_whatever_its_epsilon_and_the_font(
    browser: Browser, nights: list[Replay], font: str
) -> None:
    night = nights[1]
    shares, stretches = ([row._replace(epsilon=epsilon) for row in night.stretches] for epsilon in (0.5, 5.0))
    with Page(browser=False) as page:
        page.show(title="Promises", stage="here")
        replays = [of_epsilon(night, epsilon) for epsilon in (0.5, 1.0, 2.0, 3.0, 4.0, 5.0)]
        for at, replay in enumerate(replays):
            page.show_replay(at, name=f"{replay.policy.guarantee.epsilon:g}")
            session.draw_replay(page, at, replay, replay.states.size, replay.results(replay.simulated_frames()))
        for at, rows in enumerate((shares, stretches), len(replays)):
            page.show_replay(at, name=f"rows {at}")
            (stays, leaves, _), _ = replay_lanes(night, 0, None)
            page.draw(at, [stays, leaves, stretches_lane(rows, night.promised_stretch)])
        browser.open(page.address)
        wait_until(lambda: browser.count(".choice button") > 8, "switches")
        browser.run(f"document.styleSheets[0].insertRule('*, svg.plot text {{ font-family: \"{font}\" !important }}')")
        for at in range(len(replays) + 2):
            browser.run("document.querySelectorAll('#which button')[arguments[0]].click()", at)
            wait_until(lambda at=at: browser.run(LOADED, f"lanes-{at}.json"), "its numbers")
            for width in WIDTHS:
                browser.look(width, dark=False)
                check_layout(browser, width)


def of_epsilon(replay: Replay, epsilon: float) -> Replay:
    """A replay that promises another epsilon about a tick; the noise stays."""
    promise = replay.policy.guarantee.model_copy(update={"epsilon": epsilon})
    return replace(replay, policy=replay.policy.model_copy(update={"guarantee": promise}))


@pytest.mark.long
def test_a_browser_and_a_file_have_the_same_points(browser: Browser, nights: list[Replay]) -> None:
    night = nights[1]
    line = Line.through("a", [(0.01, 3.0), (1.0, 1.0), (50.0, 2.5)])
    chart = chart_lane(Chart("T", "x", "y", (line, line._replace(joined=False)), log_x=True))
    corners, whole = lattice([[0, 0], [2, 1], [1, 3]]), np.ones(3, dtype=np.bool_)
    graph, hull = graph_lanes(corners, complete(3), whole, protect(corners, complete(3), whole))
    pictures = (
        replay_lanes(night, 9000, night.results(night.simulated_frames()))[0],
        [chart._replace(look="stays"), graph, hull._replace(look="attacker")],
    )
    with Page(browser=False) as page:
        page.show(title="Two drawings", stage="here")
        for at, lanes in enumerate(pictures):
            page.show_replay(at, name=f"picture {at}")
            page.draw(at, lanes)
        browser.look(1100, dark=False)
        browser.open(page.address)
        wait_until(lambda: browser.count("path.shape") > 8, "a picture")
        for at, lanes in enumerate(pictures):
            choose(browser, f"picture {at}")
            check_points(browser, lanes)
        words = browser.run("return [...document.querySelectorAll('.leaves text.words')].map((one) => one.textContent)")
        assert words == ["0", "1", "2"]
