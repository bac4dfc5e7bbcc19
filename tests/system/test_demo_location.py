"""The second demo, as a new user runs it: a private walk, with a device and a gateway that are stopped on the way."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fugu_cli.demo import location
from tests.support.brokers import PATIENCE, await_end, wait_until


@pytest.mark.soak
def test_the_walk_is_followed_through_restarts_and_losses(tmp_path: Path) -> None:
    kind = "embedded"
    command = [sys.executable, "-m", "fugu", "demo", "walk", "--seconds", "20", "--broker-kind", kind]
    done = subprocess.run([*command, "--out", "walk"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "walk" / "report.html").read_text()
    assert "http://" not in report.replace("http://www.w3.org/2000/svg", "")
    maps = re.findall(r"<svg.*?</svg>", report, re.DOTALL)
    assert len(maps) == 6
    for drawn in maps:
        shapes = [element.tag.rpartition("}")[2] for element in ElementTree.fromstring(drawn).iter()]
        assert shapes.count("ellipse") == 1
        assert shapes.count("circle") == 1, "the released point"
        assert shapes.count("rect") == 1 + 100 + 1, "paper, cells, and the true one"
    said = dict(re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td></tr>", report))
    numbers = {name: float(value.partition(" ")[0].rstrip(",")) for name, value in said.items()}
    assert numbers["points that reached the subscriber"] >= 400
    assert numbers["ticks while the device was down"] >= 10
    assert numbers["ticks of the walk"] >= 410
    assert numbers["drawn from tables that the gateway sent"] > 0
    assert numbers["a possible cell is hidden among at least"] >= 2
    released, estimated, later = (numbers[name] for name in said if name.startswith("error of"))
    assert 250 < released < 550
    assert estimated < 0.75 * released
    assert later < 0.95 * estimated
    assert numbers["truth inside the 95 % ellipse"] > 80


def test_a_walk_that_stands_still_ends_with_a_report_of_what_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[Any] = []

    class Agent(location._AgentProcess):
        def __init__(self, config: Path, log: Path) -> None:
            super().__init__(config, log)
            begun.append(self)

    def stop() -> None:
        wait_until(lambda: begun, "the device")
        (readings,) = tmp_path.glob("fugu-demo-*/readings.jsonl")
        wait_until(lambda: readings.read_text().count('"kind":"point"') >= 40)
        begun[0].process.send_signal(signal.SIGSTOP)

    monkeypatch.setattr(location, "_AgentProcess", Agent)
    monkeypatch.setattr(location, "_STILL_SECONDS", 1.5)
    monkeypatch.setattr(location, "_GIVEN_UP_SECONDS", 5.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stopper = threading.Thread(target=stop)
    stopper.start()
    assert location.run(tmp_path / "walk", 60.0, "mosquitto") == 1
    assert "<strong>Not the whole walk:</strong>" in (tmp_path / "walk" / "report.html").read_text()
    await_end(stopper)
    (device,) = begun
    assert device.process.wait(PATIENCE) == -signal.SIGKILL
    assert f"points have arrived, the device is process {device.process.pid}" in capsys.readouterr().out
