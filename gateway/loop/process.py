"""The gateway as a process: signals, the service manager, the exit code."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from fugu.chains.kernel import compile_in_background
from fugu.contract.errors import cause
from fugu.host.process import Notifier, Wake, at_stop_signals
from gateway.config import GatewayConfig
from gateway.loop.duties import NotArrangedError, SoleProcess
from gateway.loop.gateway import IDLE_SECONDS, STUCK_SECONDS, Gateway
from gateway.store.location import Location

__all__ = ["run", "serve"]


_log = logging.getLogger(__name__)
_SWITCH_SECONDS = 1e-4
_START_BYTES_PER_SECOND = 2_000_000


def run(settings: GatewayConfig, on_started: Callable[[], None] = lambda: None, duty: SoleProcess | None = None) -> int:
    """Serve until SIGTERM or SIGINT, then store the frames that have arrived, disconnect, and return the exit code.

    `on_started` is called when the gateway serves. `duty` is this process's duty if several share the devices, else
    `None`. The exit code is 1 if the worker has ended by itself, else 0. Raises FuguError, one line, if the gateway
    cannot start.
    """
    gateway = Gateway(settings, duty)
    stop_event = Wake()
    at_stop_signals(stop_event.set)
    notifier = Notifier.of_process()
    notifier.starting(_start_seconds(settings.store))

    def note_started() -> None:
        _log.info("gateway of fleet %s has started", settings.fleet)
        on_started()

    code = serve(gateway, stop_event, note_started, notifier=notifier)
    _log.info("gateway has stopped: %s", " ".join(f"{name}={n}" for name, n in sorted(gateway.counters.items())))
    return code


def serve(
    gateway: Gateway,
    stop_event: Wake,
    on_started: Callable[[], None],
    on_turn: Callable[[], None] | None = None,
    notifier: Notifier | None = None,
) -> int:
    """Start a gateway, and serve until `stop_event` is set or the gateway has ended by itself. Return the exit code.

    A shard first waits until the store is arranged for its number of shards. `on_started` is called when the gateway
    serves, `on_turn` about twice a second, also while a shard waits. `notifier` tells the service manager the state.
    Raises FuguError, one line, if the gateway cannot start.
    """
    manager = notifier or Notifier()
    # The network thread gives the interpreter lock away at every read. With the default of 5 ms a busy worker keeps it
    # for that long each time, and frames come in at two thirds of the rate.
    sys.setswitchinterval(_SWITCH_SECONDS)
    compiler = _Compiler()
    is_logged = False
    while not is_logged or not stop_event.wait(IDLE_SECONDS):
        try:
            gateway.start()
            break
        except NotArrangedError as error:
            if not is_logged:
                _log.warning("%s", error)
            is_logged = True
            manager.starting(STUCK_SECONDS)
        if on_turn is not None:
            on_turn()
    else:
        return 0
    manager.ready()
    on_started()
    while not stop_event.wait(IDLE_SECONDS) and not gateway.failed.is_set():
        if on_turn is not None:
            on_turn()
        if gateway.is_alive:
            manager.alive(time.monotonic())
    manager.stopping()
    compiler.stop()
    gateway.stop()
    return 1 if gateway.failed.is_set() else 0


class _Compiler:
    """A thread that compiles kernels while slower code takes the frames. The log has the number of kernels."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "gateway-compiler")
        self._submitted = self._done = self._compiled = 0
        compile_in_background(self._submit)

    def stop(self) -> None:
        """Start no further compilation. The process can end only when the current compilation has ended."""
        compile_in_background(lambda _compile: None)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _submit(self, compile_now: Callable[[], bool]) -> None:
        self._submitted += 1
        with suppress(RuntimeError):  # it has been stopped
            self._thread.submit(self._compile, compile_now)

    def _compile(self, compile_now: Callable[[], bool]) -> None:
        try:
            was_missing = compile_now()
        except Exception as error:
            _log.error("a kernel cannot be compiled, and stays slow: %s", cause(error))
            was_missing = False
        self._done += 1
        if was_missing and not self._compiled:
            _log.info("compiling kernels, as none were stored: 10 to 20 s; frames are stored meanwhile")
        self._compiled += was_missing
        if self._compiled and self._done == self._submitted:
            _log.info("%d kernels are compiled, and stored for the next start", self._compiled)
            self._compiled = 0


def _start_seconds(store: Location) -> float:
    if not isinstance(store, Path):
        return STUCK_SECONDS
    return STUCK_SECONDS + (store.stat().st_size if store.exists() else 0) / _START_BYTES_PER_SECOND
