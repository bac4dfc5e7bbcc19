"""Questions to a process of its own, whose libraries and faults cost the process that asks nothing; answers are JSON.

A question that was not answered has an answer, too: `refused` is the reason, as in statuses, and `detail` it in words.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fugu.contract.errors import FuguError, Reason, cause

if TYPE_CHECKING:
    import subprocess

__all__ = ["Answer", "Child", "answered"]


Answer = dict[str, Any]


def answered(work: Callable[[], Answer], during: str = "") -> Answer:
    """Return what some work returns, or why it was refused; `during` stands behind what nobody thought of."""
    try:
        return work()
    except FuguError as error:
        return {"refused": error.reason, "detail": str(error)}
    except Exception as error:  # its text may hold anything
        return {"refused": Reason.UNEXPECTED, "detail": f"{cause(error)}{during}"}


class Child:
    """A module that answers one question at a time, in so many seconds; `what` it does is for the words of a refusal.

    `later` runs in the loop of whoever asks what a thread leaves for it.
    """

    def __init__(self, module: str, what: str, seconds: float, later: Callable[[Callable[[], None]], None]) -> None:
        self._module, self._what, self._seconds, self._later = module, what, seconds, later
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, arguments: Sequence[str], question: bytes, take: Callable[[Answer], None]) -> None:
        """Ask in a thread, by arguments and standard input; `take` gets the answer in the loop."""
        name = self._module.rpartition(".")[2]
        threading.Thread(target=self._ask, args=(arguments, question, take), name=name, daemon=True).start()

    def close(self) -> None:
        """End what is under way."""
        if self._process is not None:
            self._process.kill()

    def _ask(self, arguments: Sequence[str], question: bytes, take: Callable[[Answer], None]) -> None:
        import subprocess  # most agents never need it

        answer = {"refused": Reason.JUDGE, "detail": f"{self._what} died"}
        command = [sys.executable, "-P", "-m", self._module, *arguments]
        try:
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as process:
                self._process = process
                try:
                    out, _ = process.communicate(question, timeout=self._seconds)
                    answer = json.loads(out) if out else answer
                except subprocess.TimeoutExpired:
                    process.kill()
                    answer["detail"] = f"{self._what} took too long"
        except (OSError, ValueError) as error:
            answer["detail"] = f"{self._what} cannot run: {cause(error)}"
        self._process = None
        self._later(lambda: take(answer))
