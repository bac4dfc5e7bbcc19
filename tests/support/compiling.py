"""Workers with no compiled kernels wait for one another: each kernel is compiled by the first of them that needs it."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["go_alone", "take_turns"]

_PATIENCE = 60.0
"""Seconds after which a kernel is compiled though another process seems to do so: that one may be stopped."""
_before: list[Any] = []


def take_turns() -> None:
    """From now on a kernel is compiled while no other process compiles it, and taken from the disk if one has."""
    if "numba" not in sys.modules or _before:
        return
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    alone = Dispatcher.compile
    _before.append(alone)

    def compile_in_turn(self: Any, types: Any) -> Any:
        with global_compiler_lock, _locked(self._cache.cache_path):  # never a file's lock before that of all threads
            return alone(self, types)

    Dispatcher.compile = compile_in_turn


def go_alone() -> None:
    """From now on this process waits for no other, nor for itself, if a kernel is compiled while one is stored."""
    from numba.core.dispatcher import Dispatcher

    while _before:
        Dispatcher.compile = _before.pop()


@contextmanager
def _locked(folder: str | None) -> Iterator[None]:
    """Hold the lock of a kernel's folder; of one that is kept nowhere there is none."""
    if folder is None or not Path(folder).is_dir():
        yield
        return
    held, end = os.open(folder, os.O_RDONLY), time.monotonic() + _PATIENCE
    try:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    break
                time.sleep(0.05)
        yield
    finally:
        os.close(held)
