"""Lives of a device that end by a kill: forks of a small process.

A fork of a process that has imported all tests costs ten times as much.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from edge_agent.outbox import Outbox

__all__ = ["READS", "lives"]

_ROOT = Path(__file__).parents[2]
READS = re.compile(r"SELECT|BEGIN|ROLLBACK|PRAGMA (?!journal_mode|(application_id|user_version)\s*=)")
"""Statements that only read: a death before one leaves what the one before it has left."""


@contextmanager
def lives(live: Callable[..., None]) -> Iterator[Callable[..., bool]]:
    """A function of a module as a process of its own each time: True if it came to its end, False if it was killed."""
    program = (
        f"from tests.support.lives import _bear; from {live.__module__} import {live.__name__} as live; _bear(live)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, cwd=_ROOT) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None

        def lived(*arguments: object) -> bool:
            pickle.dump(arguments, nursery.stdin)
            nursery.stdin.flush()
            status = int(nursery.stdout.readline())
            if os.WIFSIGNALED(status):
                assert os.WTERMSIG(status) == signal.SIGKILL
                return False
            assert os.WEXITSTATUS(status) == 0, "the device failed by itself"
            return True

        yield lived


def _bear(live: Callable[..., None]) -> None:
    with TemporaryDirectory() as folder:  # what a process finds out once about its files is found out before all lives
        Outbox(Path(folder) / "outbox.sqlite", "home", "watch").close()
    while True:
        try:
            document = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        child = os.fork()
        if child == 0:
            try:
                live(*document)
            finally:
                os._exit(1)
        print(os.waitpid(child, 0)[1], flush=True)
