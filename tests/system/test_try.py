"""`fugu try`, as a new user runs it: a recording that is of use, and one that is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from edge_agent.device_clock import TickClock
from fugu.cli.demo.device import ReplayClock
from fugu.cli.errors import NOTHING
from fugu.host.clock import Wake

SECRET = "17.25"


def recorded(folder: Path, stay: float, ticks: int) -> Path:
    """A recording of two levels, one row a minute, whose level stays with a probability."""
    generator = np.random.default_rng(3)
    level = np.cumsum(generator.random(ticks) > stay) % 2
    rows = [f"{60 * tick},{SECRET if one else '3.5'}" for tick, one in enumerate(level.tolist())]
    (folder / "history.csv").write_text("\n".join(["t,value", *rows]) + "\n")
    return folder / "history.csv"


def tried(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in a folder whose temporary files are in it."""
    (folder / "temporary").mkdir()
    command = [sys.executable, "-m", "fugu", "try", "history.csv", "--threshold", "10", "--no-browser", *words]
    environment = {**os.environ, "TMPDIR": str(folder / "temporary")}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


@pytest.mark.long
def test_a_recording_of_use_is_replayed_and_ends_with_a_block_for_the_sensor(tmp_path: Path) -> None:
    recorded(tmp_path, 0.6, 9000)
    done = tried(tmp_path, "--protect", "tick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("the page, for one browser: http://127.0.0.1:")
    assert "elease the share " in done.stdout
    assert "\nUseful: the released shares are off by " in done.stdout
    assert "\nThe strongest of " in done.stdout
    block = done.stdout.partition("\non your sensor:\n\n")[2].strip()
    # As it is pasted, but for the agent, whose sensor is not there.
    shell = block.replace("\nfugu ", "\n: ").replace("fugu plan", f"{sys.executable} -m fugu plan", 1)
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
    assert {one.name for one in tmp_path.iterdir()} == {"history.csv", "plan", "temporary"}
    assert list((tmp_path / "temporary").iterdir()) == []
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.long
def test_after_a_no_it_says_what_would_do(tmp_path: Path) -> None:
    recorded(tmp_path, 0.98, 6000)
    done = tried(tmp_path)
    assert done.returncode == NOTHING, done.stdout + done.stderr
    assert "othing is recommended" in done.stdout
    assert "Nothing would leave" in done.stdout
    assert re.search(
        r"^(\S+ % off on held-back rows instead: fugu try history.csv |A recording of more)", done.stdout, re.M
    )
    assert "plan auto" not in done.stdout
    assert list((tmp_path / "temporary").iterdir()) == []


def test_the_clock_of_a_replay_goes_from_tick_to_tick_by_the_times_of_the_policy() -> None:
    clock, ticks = ReplayClock(5_000_000, 1_000_001, 0.0), TickClock(5_000_000, 1_000_001)
    seen = [ticks.at(clock.now_us())]
    for seconds in (0.5, 1.0, 0.0, 3.0):
        clock.wait(Wake(), seconds)
        assert clock.now_us() == clock.elapsed_us()
        seen.append(ticks.at(clock.now_us()))
    assert seen == [-1, 0, 1, 1, 2]
