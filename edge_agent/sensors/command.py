"""Readings from a command: one that is run at each tick, or one that goes on and writes lines.

No shell splits the command. Its standard error is discarded, since it may hold a reading, too. A command does not
outlive the agent: a guard in its process group ends the group when the agent's end of a pipe is closed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence

from edge_agent.sensors.call import CallSensor
from edge_agent.sensors.source import FailedError, LiveSensor

__all__ = ["CommandLineSensor", "CommandSensor"]


MAX_OUTPUT_BYTES = 1 << 16
AGAIN_SECONDS = 10.0
"""Pause before a command that runs always is started again after its end."""
_POLL_SECONDS = 0.01
_Process = subprocess.Popen[bytes]


class CommandSensor(CallSensor):
    """Runs a command once a tick, for at most `timeout` seconds; a reading is the last line of the run before."""

    def __init__(self, words: Sequence[str], timeout: float) -> None:
        super().__init__(lambda: output_of(words, timeout))


def output_of(words: Sequence[str], timeout: float) -> str | None:
    """Run a command, end all its processes, and return its last line; `None` without lines.

    Raises FailedError if it cannot be run, takes too long, writes more than 64 KiB, or its exit code is not 0.
    """
    deadline = time.monotonic() + timeout
    process = _start_process(words)
    try:
        output = _read(process, deadline)
        if _exit_code(process, deadline):
            raise FailedError("its command ends with an error; run it by hand to see which")
    except subprocess.TimeoutExpired:
        raise FailedError("its command takes too long, and is ended") from None
    finally:
        _end(process)
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else None


class CommandLineSensor(LiveSensor):
    """Runs a command that goes on; its newest line counts, once. A command that ends is started again 10 s later.

    A `keep_alive` line is no reading, but says that the source works.
    """

    def __init__(self, words: Sequence[str], keep_alive: str | None = None) -> None:
        super().__init__()
        self._words = words
        self._keep_alive = keep_alive
        self._is_gone = True
        self._closed = threading.Event()
        self._process_lock = threading.Lock()
        self._process: _Process | None = None
        threading.Thread(target=self._restart_command, name="command", daemon=True).start()

    def _restart_command(self) -> None:
        while not self._closed.is_set():
            try:
                self._run()
                self._trouble = "its command has ended; it is begun anew"
            except FailedError as error:
                self._trouble = str(error)
            except Exception:
                self._trouble = "its command cannot be read"
            self._is_gone = True
            self._add_update(works=False)
            self._closed.wait(AGAIN_SECONDS)

    def _run(self) -> None:
        with self._process_lock:  # no command is started after `close`
            if self._closed.is_set():
                return
            process = self._process = _start_process(self._words)
        self._is_gone = False
        try:
            assert process.stdout is not None
            self._take_lines(process.stdout, self._keep_alive)
        finally:
            with self._process_lock:
                _end(process)
                self._process = None

    def close(self) -> None:
        """End the command."""
        with self._process_lock:
            self._closed.set()
            if self._process is not None:
                _kill(self._process)  # the thread then reads its output to the end, and waits for it


_GUARD_SCRIPT = 'exec 3<&0 </dev/null; { read -r end; kill -KILL 0; } <&3 3<&- >/dev/null & exec 3<&-; exec "$@"'
"""Shell script that starts a guard, which waits for the end of standard input, and then becomes the command.

PR_SET_PDEATHSIG would end the command alone, and not the processes that it has started. To set it between fork and
exec would run Python there, which is not safe beside other threads.
"""


def _start_process(words: Sequence[str]) -> _Process:
    try:
        if shutil.which(words[0]) is None:
            raise FileNotFoundError
        return subprocess.Popen(
            ["/bin/sh", "-c", _GUARD_SCRIPT, "sh", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError):
        raise FailedError("its command cannot be run") from None


def _read(process: _Process, deadline: float) -> bytes:
    """Read a command's output until it is closed. Raises FailedError if it is too long, TimeoutExpired if too slow."""
    pipe = process.stdout
    assert pipe is not None
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise subprocess.TimeoutExpired("", 0.0)
            chunk = os.read(pipe.fileno(), MAX_OUTPUT_BYTES)
            output += chunk
            if not chunk:
                return bytes(output)
            if len(output) > MAX_OUTPUT_BYTES:
                raise FailedError("its command writes too much, and is ended")


def _exit_code(process: _Process, deadline: float) -> int:
    """Wait for a command's exit code. It is not reaped, so that its number stays taken. Raises TimeoutExpired."""
    while (status := os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired("", 0.0)
        time.sleep(_POLL_SECONDS)
    return status.si_status


def _kill(process: _Process) -> None:
    """Kill the process group of a command that is not reaped yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: _Process) -> None:
    _kill(process)
    process.wait()
    with contextlib.suppress(ChildProcessError):  # as process 1 of a container the agent inherits the group's processes
        while True:
            os.waitpid(-process.pid, 0)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
