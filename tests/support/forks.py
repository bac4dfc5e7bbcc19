"""Processes of `fugu` and `fugu-agent` for tests that are not about how these start: forks of a server's process.

`Popen` is subprocess's, but for commands that a server knows: these are children of the server, which tells how they
end. One server is enough for all processes that run tests, if it was started before they were forked.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

from tests.support.fork_server import CLIENT, MOST, start

__all__ = ["REAL", "Popen", "programs", "running", "server", "server_process", "shell_words"]

_PROGRAMS = ("fugu", "edge_agent", "tests.support.broken_agent")
_AT_START = ("LANG", "LC_", "LD_", "MALLOC_", "NUMBA_", "OMP_", "OPENBLAS_", "PYTHON")
"""Variables that are read before any program is: who changes them has a process of its own."""
_started: list[subprocess.Popen[bytes]] = []
_running: WeakSet[Popen] = WeakSet()
REAL = subprocess.Popen


@cache
def server() -> Path:
    """The socket of a server that ends with this process, and with those that were forked after this was called."""
    folder = tempfile.mkdtemp(prefix="fugu-forks-", dir=os.environ.get("TMPDIR", "/tmp"))  # a test may change tempdir
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "socket"
    _started.append(start(path))
    for name, package in (("fugu", "fugu"), ("fugu-agent", "edge_agent")):
        words = shlex.join([sys.executable, "-I", "-S", str(CLIENT), str(path), "-m", package])
        (path.parent / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (path.parent / name).chmod(0o755)
    return path


def server_process() -> int | None:
    """The process of the server, if there is one."""
    return _started[0].pid if _started else None


def running() -> list[int]:
    """The programs that this process has started and that may still run."""
    return [process.pid for process in list(_running) if process.poll() is None]


class Popen(REAL):
    """As that of subprocess."""

    _asking: socket.socket | None = None
    """Where the server tells how a fork has ended."""

    def _execute_child(self, *arguments: Any) -> None:
        args, _, preexec, _, pass_fds, cwd, env, _, _, shell, *rest = arguments
        pipes, (_, gid, gids, uid, umask, session, group) = rest[:6], rest[6:]
        usual = (preexec, gid, gids, uid) == (None,) * 4 and not (pass_fds or shell) and umask == group == -1
        words = [os.fsdecode(word) for word in args] if isinstance(args, list | tuple) else []
        is_ours = words[:2] == [sys.executable, "-m"] and words[2] in _PROGRAMS
        is_ours = is_ours and "cluster" not in words  # Ray has threads
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in (env or os.environ).items()}
        if not (usual and is_ours and _at_start(environment) == _at_start(os.environ)):
            super()._execute_child(*arguments)
            return
        request = {
            "words": words[1:],
            "cwd": os.fsdecode(cwd) if cwd is not None else str(Path.cwd()),
            "env": environment,
            "session": bool(session),
        }
        streams = [pipe if pipe != -1 else number for number, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asking.connect(str(server()))
        socket.send_fds(asking, [json.dumps(request).encode()], streams)
        self.pid = int(asking.recv(MOST))
        self._asking = asking
        self._child_created = True
        self._close_pipe_fds(*pipes)
        _running.add(self)

    def _internal_poll(self, *arguments: Any, **named: Any) -> int | None:
        if self._asking is None:
            super()._internal_poll(*arguments, **named)
        else:
            self._hear(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self._asking is None:
            return super()._wait(timeout)
        self._hear(timeout)
        if self.returncode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def _hear(self, timeout: float | None) -> None:
        if self.returncode is None and self._asking.fileno() < 0:  # collected with this: the server ends the process
            self.returncode = -signal.SIGKILL
            return
        poll = select.poll()
        poll.register(self._asking, select.POLLIN)
        if self.returncode is None and poll.poll(None if timeout is None else max(0.0, timeout) * 1000):
            with self._waitpid_lock:
                if self.returncode is None:  # else another thread has heard it
                    self.returncode = int(self._asking.recv(MOST))


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START)}


def shell_words() -> list[str]:
    """Words to put before `-m MODULE` or `-c PROGRAM`, in place of an interpreter."""
    return [sys.executable, "-I", "-S", str(CLIENT), str(server())]


def programs() -> Path:
    """A folder with `fugu` and `fugu-agent`, for shells to find them there."""
    return server().parent
