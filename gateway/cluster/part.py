"""A process that serves a part of a fleet's gateway: it claims a part that nobody has, and serves it.

A claim is a lease in the shards' channel, by a session that says something to the server twice a second. When a process
is killed the server closes its session at once; when it is frozen or cut off, its session is silent. So all others see
both long before anything that asks machines how they are.

A claim only says who has a part at present. The store keeps others from writing: its newest holder has it. A claim on
what a living process has, by mistake, costs that process its part and the devices a few seconds.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from fugu.contract.errors import cause
from fugu.host.clock import Wake
from fugu.host.database import DatabaseError
from fugu.host.files import FileLostError
from fugu.host.process import LogSettings, log_to_stderr
from gateway.location import Server
from gateway.loop import STUCK_SECONDS, Gateway
from gateway.process import serve
from gateway.settings import GatewaySettings
from gateway.shard_watch import KIND, ShardChannelError, channel_of
from gateway.shards import Role
from gateway.store.engine import Lease
from gateway.store.postgresql import PostgresDatabase

__all__ = ["FLEET", "Given", "Vacancies", "all_parts", "serve_part"]


_log = logging.getLogger(__name__)
_SAY_SECONDS = 0.5
_SILENT_SECONDS = 5.0
_SURE_SECONDS = 2.0
_ORDER_SECONDS = 10.0
_AGAIN_SECONDS = 7.0
"""More than what a gateway waits at most before it tries again to reach a server that was away."""


class Vacancies:
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
FLEET = "fleet"
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
    return [FLEET, *(f"{_SHARD}{index}" for index in range(settings.shards))]


def serve_part(given: Given, part: str, host: Connection) -> None:
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
