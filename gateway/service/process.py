"""The gateway as a process: signals, the service manager, the exit code."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path

from contract.errors import FuguError
from gateway.service.service import IDLE_SECONDS, STUCK_SECONDS, Gateway
from gateway.service.settings import GatewaySettings
from gateway.service.shard_files import stores
from gateway.service.shards import Shards
from gateway.service.store import Location
from host.logs import LogSettings, log_to_stderr
from host.systemd import Notifier
from host.wake import Wake

__all__ = ["run", "start_shards"]

_log = logging.getLogger(__name__)
_SWITCH_SECONDS = 1e-4
_START_BYTES_PER_SECOND = 20_000_000


def run(settings: GatewaySettings, started: Callable[[], None] = lambda: None) -> int:
    """Serve until SIGTERM or SIGINT, then store what has arrived and leave in order.

    Args:
        started: called when the store is checked and the gateway serves.

    Returns:
        The process's exit code: 0, or 1 if the worker has ended by itself.

    Raises:
        FuguError: one line that says what keeps the gateway from starting.
    """
    gateway = Gateway(settings, start_shards(settings))
    wanted = Wake()
    # The network thread gives the interpreter lock away at every read; with the default of 5 ms a busy worker keeps it
    # for that long each time, and frames come in at two thirds of the rate.
    sys.setswitchinterval(_SWITCH_SECONDS)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: wanted.set())
    notifier = Notifier.of_process()
    notifier.starting(_start_seconds([settings.store, *stores(settings.store).values()]))
    gateway.start()
    _log.info("gateway of fleet %s has started", settings.fleet)
    notifier.ready()
    started()
    while not wanted.wait(IDLE_SECONDS) and not gateway.failed.is_set():
        if gateway.is_alive:
            notifier.alive(time.monotonic())
    notifier.stopping()
    gateway.stop()
    _log.info("gateway has stopped: %s", " ".join(f"{name}={n}" for name, n in sorted(gateway.counters.items())))
    return 1 if gateway.failed.is_set() else 0


def start_shards(settings: GatewaySettings) -> Shards | None:
    """The shards' processes of a gateway that has some; they are started with it."""
    return Shards(settings, _serve_shard) if settings.shards > 1 and settings.shard is None else None


def _serve_shard(settings: GatewaySettings, parent: Connection, logs: LogSettings) -> None:
    """Serve a shard in a process of its own until SIGTERM, or until its parent is gone."""
    log_to_stderr(logs.log_format, verbose=logs.verbose)
    sys.setswitchinterval(_SWITCH_SECONDS)
    wanted = Wake()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal the parent gets it, too
    signal.signal(signal.SIGTERM, lambda _number, _frame: wanted.set())
    try:
        gateway = Gateway(settings)
        gateway.start()
    except FuguError as error:
        parent.send(str(error))
        sys.exit(1)
    parent.send("")
    while not wanted.wait(IDLE_SECONDS) and not gateway.failed.is_set():
        with contextlib.suppress(OSError):
            if parent.poll():  # nothing is ever sent here: it has ended
                _log.critical("shard %s ends: its parent is gone", settings.shard)
                break
    gateway.stop()
    sys.exit(1 if gateway.failed.is_set() else 0)


def _start_seconds(stores: Iterable[Location]) -> float:
    """How long it may take at most to read all of the stores that are files."""
    size = sum(store.stat().st_size for store in stores if isinstance(store, Path) and store.exists())
    return STUCK_SECONDS + size / _START_BYTES_PER_SECOND
