"""What runs in each process that serves a part of a fleet's gateway: it claims the part, and serves it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from fugu.contract.errors import cause
from fugu.host.clock import Wake
from fugu.host.logs import LogSettings, log_to_stderr
from gateway.cluster.claims import Claim
from gateway.location import Server
from gateway.service.ownership import Role
from gateway.service.process import serve
from gateway.service.service import STUCK_SECONDS, Gateway
from gateway.service.settings import GatewaySettings
from gateway.service.shard_channel import ShardChannelError, channel_of

__all__ = ["FLEET", "Given", "all_parts", "serve_part"]

_log = logging.getLogger(__name__)
_SHARD = "shard-"
FLEET = "fleet"
"""The part that a fleet has once."""


class Given(NamedTuple):
    """What all processes of a fleet's gateway in a cluster are started with.

    Attributes:
        settings: of the whole fleet, whose store is on a server.
        folder: where paths begin that are not absolute; on every node.
    """

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
    """Claim a part and serve it until SIGTERM, or until its gateway ends, or the host is gone; then end the process.

    Args:
        host: is sent an empty text when the gateway serves, or why it cannot.
    """
    log_to_stderr(given.logs.log_format, verbose=given.logs.verbose)
    wanted = Wake()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: wanted.set())
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
        host.send(problem)
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
        host.send("")

    return serve(gateway, wanted, started, _turn(gateway, host))


def _turn(gateway: Gateway, host: Connection) -> Callable[[], bool]:
    """Whether to go on; a gateway that has done nothing of late cannot be stopped: its process ends at once."""
    alive = time.monotonic()

    def turn() -> bool:
        nonlocal alive
        now = time.monotonic()
        if gateway.is_alive:
            alive = now
        elif now - alive > STUCK_SECONDS:
            _log.critical("the gateway has done nothing for %g s: its process ends", STUCK_SECONDS)
            os._exit(1)
        if host.poll():  # nothing is ever sent here: it has ended
            _log.critical("the process that has started this one is gone: this one ends")
            return False
        return True

    return turn
