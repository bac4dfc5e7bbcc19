"""`fugu try`, as a new user runs it: a recording that is of use, and one that is not."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fugu.core.clocks import TickClock
from fugu.host.process import Wake
from fugu_cli.commands.plan_options import AutoOptions
from fugu_cli.demo import planned
from fugu_cli.demo.device import ReplayClock
from tests.support.brokers import PATIENCE, wait_until
from tests.support.browser import Browser
from tests.support.forks import programs
from tests.support.replays import SECRET, check_first_screen, recorded
from tests.support.soak import only
from tests.support.visitor import Visitor


def tried(folder: Path, *words: str, file: str = "history.csv", edge: str = "10") -> subprocess.CompletedProcess[str]:
    """The command in a folder whose temporary files are in it."""
    (folder / "temporary").mkdir()
    states = ["--threshold", edge] if edge else []
    command = [sys.executable, "-m", "fugu", "try", file, *states, "--no-browser", *words]
    environment = {**os.environ, "TMPDIR": str(folder / "temporary")}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


@pytest.mark.long
def test_a_recording_of_use_is_replayed_and_ends_with_a_block_for_the_sensor(tmp_path: Path) -> None:
    recorded(tmp_path, 0.6, 2700)
    done = tried(tmp_path, "--protect", "tick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("the page, for one browser: http://127.0.0.1:")
    assert "Useful: the share " in done.stdout
    assert "\nUseful: the released shares are off by " in done.stdout
    assert "\nThe strongest of " in done.stdout
    block = done.stdout.partition("\non your sensor:\n\n")[2].strip()
    # As it is pasted, but for the agent, whose sensor is not there.
    shell = block.replace("\nfugu ", "\n: ").replace("fugu plan", f"{programs()}/fugu plan", 1)
    subprocess.run(["sh", "-ec", shell], cwd=tmp_path, check=True, capture_output=True)
    agent = tomllib.loads((tmp_path / "plan" / "agent.toml").read_text())
    assert agent["streams"][0]["sensor"]["kind"] == "mqtt"
    assert agent["streams"][0]["sensor"]["port"] != agent["broker"]["port"]
    checked = subprocess.run(
        [sys.executable, "-m", "fugu", "agent", "doctor", "plan/agent.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "cannot read" not in checked.stderr
    assert block.splitlines()[-1] == "fugu agent run plan/agent.toml"
    assert {file.name for file in tmp_path.iterdir()} == {"history.csv", "plan", "temporary"}
    assert list((tmp_path / "temporary").iterdir()) == []
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.long
def test_the_state_now_is_replayed_as_symbols_beside_the_truth(tmp_path: Path) -> None:
    recorded(tmp_path, 0.6, 2700)
    done = tried(tmp_path, "--protect", "tick", "--want", "now", "--epsilon", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    match = re.search(
        r"Useful: the state that a filter names is right ([\d.]+) % of the time; .* right ([\d.]+) %", done.stdout
    )
    assert match is not None, done.stdout
    right, majority = map(float, match.groups())
    assert 80.0 < right < 97.0
    assert 50.0 <= majority < 60.0
    moved = re.search(r"the odds on a minute change by at most x ([\d.]+), where x 20.1 is promised", done.stdout)
    assert moved is not None, done.stdout
    assert 1.0 < float(moved[1]) <= 20.1
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.fresh  # a fork ignores what the server of forks has ignored from its start
@pytest.mark.parametrize("number", only([signal.SIGTERM], [signal.SIGTERM, signal.SIGHUP]))
def test_who_ends_it_early_finds_nothing_left(tmp_path: Path, number: int) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("this signal is ignored: who starts it so wants that it goes on")
    recorded(tmp_path, 0.6, 2700)
    (temporary := tmp_path / "temporary").mkdir()
    command = [sys.executable, "-m", "fugu", "try", "history.csv", *("--threshold", "10", "--protect", "tick")]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen([*command, "--no-browser"], cwd=tmp_path, env=environment, stdout=output)
    try:
        wait_until(lambda: process.poll() is not None or list(temporary.glob("fugu-replay-*/*/agent.toml")), "a replay")
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(PATIENCE) == 128 + number
    finally:
        process.kill()
        process.wait(PATIENCE)
    assert list(temporary.iterdir()) == []


@pytest.mark.long
def test_places_are_planned_for_though_not_replayed(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    rows = [
        f"{tick * 3600},{52.002 + 0.0045 * y},{4.003 + 0.0073 * x}"
        for tick, (x, y) in enumerate(rng.integers(0, 2, (2700, 2)))
    ]
    (tmp_path / "visits.csv").write_text("\n".join(["t,lat,lon", *rows]) + "\n")
    done = tried(tmp_path, "--epsilon", "6", file="visits.csv", edge="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("^Useful: a point ", done.stdout, re.M)
    assert done.stdout.count("\nNot replayed: only one device's counts") == 1


def test_the_clock_of_a_replay_goes_from_tick_to_tick_by_the_times_of_the_policy() -> None:
    clock, ticks = ReplayClock(5_000_000, 1_000_001, 0.0), TickClock(5_000_000, 1_000_001)
    seen = [ticks.at(clock.now_us())]
    for seconds in (0.5, 1.0, 0.0, 3.0):
        clock.wait(Wake(), seconds)
        assert clock.now_us() == clock.elapsed_us()
        seen.append(ticks.at(clock.now_us()))
    assert seen == [-1, 0, 1, 1, 2]


@pytest.mark.long
def test_after_a_no_what_would_do_is_a_button_for_somebody_at_a_terminal(tmp_path: Path, browser: Browser) -> None:
    recorded(tmp_path, 0.6, 2700)
    ours, theirs = pty.openpty()
    words = "--threshold", "10", "--protect", "tick", "--epsilon", "0.2", "--no-browser"
    environment = {**os.environ, "COLUMNS": "400"}
    process = subprocess.Popen(
        [sys.executable, "-m", "fugu", "try", "history.csv", *words],
        cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
    )  # fmt: skip
    os.close(theirs)
    os.set_blocking(ours, False)
    output = bytearray()

    def has(text: str) -> bool:
        with suppress(OSError):
            output.extend(os.read(ours, 1 << 16))
        return text in output.decode(errors="replace")

    try:
        wait_until(lambda: has("?token=") and has("\n"), "its address")
        visitor = Visitor(output.decode(errors="replace"))
        browser.open(visitor.address)
        [cookie] = browser.driver.get_cookies()
        visitor.cookie = f"{cookie['name']}={cookie['value']}"
        wait_until(lambda: has("the page stays until Ctrl-C"), "a no")
        wait_until(lambda: "no answer" in browser.text("#stage"), "its page")
        check_first_screen(browser)
        offers = visitor.state()["offers"]
        assert [offer["options"] for offer in offers] == [{"offer": str(at)} for at in range(len(offers))]
        assert visitor.ask("POST", "/ask", b'{"offer": "no"}')[0] == 400
        browser.click("#offers button")
        wait_until(lambda: has("on your sensor:"), "the plan that would do, replayed")
        assert visitor.state()["offers"] == []
        assert visitor.state()["verdicts"][0][0] == "yes"
        wait_until(lambda: has("") and output.count(b"the page stays until Ctrl-C") == 2, "that it stays")
        wait_until(lambda: "attacked" in browser.text("#stage"), "the page of a yes")
        check_first_screen(browser)
        browser.check_still()
        process.send_signal(signal.SIGTERM)  # a shell's background ignores SIGINT
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait(PATIENCE)
        os.close(ours)


def test_what_is_to_be_pasted_has_only_options_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --broker the fleet and the device are those of all trials, which `fugu try` has no options for."""
    offer = "Try instead: a share", AutoOptions(fleet="trial", device="trial", epsilon=3.0)
    plan = SimpleNamespace(verdict=["Not useful.", "Private."], useful=False, privacy="private")
    monkeypatch.setattr(planned, "_plan_on_page", lambda *_: (plan, [offer]))
    shown: dict[str, object] = {}
    page = SimpleNamespace(show=shown.update)
    planned.plan_and_replay(page, tmp_path / "a: b.csv", None, replace(offer[1], epsilon=1.0), not_private=False)
    command = f"fugu try '{tmp_path}/a: b.csv' --epsilon 3.0"
    assert capsys.readouterr().out.splitlines()[-1] == f"Try instead: a share: {command}"
    assert shown["paste"][-1] == command


def test_a_button_says_what_would_do_and_what_that_gives_up() -> None:
    asked = AutoOptions(protect="1h", window="8h", epsilon=1.0)
    for change, words, more in (
        ({"window": None}, "Plan with any window instead", "A share, expected to be off by 2 percentage points; guess"),
        (
            {"protect": "tick"},
            "Plan with any single reading hidden instead",
            "only any single reading hidden, from 50 %",
        ),
        ({"epsilon": 2.0}, "Plan with at most 88 % sure instead", "from 50 % to at most 88 % sure, instead of 73 %."),
    ):
        offer = (
            "Try instead: a share, off by 2 points on held-back rows; guessing is off by 9",
            replace(asked, **change),
        )
        button = planned._offer_button(offer, asked)
        assert button["words"] == words
        assert more in button["more"]
