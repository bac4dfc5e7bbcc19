"""Questions to a process of its own, whose libraries and faults cost the process that asks nothing; answers are JSON.

A question that was not answered has an answer, too: `refused` is the reason, as in statuses, and `detail` it in words.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from fugu.contract.errors import FuguError, Reason, cause
from fugu.host.process import end_with_parent

__all__ = ["Answer", "Child", "answered", "forked"]


Answer = dict[str, Any]


def answered(work: Callable[[], Answer], during: str = "") -> Answer:
    """Return what some work returns, or why it was refused; `during` stands behind what nobody thought of."""
    try:
        return work()
    except FuguError as error:
        return {"refused": error.reason, "detail": str(error)}
    except Exception as error:  # its text may hold anything
        return {"refused": Reason.UNEXPECTED, "detail": f"{cause(error)}{during}"}


def forked(work: Callable[[], Answer], what: str, during: str = "") -> Callable[[], Answer]:
    """Begin some work in a forked child that ends with it; call it before any thread is started.

    The returned function waits for the answer. `what` is done is for the words of a refusal, `during` as of `answered`.
    """
    reader, writer = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        end_with_parent(parent)
        os.close(reader)
        _answer(work, during, writer)
    os.close(writer)

    def answer() -> Answer:
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        died: Answer = {"refused": Reason.CONFIG, "detail": f"{what} died"}
        return json.loads(text) if text else died

    return answer


def _answer(work: Callable[[], Answer], during: str, writer: int) -> NoReturn:
    """Work and write the answer in the child, and never return into the parent's code."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        answer = answered(work, during)
        with os.fdopen(writer, "w") as pipe:
            json.dump(answer, pipe)
    finally:
        os._exit(0)


class Child:
    """A module that answers questions, each in so many seconds; `what` it does is for the words of a refusal.

    `later` runs in the loop of whoever asks what a thread leaves for it.
    """

    def __init__(self, module: str, what: str, seconds: float, later: Callable[[Callable[[], None]], None]) -> None:
        self._module, self._what, self._seconds, self._later = module, what, seconds, later
        self._lock = threading.Lock()
        self._running: set[int] = set()

    def ask(self, arguments: Sequence[str], question: bytes, take: Callable[[Answer], None]) -> None:
        """Ask in a thread, by arguments and standard input; `take` gets the answer in the loop."""
        name = self._module.rpartition(".")[2]
        threading.Thread(target=self._ask, args=(arguments, question, take), name=name, daemon=True).start()

    def close(self) -> None:
        """End what is under way."""
        with self._lock:
            for process in self._running:
                os.kill(process, signal.SIGKILL)

    def _ask(self, arguments: Sequence[str], question: bytes, take: Callable[[Answer], None]) -> None:
        answer = {"refused": Reason.JUDGE, "detail": f"{self._what} died"}
        try:
            written = self._written([sys.executable, "-P", "-m", self._module, *arguments], question)
            answer = json.loads(written) if written else answer
        except TimeoutError:
            answer["detail"] = f"{self._what} took too long"
        except (OSError, ValueError) as error:
            answer["detail"] = f"{self._what} cannot run: {cause(error)}"
        self._later(lambda: take(answer))

    def _written(self, command: list[str], question: bytes) -> bytes:
        """Output of a process, which is killed when its time is over; `subprocess` takes twice as long. OSError."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, self._lock:
                files = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), number) for number in (0, 1)]
                quiet = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
                process = os.posix_spawn(command[0], command, os.environ, file_actions=[*files, quiet])
                self._running.add(process)
            ours.settimeout(self._seconds)
            try:
                ours.sendall(question)
                ours.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: ours.recv(1 << 16), b""))
            except ConnectionError:  # it has ended without having read everything
                return b""
            finally:
                with self._lock:  # so that nobody kills another process of its number
                    self._running.discard(process)
                    os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
