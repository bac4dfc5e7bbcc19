"""The actor that Ray runs on each node for a fleet: it looks for parts of the fleet's gateway that nobody has.

It serves each in a process forked from one that has loaded all that a gateway needs; never from its own, with Ray's
threads.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from fugu.contract.errors import cause
from fugu.host.process import log_to_stderr
from gateway.cluster.part import FLEET, Given, Vacancies, all_parts, serve_part

__all__ = ["HostActor", "State", "served"]

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_MORE_SECONDS = 1.0
_STOP_SECONDS = 20.0
_LOADED = ["gateway.cluster.prepared", "ray"]  # each forked process reads the main module, which imports Ray


class State(NamedTuple):
    """How an actor is: whether it can serve, the processes of its parts by name, and in a line what is wrong."""

    ready: bool
    parts: dict[str, int]
    problem: str


def served(states: Iterable[State]) -> dict[str, int]:
    """The parts that actors serve, and their processes."""
    return {part: process for state in states for part, process in state.parts.items()}


@dataclass(slots=True)
class _Running:
    """A process that serves a part, is about to, or has lost it and will find that out."""

    part: str
    process: BaseProcess
    pipe: Connection
    started: bool = False


class HostActor:
    """Ray makes it in a process of its own, and again, with the same arguments, where that process has ended.

    An error in this constructor would end the actor for good: what works is a thread. It takes `share` parts before it
    leaves others to those who have less, for a second. It may take parts at once if `begun`, else after `begin`.
    """

    def __init__(self, given: Given, share: int, *, begun: bool) -> None:
        self._given = given
        self._share = share
        self._begun = begun
        self._ready = False
        self._problem = ""
        self._running: list[_Running] = []
        self._resting = threading.Event()
        self._thread = threading.Thread(target=self._run, name="host", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Take parts from now on: those who share them are ready."""
        self._begun = True

    def state(self) -> State:
        """How it is now."""
        serving = {one.part: one.process.pid or 0 for one in self._running if one.started}
        return State(self._ready, serving, self._problem)

    def rest(self) -> None:
        """Take no more parts, and end what the fleet has once."""
        self._resting.set()
        self._thread.join()
        self._end([one for one in self._running if one.part == FLEET])

    def stop(self) -> None:
        """Store and acknowledge what has arrived; after `rest`."""
        self._end(self._running)

    def _run(self) -> None:
        log_to_stderr(self._given.logs.log_format, verbose=self._given.logs.verbose)
        try:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(_LOADED)
            first = context.Process(target=os.getpid)
            first.start()
            first.join()  # it is forked when all has been loaded
            with closing(Vacancies(self._given.channel, all_parts(self._given.settings))) as vacancies:
                while not self._resting.wait(_LOOK_SECONDS):
                    self._see()
                    self._take(vacancies)
                    self._ready = True
        except Exception as error:
            self._problem = cause(error)
            _log.critical("it cannot serve: %s", self._problem)
            self._resting.wait(_PAUSE_SECONDS)
            if not self._resting.is_set():
                os._exit(1)  # Ray starts it again

    def _take(self, vacancies: Vacancies) -> None:
        left = self._share - len({one.part for one in self._running})
        vacant = vacancies.look(time.monotonic(), 0.0 if left > 0 else _MORE_SECONDS)
        starting = {one.part for one in self._running if not one.started}
        vacant = [part for part in vacant if part not in starting] if self._begun else []
        first = os.getpid() % max(len(vacant), 1)  # so that those who look at the same time want different ones
        context = multiprocessing.get_context("forkserver")
        for part in [*vacant[first:], *vacant[:first]][: max((left + 1) // 2, 1)]:
            ours, theirs = context.Pipe()
            process = context.Process(target=serve_part, args=(self._given, part, theirs), name=part)
            process.start()
            theirs.close()  # so that its end is seen when it is gone
            self._running.append(_Running(part, process, ours))

    def _see(self) -> None:
        """Take note of what the processes say, and of those that have ended: others may take their parts."""
        for one in self._running:
            with suppress(EOFError, OSError):
                while one.pipe.poll():
                    problem = one.pipe.recv()
                    one.started = not problem
                    self._problem = f"{one.part}: {problem}" if problem else ""
        self._running = [one for one in self._running if one.process.is_alive()]

    def _end(self, ending: list[_Running]) -> None:
        for one in ending:
            one.process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for one in ending:
            one.process.join(max(deadline - time.monotonic(), 0.0))
            if one.process.is_alive():
                _log.error("%s does not stop: it is killed", one.part)
                one.process.kill()
        self._running = [one for one in self._running if one.process.is_alive()]
