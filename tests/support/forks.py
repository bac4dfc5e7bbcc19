"""Processes of `fugu` and `fugu-agent` for tests that are not about how these start: forks of a server's process.

`Popen` is subprocess's, but for commands that a server knows; what it starts is a child of the test's process as well.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.fork_server import CLIENT, MOST

__all__ = ["REAL", "Popen", "programs", "server_process", "shell_words"]

_PROGRAMS = ("fugu", "edge_agent", "tests.support.broken_agent", "tests.support.gateway_program")
_AT_START = ("LANG", "LC_", "LD_", "MALLOC_", "NUMBA_", "OMP_", "OPENBLAS_", "PYTHON")
"""Variables that are read before any program is: who changes them has a process of its own."""
_PR_SET_CHILD_SUBREAPER = 36
_adopting = threading.Lock()
_started: list[subprocess.Popen[bytes]] = []
REAL = subprocess.Popen


@cache
def _server() -> Path:
    """The socket of a server that ends with this process."""
    folder = tempfile.mkdtemp(prefix="fugu-forks-", dir=os.environ.get("TMPDIR", "/tmp"))  # a test may change tempdir
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "socket"
    words = [sys.executable, "-m", "tests.support.fork_server", str(path)]
    single = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    started = REAL(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=single)
    _started.append(started)
    assert started.stdout is not None
    assert started.stdout.readline() == b"ready\n"
    return path


def server_process() -> int | None:
    """The process of the server, if there is one."""
    return _started[0].pid if _started else None


class Popen(REAL):  # type: ignore[type-arg]
    """As that of subprocess."""

    def _execute_child(self, *given: Any) -> None:
        args, _, preexec, _, pass_fds, cwd, env, _, _, shell, *rest = given
        pipes, (_, gid, gids, uid, umask, session, group) = rest[:6], rest[6:]
        usual = (preexec, gid, gids, uid) == (None,) * 4 and not (pass_fds or shell) and umask == group == -1
        words = [os.fsdecode(word) for word in args] if isinstance(args, list | tuple) else []
        known = words[:2] == [sys.executable, "-m"] and words[2] in _PROGRAMS
        known = known and "cluster" not in words  # Ray has threads
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in (env or os.environ).items()}
        if not (usual and known and _at_start(environment) == _at_start(os.environ)):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        path = _server()
        request = {
            "words": words[1:],
            "cwd": os.fsdecode(cwd) if cwd is not None else str(Path.cwd()),
            "env": environment,
            "session": bool(session),
            "adopted": True,
        }
        child = [pipes[0], pipes[3], pipes[5]]
        with _adopting, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.connect(str(path))
            _take_orphans(True)
            try:
                streams = [stream if stream != -1 else number for number, stream in enumerate(child)]
                socket.send_fds(asking, [json.dumps(request).encode()], streams)
                self.pid = int(asking.recv(MOST))
            finally:
                _take_orphans(False)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START)}


def _take_orphans(yes: bool) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


def shell_words() -> list[str]:
    """What to put before `-m MODULE` or `-c PROGRAM`, in place of an interpreter."""
    return [sys.executable, "-I", "-S", str(CLIENT), str(_server())]


@cache
def programs() -> Path:
    """A folder with `fugu` and `fugu-agent`, for shells to find them there."""
    folder = _server().parent
    for name, package in (("fugu", "fugu"), ("fugu-agent", "edge_agent")):
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join([*shell_words(), "-m", package])} "$@"\n')
        (folder / name).chmod(0o755)
    return folder
