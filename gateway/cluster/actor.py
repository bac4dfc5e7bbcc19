"""The actor that Ray runs on each node for a fleet: it looks for parts of the fleet's gateway that nobody has.

It serves each in a process forked from one that has loaded all that a gateway needs; never from its own, with Ray's
threads.

A claim is a lease in the shards' channel, by a session that says something to the server twice a second. When a process
is killed the server closes its session at once; when it is frozen or cut off, its session is silent. So all others see
both long before anything that asks machines how they are.

A claim only says who has a part at present. The store keeps others from writing: its newest holder has it. A claim on
what a living process has, by mistake, costs that process its part and the devices a few seconds.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from fugu.contract.errors import cause
from fugu.host.database import DatabaseError, FileLostError
from fugu.host.process import LogSettings, Wake, log_to_stderr
from gateway.location import Server
from gateway.loop import STUCK_SECONDS, Gateway
from gateway.process import serve
from gateway.settings import GatewaySettings
from gateway.shard_watch import KIND, ShardChannelError, channel_of
from gateway.shards import Role
from gateway.store.engine import Lease
from gateway.store.postgresql import PostgresDatabase

__all__ = ["Given", "HostActor", "State", "all_parts", "served"]


_SAY_SECONDS = 0.5
_SILENT_SECONDS = 5.0
_SURE_SECONDS = 2.0
_ORDER_SECONDS = 10.0
_AGAIN_SECONDS = 7.0
"""More than what a gateway waits at most before it tries again to reach a server that was away."""


class _Vacancies:
    """Looks for parts that nobody has; one thread uses it.

    A part is vacant if nobody has a claim on it, or who has one says nothing, at every look for two seconds. After the
    server was away all sessions are gone, also of those that live: then nothing is vacant for a while. Raises FuguError
    if the channel cannot be opened.
    """

    def __init__(self, channel: Server, parts: Sequence[str]) -> None:
        self._parts = parts
        self._db = PostgresDatabase(channel, KIND, create=True)
        self._since: dict[str, float] = {}
        self._not_before = float("-inf")

    def close(self) -> None:
        """Look no more."""
        self._db.close()

    def look(self, now: float, more: float = 0.0) -> list[str]:
        """Look once; the parts vacant `more` seconds beyond the usual. `now`, by a steady clock, is from before."""
        try:
            silence = self._db.silence([_lease_of(part).name for part in self._parts])
        except DatabaseError:
            self._since, self._not_before = {}, now + _AGAIN_SECONDS
            return []
        quiet = [part for part in self._parts if silence.get(_lease_of(part).name, _SILENT_SECONDS) >= _SILENT_SECONDS]
        self._since = {part: self._since.get(part, now) for part in quiet}
        return [part for part in quiet if now - self._since[part] >= _SURE_SECONDS + more and now >= self._not_before]


class Claim:
    """That this process has a part, until it ends. Raises ShardChannelError: another has it, or no server."""

    def __init__(self, channel: Server, part: str) -> None:
        self.part = part
        self._db = PostgresDatabase(channel, KIND, create=True, lease=_lease_of(part))
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._say, name="claim", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give it back."""
        self._ending.set()
        self._thread.join()
        self._db.close()

    def _say(self) -> None:
        while not self._ending.wait(_SAY_SECONDS):
            try:
                self._db.check()
            except FileLostError:
                _log.warning("another process has claimed %s", self.part)
                return
            except DatabaseError:
                continue  # it says so again when there is a connection


def _lease_of(part: str) -> Lease:
    return Lease(f"part {part}", silent=_SILENT_SECONDS)


_SHARD = "shard-"
_FLEET = "fleet"
"""The part that a fleet has once."""


class Given(NamedTuple):
    """Common arguments of all processes of a gateway in a cluster; paths are relative to `folder` on every node."""

    settings: GatewaySettings
    folder: Path
    logs: LogSettings

    @property
    def channel(self) -> Server:
        """Where parts are claimed."""
        found = channel_of(self.settings.store)
        assert isinstance(found, Server)
        return found


def all_parts(settings: GatewaySettings) -> list[str]:
    """The names of the parts that a fleet's gateway has."""
    return [_FLEET, *(f"{_SHARD}{index}" for index in range(settings.shards))]


def _serve_part(given: Given, part: str, host: Connection) -> None:
    """Claim a part and serve it until SIGTERM, or its gateway ends, or the host is gone; then end the process.

    `host` is sent an empty text when the gateway serves, or why it cannot.
    """
    log_to_stderr(given.logs.log_format, verbose=given.logs.verbose)
    wanted = Wake()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: wanted.set())
    threading.Thread(target=_end_with, args=(host, wanted), name="host", daemon=True).start()
    try:
        claim = Claim(given.channel, part)
    except ShardChannelError:
        return  # another process was faster
    try:
        _log.info("%s is claimed", part)
        os.chdir(given.folder)
        with closing(claim):
            code = _serve(given.settings, part, host, wanted)
    except Exception as error:
        problem = cause(error)
        _log.critical("%s has ended: %s", part, problem)
        _say(host, problem)
        code = 1
    if code:
        sys.stderr.flush()
        os._exit(code)  # whatever its threads do


def _serve(settings: GatewaySettings, part: str, host: Connection, wanted: Wake) -> int:
    role = Role.parse(f"{part.removeprefix(_SHARD)}/{settings.shards}")
    metrics = settings.metrics if role.shard is None else None
    gateway = Gateway(replace(settings, metrics=metrics, **role._asdict()))

    def started() -> None:
        _log.info("%s has started", part)
        _say(host, "")

    return serve(gateway, wanted, started, _turn(gateway))


def _say(host: Connection, text: str) -> None:
    with suppress(OSError):  # it is gone: who waits for that ends this process
        host.send(text)


def _end_with(host: Connection, wanted: Wake) -> None:
    """End this process when its host has: in order, or after a while whatever it does, a start that hangs, too."""
    with suppress(OSError):
        host.poll(None)  # nothing is ever sent here
    _log.critical("the process that has started this one is gone: this one ends")
    wanted.set()
    time.sleep(_ORDER_SECONDS)
    os._exit(1)


def _turn(gateway: Gateway) -> Callable[[], None]:
    """A look at a gateway: one that has done nothing of late cannot be stopped: its process ends at once."""
    alive = time.monotonic()

    def turn() -> None:
        nonlocal alive
        now = time.monotonic()
        if gateway.is_alive:
            alive = now
        elif now - alive > STUCK_SECONDS:
            _log.critical("the gateway has done nothing for %g s: its process ends", STUCK_SECONDS)
            os._exit(1)

    return turn


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
        self._end([one for one in self._running if one.part == _FLEET])

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
            with closing(_Vacancies(self._given.channel, all_parts(self._given.settings))) as vacancies:
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

    def _take(self, vacancies: _Vacancies) -> None:
        left = self._share - len({one.part for one in self._running})
        vacant = vacancies.look(time.monotonic(), 0.0 if left > 0 else _MORE_SECONDS)
        starting = {one.part for one in self._running if not one.started}
        vacant = [part for part in vacant if part not in starting] if self._begun else []
        first = os.getpid() % max(len(vacant), 1)  # so that those who look at the same time want different ones
        context = multiprocessing.get_context("forkserver")
        for part in [*vacant[first:], *vacant[:first]][: max((left + 1) // 2, 1)]:
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve_part, args=(self._given, part, theirs), name=part)
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
