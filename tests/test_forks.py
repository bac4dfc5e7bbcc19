"""A fork that a test starts is a process as if it had started on its own."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.support import forks
from tests.support.brokers import PATIENCE, free_port, has_ended, wait_until

NOBODY = ("subscribe", "--fleet", "home", "--broker", f"127.0.0.1:{free_port()}")


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_it_says_and_ends_as_one_that_has_started_on_its_own(tmp_path: Path) -> None:
    for words in (["--version"], ["check", "policy", "none.json"], ["no such"]):
        ran = [
            kind([sys.executable, "-m", "fugu", *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for kind in (forks.Popen, forks.REAL)
        ]
        outputs = [process.communicate(timeout=PATIENCE) for process in ran]
        assert outputs[0] == outputs[1]
        assert ran[0].returncode == ran[1].returncode
        assert (None if has_ended(ran[0].pid) else parent(ran[0].pid)) is None


def test_it_can_be_killed() -> None:
    process = subprocess.Popen([sys.executable, "-m", "fugu", *NOBODY], stderr=subprocess.DEVNULL)
    assert parent(process.pid) == forks.server_process()
    assert process.pid in forks.running()
    assert b"subscribe" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait(PATIENCE) == -signal.SIGKILL
    assert process.pid not in forks.running()


@pytest.mark.fresh
def test_it_starts_on_its_own_where_that_is_asked() -> None:
    process = subprocess.Popen([sys.executable, "-m", "fugu", *NOBODY], stderr=subprocess.DEVNULL)
    wait_until(lambda: b"subscribe" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
    process.kill()
    process.wait(PATIENCE)


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "PYTHONPATH", "OPENBLAS_NUM_THREADS", "LC_ALL"])
def test_what_is_read_at_the_start_is_read(name: str) -> None:
    words, other = [sys.executable, "-m", "fugu", *NOBODY], f"{os.environ.get(name, '')}3"
    process = subprocess.Popen(words, env={**os.environ, name: other}, stderr=subprocess.DEVNULL)
    path = Path(f"/proc/{process.pid}/cmdline")
    wait_until(path.read_bytes)
    assert b"subscribe" in path.read_bytes()
    process.kill()
    process.wait(PATIENCE)


def test_a_shell_that_is_ended_ends_it_and_hears_how_it_ended(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{forks.programs()}{os.pathsep}{os.environ['PATH']}"}
    for number in (signal.SIGTERM, signal.SIGKILL):
        before = children()
        shell = subprocess.Popen(["fugu", *NOBODY], env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
        wait_until(lambda before=before: children() - before)  # one of before may have ended meanwhile
        [process] = children() - before
        shell.send_signal(number)
        shell.wait(PATIENCE)
        wait_until(lambda process=process: has_ended(process))
    done = subprocess.run(
        ["bash", "-c", "fugu --version | cat; fugu check policy none.json; echo $?; cat none | fugu-agent none.toml"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[0].startswith("fugu ")
    assert done.stdout.splitlines()[1:] == ["1"]
    assert done.returncode == 1
    assert "none.toml" in done.stderr


def children() -> set[int]:
    server = forks.server_process()
    return set(map(int, Path(f"/proc/{server}/task/{server}/children").read_text().split()))


def test_a_program_in_a_text_sees_its_own_words_and_an_error_ends_it_with_a_line(tmp_path: Path) -> None:
    program = "import sys, os; print(sys.argv, os.getcwd()); sys.exit('a line')"
    done = subprocess.run([*forks.shell_words(), "-c", program, "a"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, f"['-c', 'a'] {tmp_path}\n", "a line\n")
    done = subprocess.run([*forks.shell_words(), "-c", "1 / 0"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_a_process_that_is_collected_while_it_runs_ends_and_hinders_no_other() -> None:
    """In a circle of references, its socket may be closed before subprocess asks how it is for the last time."""
    process: Any = subprocess.Popen([sys.executable, "-m", "fugu", *NOBODY], stderr=subprocess.DEVNULL)
    number, process.circle = process.pid, process
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del process
        gc.collect()
    wait_until(lambda: has_ended(number))
    subprocess.run(["true"], check=True)
