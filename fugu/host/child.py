"""Work in a process of its own, whose libraries and faults do not burden the process that asks. Answers are JSON.

If the work fails, the answer has the reason, as in statuses, in `refused`, and a sentence in `detail`.
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

__all__ = ["Answer", "Child", "OnAnswer", "Queue", "answer_of", "run_forked"]

Answer = dict[str, Any]
OnAnswer = Callable[[Answer], None]
Work = Callable[[], Answer]
Queue = Callable[[Callable[[], None]], None]
"""Takes work from any thread, and lets the loop of the process run it."""


def answer_of(work: Work, context_words: str = "") -> Answer:
    """Return what some work returns, or why it failed; `context_words` are added to an unexpected error."""
    try:
        return work()
    except FuguError as error:
        return {"refused": error.reason, "detail": str(error)}
    except Exception as error:  # its text may hold anything
        return {"refused": Reason.UNEXPECTED, "detail": f"{cause(error)}{context_words}"}


def run_forked(work: Work, context_words: str, error_type: type[FuguError]) -> Callable[[], Answer]:
    """Begin the check of a configuration in a forked child that ends with it; call this before any thread is started.

    Return a function that waits for the answer, and raises `error_type` if the work has failed. `context_words` are as
    of `answer_of`.
    """
    reader, writer = os.pipe()
    parent_id, child_id = os.getpid(), os.fork()
    if child_id == 0:
        end_with_parent(parent_id)
        os.close(reader)
        _answer_in_child(work, context_words, writer)
    os.close(writer)

    def wait_for_answer() -> Answer:
        with os.fdopen(reader) as pipe:
            output = pipe.read()
        os.waitpid(child_id, 0)
        death_answer = {"refused": Reason.CONFIG, "detail": "the check of the configuration died"}
        answer: Answer = json.loads(output) if output else death_answer
        if "refused" in answer:
            raise error_type(answer["detail"])
        return answer

    return wait_for_answer


def _answer_in_child(work: Work, context_words: str, writer: int) -> NoReturn:
    """Do the work in the child and write the answer. The child ends here, and never runs the parent's code."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        answer = answer_of(work, context_words)
        with os.fdopen(writer, "w") as pipe:
            json.dump(answer, pipe)
    finally:
        os._exit(0)


class Child:
    """Runs a module as a process for each question, for at most `seconds`. `task` is a noun for error messages."""

    def __init__(self, module: str, task: str, seconds: float, queue: Queue) -> None:
        self._module, self._task, self._seconds, self._queue = module, task, seconds, queue
        self._lock = threading.Lock()
        self._running: set[int] = set()

    def ask(self, arguments: Sequence[str], question: bytes, on_answer: OnAnswer) -> None:
        """Ask in a thread, by arguments and standard input; `on_answer` is called with the answer in the loop."""

        def ask() -> None:
            answer = {"refused": Reason.JUDGE, "detail": f"{self._task} died"}
            try:
                output = self._output_of([sys.executable, "-P", "-m", self._module, *arguments], question)
                answer = json.loads(output) if output else answer
            except TimeoutError:
                answer["detail"] = f"{self._task} took too long"
            except (OSError, ValueError) as error:
                answer["detail"] = f"{self._task} cannot run: {cause(error)}"
            self._queue(lambda: on_answer(answer))

        threading.Thread(target=ask, name=self._module.rpartition(".")[2], daemon=True).start()

    def close(self) -> None:
        """Kill the processes that run."""
        with self._lock:
            for process_id in self._running:
                os.kill(process_id, signal.SIGKILL)

    def _output_of(self, command: list[str], question: bytes) -> bytes:
        """Run a process on the question, and return its output; it is killed when its time is over. Raises OSError.

        To start a process by `subprocess` takes twice as long.
        """
        parent_end, child_end = socket.socketpair()
        with parent_end:
            with child_end, self._lock:
                file_actions = [(os.POSIX_SPAWN_DUP2, child_end.fileno(), descriptor) for descriptor in (0, 1)]
                null_action = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
                process_id = os.posix_spawn(command[0], command, os.environ, file_actions=[*file_actions, null_action])
                self._running.add(process_id)
            parent_end.settimeout(self._seconds)
            try:
                parent_end.sendall(question)
                parent_end.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: parent_end.recv(1 << 16), b""))
            except ConnectionError:  # the process has ended without reading the whole question
                return b""
            finally:
                with self._lock:  # so that `close` never kills another process with this number
                    self._running.discard(process_id)
                    os.kill(process_id, signal.SIGKILL)
                os.waitpid(process_id, 0)
