"""What runs in each process that Ray starts for a fleet: one gateway, until it is told to stop or ends by itself."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

from contract.errors import FuguError
from gateway.service import Gateway, GatewaySettings
from gateway.service.process import serve
from gateway.service.service import STUCK_SECONDS
from host.logs import LogSettings, log_to_stderr
from host.wake import Wake

__all__ = ["GatewayActor", "Given", "State"]

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 2.0


class Given(NamedTuple):
    """What an actor is made with.

    Attributes:
        folder: where paths begin that are not absolute; on every node.
    """

    settings: GatewaySettings
    folder: Path
    logs: LogSettings


class State(NamedTuple):
    """How an actor is.

    Attributes:
        process: its number; another one after it was started again.
        started: whether its gateway serves.
        problem: why it does not, in a line.
    """

    process: int
    started: bool
    problem: str


class GatewayActor:
    """Ray makes it in a process of its own, and again, with the same arguments, where that process has ended.

    So the process ends when its gateway does. An error in this constructor would end the actor for good, and so would
    Ray's own way to leave: the gateway runs in a thread, and its process ends at once.
    """

    def __init__(self, given: Given) -> None:
        self._given = given
        self._started = self._stopping = False
        self._alive = 0.0
        self._problem = ""
        self._wanted = Wake()
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)
        self._thread.start()

    def state(self) -> State:
        """How it is now."""
        return State(os.getpid(), self._started, self._problem)

    def stop(self) -> None:
        """Store and acknowledge what has arrived; the actor stays, and does nothing any more."""
        self._stopping = True
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            log_to_stderr(self._given.logs.log_format, verbose=self._given.logs.verbose)
            os.chdir(self._given.folder)
            gateway = Gateway(self._given.settings)
            serve(gateway, self._wanted, self._serves, lambda: self._works(gateway))
        except Exception as error:
            self._problem = str(error) if isinstance(error, FuguError | OSError) else type(error).__name__
            _log.critical("the gateway has ended: %s", self._problem)
            self._wanted.wait(_PAUSE_SECONDS)
        if not self._stopping:
            os._exit(1)

    def _serves(self) -> None:
        self._started, self._alive = True, time.monotonic()
        _log.info("it has started")

    def _works(self, gateway: Gateway) -> bool:
        """Whether the gateway has done something of late; else its process ends, because it cannot be stopped."""
        now = time.monotonic()
        if gateway.is_alive or not self._started:
            self._alive = now
        elif now - self._alive > STUCK_SECONDS:
            _log.critical("the gateway has done nothing for %g s: its process ends", STUCK_SECONDS)
            os._exit(1)
        return True
