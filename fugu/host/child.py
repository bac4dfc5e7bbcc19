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


def answered(work: Callable[[], Answer], context_words: str = "") -> Answer:
    """Return what some work returns, or why it was refused; `context_words` stands behind what nobody thought of."""
    try:
        return work()
    except FuguError as error:
        return {"refused": error.reason, "detail": str(error)}
    except Exception as error:  # its text may hold anything
        return {"refused": Reason.UNEXPECTED, "detail": f"{cause(error)}{context_words}"}


def forked(work: Callable[[], Answer], task: str, context_words: str = "") -> Callable[[], Answer]:
    """Begin some work in a forked child that ends with it; call it before any thread is started.

    The returned function waits for the answer. `task`, a noun, is for the words of a refusal, `context_words` as of
    `answered`.
    """
    reader, writer = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        end_with_parent(parent)
        os.close(reader)
        _answer(work, context_words, writer)
    os.close(writer)

    def answer() -> Answer:
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        no_answer: Answer = {"refused": Reason.CONFIG, "detail": f"{task} died"}
        return json.loads(text) if text else no_answer

    return answer


def _answer(work: Callable[[], Answer], context_words: str, writer: int) -> NoReturn:
    """Work and write the answer in the child, and never return into the parent's code."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        answer = answered(work, context_words)
        with os.fdopen(writer, "w") as pipe:
            json.dump(answer, pipe)
    finally:
        os._exit(0)


class Child:
    """A module that answers questions, each in so many seconds; `task` is for the words of a refusal.

    `queue` runs in the loop of whoever asks what a thread leaves for it.
    """

    def __init__(self, module: str, task: str, seconds: float, queue: Callable[[Callable[[], None]], None]) -> None:
        self._module, self._what, self._seconds, self._later = module, task, seconds, queue
        self._lock = threading.Lock()
        self._running: set[int] = set()

    def ask(self, arguments: Sequence[str], question: bytes, on_answer: Callable[[Answer], None]) -> None:
        """Ask in a thread, by arguments and standard input; `on_answer` gets the answer in the loop."""
        thread_name = self._module.rpartition(".")[2]
        threading.Thread(target=self._ask, args=(arguments, question, on_answer), name=thread_name, daemon=True).start()

    def close(self) -> None:
        """End what is under way."""
        with self._lock:
            for process_id in self._running:
                os.kill(process_id, signal.SIGKILL)

    def _ask(self, arguments: Sequence[str], question: bytes, on_answer: Callable[[Answer], None]) -> None:
        answer = {"refused": Reason.JUDGE, "detail": f"{self._what} died"}
        try:
            output = self._written([sys.executable, "-P", "-m", self._module, *arguments], question)
            answer = json.loads(output) if output else answer
        except TimeoutError:
            answer["detail"] = f"{self._what} took too long"
        except (OSError, ValueError) as error:
            answer["detail"] = f"{self._what} cannot run: {cause(error)}"
        self._later(lambda: on_answer(answer))

    def _written(self, command: list[str], question: bytes) -> bytes:
        """Output of a process, which is killed when its time is over; `subprocess` takes twice as long. OSError."""
        parent_end, child_end = socket.socketpair()
        with parent_end:
            with child_end, self._lock:
                file_actions = [(os.POSIX_SPAWN_DUP2, child_end.fileno(), number) for number in (0, 1)]
                null_action = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
                process_id = os.posix_spawn(command[0], command, os.environ, file_actions=[*file_actions, null_action])
                self._running.add(process_id)
            parent_end.settimeout(self._seconds)
            try:
                parent_end.sendall(question)
                parent_end.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: parent_end.recv(1 << 16), b""))
            except ConnectionError:  # it has ended without having read everything
                return b""
            finally:
                with self._lock:  # so that nobody kills another process of its number
                    self._running.discard(process_id)
                    os.kill(process_id, signal.SIGKILL)
                os.waitpid(process_id, 0)
