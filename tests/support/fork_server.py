"""Starts programs of the product as forks of one process that has imported them: imports take longer than most runs.

`python -m tests.support.fork_server DESCRIPTOR` answers one request on a connection to that socket: which program,
where, with what environment, and its three standard streams. A fork is a process as any other, with a number and files
of its own; it may be killed, and ends as any process of Python ends. It is a child of this one, which tells who asked
how it ended, and ends it when they are gone.

What an agent starts to judge a document has little memory, so that it cannot be a fork of this process. It is one of a
smaller process of this kind, `fork_server DESCRIPTOR judges`, which this one starts for the first agent.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from tests.support.compiling import take_turns

__all__ = ["CLIENT", "MOST", "start"]

MOST = 150_000
"""Bytes of a request: its environment is most of it."""
_PACKAGES = ("fugu.contract", "fugu.host", "fugu.mqtt", "edge_agent", "gateway", "fugu_cli.commands")
_LIBRARIES = ("psycopg", "scipy.optimize", "scipy.stats", "starlette.applications", "uvicorn")
_LATE = ("gateway.cluster", "gateway.history", "edge_agent.judge")
"""Modules that run as a program, or load libraries that start threads: forks and threads do not go together."""
_OF_JUDGES = ("edge_agent.config_schema", "edge_agent.enrolled", "fugu.host.process", "fugu.host.toml_file")
CLIENT = Path(__file__).with_name("fork_client.py")
_Popen = subprocess.Popen  # which tests change
_INTERPRETER = """#!/bin/sh
[ "$1 $2 $3" = "-P -m edge_agent.judge" ] || exec {python} "$@"
shift 3
exec {client} -m edge_agent.judge "$1" "$2" "$3" {parent} "$5"
"""
"""Stands for the interpreter in an agent: the parent of a judge is the process that it is a fork of."""


def start(path: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start one that listens at a path from now on, and ends with its input."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen(100)
        number = listening.fileno()
        command = [sys.executable, "-m", "tests.support.fork_server", str(number), *words]
        single = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        return _Popen(command, stdin=subprocess.PIPE, pass_fds=[number], env=single)


def load() -> None:
    """Import what programs import, load the kernels of a gateway, and make the commands of `fugu`."""
    for package in _PACKAGES:
        for own_module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not own_module.name.endswith(".__main__") and not own_module.name.startswith(_LATE):
                importlib.import_module(own_module.name)
    for name in _LIBRARIES:
        importlib.import_module(name)
    take_turns()
    importlib.import_module("gateway.estimates.symbols").warm()
    commands = importlib.import_module("fugu_cli.app")
    _declare(commands._root_command(commands.app))
    for words, (module, _) in commands.COMMANDS.items():
        if module and f"fugu_cli.commands.{module}".partition(":")[0] not in _LATE:
            _declare(commands.load(words))
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "something that was imported has started a thread"
    gc.collect()
    gc.freeze()


def _declare(command: Any) -> None:
    """Make what reads the words of a command, which is otherwise made when it is used."""
    for parameter in command.params:
        parameter.get_runtime_param()
    for child in getattr(command, "commands", {}).values():
        _declare(child)


class _Forks:
    """Those that are children of this process: by the descriptor of each, who waits for it."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._judges: subprocess.Popen[bytes] | None = None
        self._poll = select.poll()
        self._poll.register(listening, select.POLLIN)
        self._poll.register(0, select.POLLIN)
        self._waiting: dict[int, tuple[int, int, socket.socket]] = {}

    def serve(self) -> tuple[dict[str, Any], list[int]]:
        """Answer until the end of the input; returns in every fork, with what it is to be."""
        while True:
            for ready, _ in self._poll.poll():
                if ready == 0:
                    for _, process, _ in self._waiting.values():
                        os.kill(process, signal.SIGKILL)
                    os._exit(0)
                elif ready != self._listening.fileno():
                    self._end(ready)
                elif (asked := self._start()) is not None:
                    return asked

    def _start(self) -> tuple[dict[str, Any], list[int]] | None:
        asking, _ = self._listening.accept()
        payload, streams, _, _ = socket.recv_fds(asking, MOST, 3)
        if not payload:  # who asked has ended
            asking.close()
            return None
        request = json.loads(payload)
        if request["words"][:3] == ["-m", "fugu", "agent"] or request["words"][:2] == ["-m", "edge_agent"]:
            request["interpreter"] = self._for_agents()
        if (process := os.fork()) == 0:
            self._listening.close()
            asking.close()
            if self._judges is not None and self._judges.stdin is not None:
                self._judges.stdin.close()
            for _, _, other in self._waiting.values():
                other.close()
            return request, streams
        for stream in streams:
            os.close(stream)
        with contextlib.suppress(OSError):  # it has ended, as is seen below
            asking.send(str(process).encode())
        ended = os.pidfd_open(process)
        self._waiting[ended] = self._waiting[asking.fileno()] = ended, process, asking
        self._poll.register(ended, select.POLLIN)
        self._poll.register(asking, select.POLLIN)
        return None

    def _for_agents(self) -> str:
        """The path of what stands for the interpreter in an agent, once there is a process for its judges."""
        folder = Path(self._listening.getsockname()).parent
        if self._judges is None:
            self._judges = start(folder / "judges", "judges")
            client = shlex.join([sys.executable, "-I", "-S", str(CLIENT), str(folder / "judges")])
            text = _INTERPRETER.format(python=sys.executable, client=client, parent=self._judges.pid)
            (folder / "python").write_text(text)
            (folder / "python").chmod(0o755)
        return str(folder / "python")

    def _end(self, ready: int) -> None:
        """Either a fork has ended, or who waits for it has."""
        if ready not in self._waiting:  # both
            return
        ended, process, asking = self._waiting[ready]
        if ready != ended:
            os.kill(process, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        for end in (ended, asking.fileno()):
            self._poll.unregister(end)
            del self._waiting[end]
        with contextlib.suppress(OSError):
            asking.send(str(status).encode())
        asking.close()
        os.close(ended)


def become(request: dict[str, Any], streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    tempfile.tempdir = None
    through = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stdout.reconfigure(write_through=through)
    sys.stderr = sys.__stderr__ = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
    sys.stderr.reconfigure(line_buffering=True, write_through=through)
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable(sys.stderr)
    sys.executable = request.get("interpreter", sys.executable)
    kind, program, *words = request["words"]
    sys.argv = [program, *words]
    sys.path[0] = request["cwd"]
    if kind == "-m":
        sys.modules.pop(f"{program}.__main__", None)
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv[0] = "-c"
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
    else:
        runpy.run_path(program, run_name="__main__")


def end(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Be a program, and end as one does, but leave the memory as it is: freeing it would copy it first."""
    code: Any = 0
    try:
        become(request, streams)
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    with contextlib.suppress(ValueError):  # it was closed
        sys.stdout.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    if sys.argv[2:] == ["judges"]:
        for _name in _OF_JUDGES:
            importlib.import_module(_name)
    else:
        load()
    end(*_Forks(socket.socket(fileno=int(sys.argv[1]))).serve())
