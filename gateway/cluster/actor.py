"""What runs in each process that Ray starts for a fleet.

It loads what a gateway computes with, waits for a part of the fleet's gateway that nobody has, claims it, and serves it
until it is told to stop or its gateway ends by itself.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from contract.errors import FuguError
from gateway.cluster.claims import Claim, Vacancies
from gateway.location import Server
from gateway.service import Gateway, GatewaySettings, Role
from gateway.service.process import prepare, serve
from gateway.service.service import STUCK_SECONDS
from gateway.service.shard_stores import channel_of
from host.logs import LogSettings, log_to_stderr
from host.wake import Wake

__all__ = ["FLEET", "GatewayActor", "Given", "State", "all_parts"]

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_SHARD = "shard-"
FLEET = "fleet"
"""The part that a fleet has once."""


def all_parts(settings: GatewaySettings) -> list[str]:
    """The names of the parts that a fleet's gateway has."""
    return [FLEET, *(f"{_SHARD}{index}" for index in range(settings.shards))]


class Given(NamedTuple):
    """What an actor is made with.

    Attributes:
        settings: of the whole fleet, whose store is on a server.
        folder: where paths begin that are not absolute; on every node.
    """

    settings: GatewaySettings
    folder: Path
    logs: LogSettings


class State(NamedTuple):
    """How an actor is.

    Attributes:
        process: its number; another one after it was started again.
        part: what it has; empty while it has nothing.
        started: whether its gateway serves, or without a part, whether it waits for one.
        problem: why it does not, in a line.
    """

    process: int
    part: str
    started: bool
    problem: str


class GatewayActor:
    """Ray makes it in a process of its own, and again, with the same arguments, where that process has ended.

    So the process ends when its gateway does. An error in this constructor would end the actor for good, and so would
    Ray's own way to leave: the gateway runs in a thread, and its process ends at once.
    """

    def __init__(self, given: Given, own: str = "") -> None:
        """Begin.

        Args:
            own: the part that it claims at once, if nobody has it; else it waits until it is sure that one is vacant.
        """
        self._given = given
        self._own = own
        self._part = ""
        self._started = self._stopping = False
        self._alive = 0.0
        self._problem = ""
        self._wanted = Wake()
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)
        self._thread.start()

    def state(self) -> State:
        """How it is now."""
        return State(os.getpid(), self._part, self._started, self._problem)

    def stop(self) -> None:
        """Store and acknowledge what has arrived; the actor stays, and does nothing any more."""
        self._stopping = True
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            log_to_stderr(self._given.logs.log_format, verbose=self._given.logs.verbose)
            os.chdir(self._given.folder)
            prepare()
            if (claim := self._claim()) is not None:
                with closing(claim):
                    self._serve(claim.part)
        except Exception as error:
            self._problem = str(error) if isinstance(error, FuguError | OSError) else type(error).__name__
            _log.critical("the gateway has ended: %s", self._problem)
            self._wanted.wait(_PAUSE_SECONDS)
        if not self._stopping:
            os._exit(1)

    def _claim(self) -> Claim | None:
        """Wait for a part and claim it; none if that is not wanted any more."""
        store = channel_of(self._given.settings.store)
        assert isinstance(store, Server)
        with closing(Vacancies(store, all_parts(self._given.settings))) as vacancies:
            vacant = sorted({self._own} & vacancies.unclaimed())
            while (claim := vacancies.claim(vacant)) is None:
                if not self._started:
                    _log.info("it waits for a part")
                self._started = True
                if self._wanted.wait(_LOOK_SECONDS):
                    return None
                vacant = vacancies.look(time.monotonic())
        return claim

    def _serve(self, part: str) -> None:
        self._started, self._part = False, part
        _log.info("it has claimed %s", part)
        settings = self._given.settings
        role = Role.parse(f"{part.removeprefix(_SHARD)}/{settings.shards}")
        metrics = settings.metrics if role.shard is None else None
        gateway = Gateway(replace(settings, metrics=metrics, **role._asdict()))
        serve(gateway, self._wanted, self._serves, lambda: self._works(gateway))

    def _serves(self) -> None:
        self._started, self._alive = True, time.monotonic()
        _log.info("%s has started", self._part)

    def _works(self, gateway: Gateway) -> bool:
        """Whether the gateway has done something of late; else its process ends, because it cannot be stopped."""
        now = time.monotonic()
        if gateway.is_alive or not self._started:
            self._alive = now
        elif now - self._alive > STUCK_SECONDS:
            _log.critical("the gateway has done nothing for %g s: its process ends", STUCK_SECONDS)
            os._exit(1)
        return True
