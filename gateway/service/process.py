"""The gateway as a process: signals, the service manager, the exit code."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gateway.service.service import IDLE_SECONDS, STUCK_SECONDS, Gateway
from gateway.service.settings import GatewaySettings
from gateway.service.store import Location
from host.systemd import Notifier
from host.wake import Wake

__all__ = ["run"]

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
    gateway = Gateway(settings)
    wanted = Wake()
    # The network thread gives the interpreter lock away at every read; with the default of 5 ms a busy worker keeps it
    # for that long each time, and frames come in at two thirds of the rate.
    sys.setswitchinterval(_SWITCH_SECONDS)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: wanted.set())
    notifier = Notifier.of_process()
    notifier.starting(_start_seconds(settings.store))
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


def _start_seconds(store: Location) -> float:
    """How long it may take at most to read all of the store, if it is a file."""
    size = store.stat().st_size if isinstance(store, Path) and store.exists() else 0
    return STUCK_SECONDS + size / _START_BYTES_PER_SECOND
