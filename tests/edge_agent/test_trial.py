"""`fugu-agent --check` opens each sensor and reads it, sends nothing, and says no reading."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from edge_agent.__main__ import main
from edge_agent.doctor import try_sensors
from edge_agent.local_control import LocalStatus
from fugu.contract.compiler import compile_discretiser
from fugu.contract.discretisers import Baseline, Thresholds
from tests.support.agents import stream_plan
from tests.support.brokers import PATIENCE, await_end
from tests.support.gateway_files import toml
from tests.support.processes import policy

SECRET = "71.53194726"


def command(script: str, **options: Any) -> dict[str, Any]:
    fields = {"kind": "command", "command": ["/bin/sh", "-c", script], "runs": "tick", "timeout": PATIENCE}
    return fields | {"silence": "samples", "keep_alive": None, "keep_alive_ticks": None} | options


def recording(folder: Path, *rows: str, **options: Any) -> dict[str, Any]:
    (folder / "recording.csv").write_text("\n".join(["value", *rows]) + "\n")
    file = str(folder / "recording.csv")
    return {"kind": "replay", "file": file, "column": "value", "loop": True, "silence": "samples"} | options


def outcome(sensor: dict[str, Any], patience: float = PATIENCE, **changes: Any) -> str:
    ((line, wrong),) = try_sensors([stream_plan(sensor=sensor, **changes)], patience)
    assert SECRET not in line
    silent = line.endswith(" s") and "within" in line
    assert wrong != (silent or line.endswith(": a usable reading came"))
    return line


def test_what_came_is_said_and_not_what_it_was(tmp_path: Path) -> None:
    usable = "stream hr: a usable reading came"
    assert outcome(command(f"echo {SECRET}")) == usable
    assert outcome(command(f"echo {SECRET}", silence="changes")) == usable
    tries = (outcome(command(f"echo x{SECRET}"), 0.05 * 4**number) for number in range(8))
    assert next(line for line in tries if "no reading" not in line) == (
        "stream hr: what came is no number, category or place of its policy"
    )
    assert outcome(command(f"echo {SECRET}; exit 1")) == (
        f"stream hr: no reading came within {PATIENCE:g} s: its command ends with an error; run it by hand to see which"
    )
    assert outcome(command("exec sleep 1000"), 0.02) == "stream hr: no reading came within 0.02 s"
    assert outcome(recording(tmp_path, " ", " ", SECRET)) == usable
    assert outcome(recording(tmp_path, " ", " ")) == "stream hr: no reading came"
    assert outcome(recording(tmp_path, " ", loop=False)) == "stream hr: no reading came"
    assert outcome(recording(tmp_path, "nan", f"x{SECRET}")) == (
        "stream hr: what came is no number, category or place of its policy"
    )


def test_a_state_for_missing_readings_and_a_baseline_that_begins_are_no_readings(tmp_path: Path) -> None:
    declared = compile_discretiser(Thresholds(edges=(0.5,), states=("low", "high"), missing="high"))
    assert outcome(recording(tmp_path, " "), discretiser=declared) == "stream hr: no reading came"
    baseline = compile_discretiser(Baseline(baseline_ticks=100, lowest=0.0, highest=200.0))
    assert outcome(recording(tmp_path, SECRET), discretiser=baseline) == "stream hr: a usable reading came"


def test_streams_of_one_sensor_are_tried_with_one_reading(tmp_path: Path) -> None:
    once = command(f"test -e {tmp_path}/ran || echo {SECRET}; touch {tmp_path}/ran")
    plans = [stream_plan(stream=name, sensor=dict(once)) for name in ("a", "b")]
    assert try_sensors(plans, PATIENCE) == [
        ("stream a: a usable reading came", False),
        ("stream b: a usable reading came", False),
    ]


def device(folder: Path, sensor: dict[str, Any], port: int) -> Path:
    (folder / "policy.json").write_text(policy(epoch_us=0, period_us=1_000_000).to_json())
    path = folder / "agent.toml"
    path.write_text(
        'fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nceiling = 1.0\n'
        f'[broker]\nport = {port}\n[[streams]]\npolicy = "policy.json"\nsensor = {toml(sensor)}\n'
    )
    return path


def test_the_check_reads_a_sensor_and_connects_to_nobody(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as fleet:
        fleet.settimeout(0.0)
        config = device(tmp_path, {"kind": "command", "command": ["echo", SECRET]}, fleet.getsockname()[1])
        assert main([str(config), "--check"]) == 0
        with pytest.raises(BlockingIOError):
            fleet.accept()
    output = capfd.readouterr()
    assert output.out.splitlines()[-1] == "stream hr: a usable reading came"
    assert SECRET not in output.out + output.err
    assert not (tmp_path / "outbox.sqlite").exists()


@pytest.mark.long
@pytest.mark.parametrize(("row", "code"), [(SECRET, 0), (f"x{SECRET}", 1), (" ", 1)])
def test_the_check_ends_with_1_if_what_came_cannot_be_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], row: str, code: int
) -> None:
    recording(tmp_path, row)
    assert main([str(device(tmp_path, {"kind": "replay", "file": "recording.csv"}, 9)), "--check"]) == code
    output = capfd.readouterr()
    assert SECRET not in output.out + output.err


def test_the_check_says_in_one_line_that_a_sensor_cannot_be_opened(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([str(device(tmp_path, {"kind": "command", "command": ["no-such-command"]}, 9)), "--check"]) == 1
    assert capfd.readouterr().err == (
        "fugu-agent: there is no command 'no-such-command' that can be run: give its whole path\n"
    )


def test_the_sensors_of_a_running_agent_are_not_opened_twice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = device(tmp_path, {"kind": "command", "command": ["touch", str(tmp_path / "opened")]}, 9)
    answering = LocalStatus(tmp_path / "outbox.sqlite")
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.01):
            answering.answer(dict)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert main([str(config), "--check"]) == 0
    finally:
        over.set()
        await_end(thread)
        answering.close()
    assert "the agent runs, and has its sensors open" in capfd.readouterr().out
    assert not (tmp_path / "opened").exists()
