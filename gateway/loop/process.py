"""The gateway as a process: signals, the service manager, the exit code."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from fugu.chains.kernel import compile_beside
from fugu.contract.errors import cause
from fugu.host.process import Notifier, Wake
from gateway.config import GatewayConfig
from gateway.loop.duties import Alone, NotArrangedError
from gateway.loop.gateway import IDLE_SECONDS, STUCK_SECONDS, Gateway
from gateway.store.location import Location

__all__ = ["run", "serve"]


_log = logging.getLogger(__name__)
_SWITCH_SECONDS = 1e-4
_START_BYTES_PER_SECOND = 2_000_000


def run(settings: GatewayConfig, started: Callable[[], None] = lambda: None, duty: Alone | None = None) -> int:
    """Serve until SIGTERM or SIGINT, then store what has arrived and leave in order.

    `started` is called when the store is checked and the gateway serves; `duty` is its own where several processes
    share the devices. The exit code is 1 if the worker has ended by itself. Raises FuguError with one line that says
    what keeps the gateway from starting.
    """
    gateway = Gateway(settings, duty)
    wanted = Wake()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: wanted.set())
    notifier = Notifier.of_process()
    notifier.starting(_start_seconds(settings.store))

    def serves() -> None:
        _log.info("gateway of fleet %s has started", settings.fleet)
        started()

    code = serve(gateway, wanted, serves, notifier=notifier)
    _log.info("gateway has stopped: %s", " ".join(f"{name}={n}" for name, n in sorted(gateway.counters.items())))
    return code


def serve(
    gateway: Gateway,
    wanted: Wake,
    started: Callable[[], None],
    turn: Callable[[], None] | None = None,
    notifier: Notifier | None = None,
) -> int:
    """Start a gateway, and serve until `wanted` is set, or it has ended by itself: then the exit code is 1, else 0.

    One of several waits before until as many may share the devices. `started` is called when it serves, `turn` now and
    then; `notifier` is told how the gateway is. Raises FuguError with one line that says what keeps it from starting.
    """
    manager = notifier or Notifier()
    # The network thread gives the interpreter lock away at every read. With the default of 5 ms a busy worker keeps it
    # for that long each time, and frames come in at two thirds of the rate.
    sys.setswitchinterval(_SWITCH_SECONDS)
    compiler = _Compiler()
    is_logged = False
    while not is_logged or not wanted.wait(IDLE_SECONDS):
        try:
            gateway.start()
            break
        except NotArrangedError as error:
            if not is_logged:
                _log.warning("%s", error)
            is_logged = True
            manager.starting(STUCK_SECONDS)
        if turn is not None:
            turn()
    else:
        return 0
    manager.ready()
    started()
    while not wanted.wait(IDLE_SECONDS) and not gateway.failed.is_set():
        if turn is not None:
            turn()
        if gateway.is_alive:
            manager.alive(time.monotonic())
    manager.stopping()
    compiler.stop()
    gateway.stop()
    return 1 if gateway.failed.is_set() else 0


class _Compiler:
    """Compiles kernels in a thread of its own, while frames are taken without; says so if they were not stored."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "gateway-compiler")
        self._taken = self._done = self._compiled = 0
        compile_beside(self._take)

    def stop(self) -> None:
        """Compile no more; the process ends when the kernel that is being compiled is ready."""
        compile_beside(lambda _compile: None)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _take(self, compile_now: Callable[[], bool]) -> None:
        self._taken += 1
        with suppress(RuntimeError):  # it has been stopped
            self._thread.submit(self._compile, compile_now)

    def _compile(self, compile_now: Callable[[], bool]) -> None:
        try:
            missed = compile_now()
        except Exception as error:
            _log.error("a kernel cannot be compiled, and stays slow: %s", cause(error))
            missed = False
        self._done += 1
        if missed and not self._compiled:
            _log.info("compiling kernels, as none were stored: 10 to 20 s; frames are stored meanwhile")
        self._compiled += missed
        if self._compiled and self._done == self._taken:
            _log.info("%d kernels are compiled, and stored for the next start", self._compiled)
            self._compiled = 0


def _start_seconds(store: Location) -> float:
    if not isinstance(store, Path):
        return STUCK_SECONDS
    return STUCK_SECONDS + (store.stat().st_size if store.exists() else 0) / _START_BYTES_PER_SECOND
