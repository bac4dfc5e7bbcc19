"""Commands as sensors: run at each tick, or for ever; whatever they do, nothing of it is told."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from edge_agent.sensors import command
from edge_agent.sensors.command import CommandLineSensor, CommandSensor, output_of
from edge_agent.sensors.opening import InterpretedSensor, open_sensor
from edge_agent.sensors.sharing import Sensors, check_shared
from edge_agent.sensors.source import ConfigError, FailedError, LiveSensor, Reading, SensorUpdate
from tests.support.agents import SECOND, stream_plan
from tests.support.brokers import PATIENCE, has_ended, wait_until

SECRET = "71.53194726"


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def value(reading: Reading | None) -> object:
    return None if reading is None else reading.reveal()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 71; echo ' 72 '; echo", "72"),
        ("printf 73", "73"),
        ("exit 0", None),
        ("echo", None),
        ("echo 74; echo lost >&2", "74"),
        (r"printf '\377\n'", "�"),
    ],
)
def test_a_run_gives_its_last_line(script: str, expected: str | None) -> None:
    assert output_of(shell(script), PATIENCE) == expected


@pytest.mark.parametrize(
    ("words", "timeout", "trouble"),
    [
        (shell(f"echo {SECRET}; echo {SECRET} >&2; exit 3"), PATIENCE, "ends with an error"),
        (shell(f"echo {SECRET}; kill -9 $$"), PATIENCE, "ends with an error"),
        (shell(f"echo {SECRET}; exec sleep 1000"), 0.05, "takes too long"),
        (shell("exec >&-; exec sleep 1000"), 0.05, "takes too long"),
        (shell(f"yes {SECRET}"), PATIENCE, "writes too much"),
        (["/no/such/program", SECRET], PATIENCE, "cannot be run"),
        (["/", SECRET], PATIENCE, "cannot be run"),
    ],
)
def test_a_run_that_fails_is_told_in_fixed_words(
    words: list[str], timeout: float, trouble: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FailedError, match=trouble) as error:
        output_of(words, timeout)
    assert SECRET not in repr(error.value) + str(error.value)
    assert error.value.__suppress_context__ or error.value.__context__ is None
    assert capfd.readouterr() == ("", "")


def test_what_a_run_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    assert output_of(shell(f"sleep 1000 >&- 2>&- & echo $! > {pid_file}; echo 71"), PATIENCE) == "71"
    wait_until(lambda: has_ended(int(pid_file.read_text())))


def test_no_shell_takes_the_words_apart() -> None:
    words = [sys.executable, "-c", "import sys; print(sys.argv[1:])", "$HOME; echo *", ""]
    assert output_of(words, PATIENCE) == "['$HOME; echo *', '']"


def test_a_tick_has_what_the_run_before_it_gave_and_an_error_ends_what_holds(tmp_path: Path) -> None:
    value_file = tmp_path / "said"
    value_file.write_text("71")
    source = CommandSensor(shell(f"test -e {value_file} && cat {value_file}"), PATIENCE)
    sensor = InterpretedSensor(source, None)
    tick = iter(range(10**6))
    wait_until(lambda: value(sensor.read(next(tick))) == "71")
    value_file.write_text("")
    assert value(sensor.read(next(tick))) == "71", "nothing written is no change"
    value_file.unlink()
    wait_until(lambda: sensor.read(next(tick)) is None)
    wait_until(lambda: "ends with an error" in sensor.trouble)


def test_lines_of_a_command_that_goes_on_and_its_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "AGAIN_SECONDS", 0.01)
    pipe, pid = tmp_path / "pipe", tmp_path / "pid"
    os.mkfifo(pipe)
    sensor = CommandLineSensor(shell(f"echo $$ > {pid}; echo {SECRET} >&2; exec cat {pipe}"), "alive")
    holds = InterpretedSensor(sensor, 2)
    with pipe.open("w") as lines:
        print("71\nalive", file=lines, flush=True)
        wait_until(lambda: value(holds.read(0)) == "71")
        assert [value(holds.read(tick)) for tick in (1, 2, 3)] == ["71", "71", None]
        print("72\nalive", file=lines, flush=True)
        wait_until(lambda: value(holds.read(4)) == "72")
        first = int(pid.read_text())
    wait_until(lambda: holds.read(4) is None)
    assert sensor.trouble == "its command has ended; it is begun anew"
    with pipe.open("w") as lines:  # somebody reads it again
        assert has_ended(first)
        print("73\nalive", file=lines, flush=True)
        wait_until(lambda: value(holds.read(5)) == "73")
        again = int(pid.read_text())
        sensor.close()
        wait_until(lambda: has_ended(again))
    assert not has_ended(os.getpid())


def test_a_line_that_comes_while_the_command_is_found_to_begin_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked whether it runs, it does not yet; its first lines are there when they are fetched."""
    sensor = CommandLineSensor(shell("exec sleep 1000"), "alive")
    wait_until(lambda: not sensor._is_gone)
    sensor._is_gone = True

    def begun(line: CommandLineSensor, tick: int) -> SensorUpdate:
        return SensorUpdate(Reading("71"), True)

    monkeypatch.setattr(LiveSensor, "poll", begun)
    assert value(InterpretedSensor(sensor, 2).read(0)) == "71"
    sensor.close()


def test_a_command_that_goes_on_runs_once_whatever_clock_its_readers_have() -> None:
    words = ["/bin/sh", "-c", "exec sleep 1000"]
    always = {"kind": "command", "command": words, "runs": "always", "silence": "samples", "keep_alive": None}
    first, two = (
        stream_plan(stream=name, sensor=always, period_us=us) for name, us in (("a", SECOND), ("b", 2 * SECOND))
    )
    with pytest.raises(ConfigError, match=r"^the command /bin/sh feeds the streams of one clock and one sensor table"):
        check_shared([first, two])
    check_shared([first, stream_plan(stream="b", sensor={**always, "command": [*words[:2], "exec sleep 999"]})])
    sensors = Sensors()
    assert sensors.of(two).sensor is sensors.of(first).sensor, "a new clock takes the command that runs"
    sensors.close()


@pytest.mark.parametrize("begin", ["CommandLineSensor(words)", "CommandSensor(words, 1000.0)"])
def test_a_command_and_what_it_has_started_end_with_an_agent_that_is_killed(tmp_path: Path, begin: str) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 1000 >&- & echo $$ $! > {pids}.new; mv {pids}.new {pids}; exec sleep 1000"
    program = f"""
import sys, time
from edge_agent.sensors.command import CommandLineSensor, CommandSensor
words = ["/bin/sh", "-c", sys.argv[1]]
sensor = {begin}
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", program, script]) as agent:
        wait_until(pids.exists, "the command")
        both = [int(word) for word in pids.read_text().split()]
        assert len(both) == 2
        assert not any(map(has_ended, both))
        agent.kill()
    wait_until(lambda: all(map(has_ended, both)), "their end")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_CHILD_SUBREAPER is of Linux")
def test_a_run_leaves_no_child_to_an_agent_that_inherits_orphans() -> None:
    """As process 1 of a container does."""
    program = """
import ctypes, os
from edge_agent.sensors.command import output_of
assert ctypes.CDLL(None).prctl(36, 1) == 0
assert output_of(["/bin/sh", "-c", "sleep 1000 >&- & echo 71"], 60.0) == "71"
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("none")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "none\n"


def test_a_command_that_is_not_there_is_refused_at_the_start() -> None:
    config = {"kind": "command", "command": ["no-such-command", SECRET], "runs": "tick", "silence": "samples"}
    with pytest.raises(ConfigError, match="there is no command 'no-such-command'") as error:
        open_sensor({**config, "timeout": 1.0})
    assert SECRET not in str(error.value)


def test_a_command_that_starts_slowly_delays_no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    starting, may_start = threading.Event(), threading.Event()

    def slow(_words: Sequence[str]) -> NoReturn:
        starting.set()
        may_start.wait(PATIENCE)
        raise FailedError("its command cannot be run")

    monkeypatch.setattr(command, "_start_process", slow)
    sensor = CommandLineSensor(["any"])
    assert starting.wait(PATIENCE)
    ticks = threading.Thread(target=sensor.poll, args=(0,), daemon=True)
    ticks.start()
    ticks.join(1.0)
    assert not ticks.is_alive()
    may_start.set()
    sensor.close()
