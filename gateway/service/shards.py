"""The processes of a fleet's shards on this machine: started, started again when one has ended, and stopped in order.

A shard that ends is started again after a pause, which grows while it keeps ending; so is one whose worker has not
finished a round for long, after it was killed. A shard whose parent is gone stops by itself.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from fugu.contract.errors import FuguError, cause
from fugu.host.logs import LogSettings, log_settings
from gateway.service.ownership import Shard
from gateway.service.settings import GatewaySettings
from gateway.service.shard_watch import ShardWatch

__all__ = ["ShardFailedError", "Shards"]

_log = logging.getLogger(__name__)
_ROUND_SECONDS = 0.25
_STUCK_SECONDS = 120.0
_STOP_SECONDS = 20.0
_FIRST_PAUSE, _LONGEST_PAUSE, _CALM_SECONDS = 0.5, 60.0, 300.0


class ShardFailedError(FuguError):
    """A shard cannot start."""


Serve = Callable[[GatewaySettings, Connection, LogSettings], None]


class _Running:
    """A shard's process."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.process: BaseProcess | None = None
        self.pipe: Connection | None = None
        self.started = False
        self.began = self.served = time.monotonic()
        self.pause = _FIRST_PAUSE
        self.again_at: float | None = None


class Shards:
    """The shards of a gateway on this machine.

    Args:
        serve: what each process does, with its own settings: sends an empty text when it has started, or why it cannot;
            a function of a module, because the processes are new ones.
    """

    def __init__(self, settings: GatewaySettings, serve: Serve) -> None:
        self._settings = settings
        self._serve = serve
        self._counters: Counter[str] = Counter()
        self._context = multiprocessing.get_context("spawn")
        self._running = [_Running(index) for index in range(settings.shards)]
        self._shard_watch: ShardWatch | None = None
        self._ending = threading.Event()
        self._logs = log_settings()
        self._thread = threading.Thread(target=self._watch, name="gateway-shards", daemon=True)

    def start(self, counters: Counter[str], shard_watch: ShardWatch) -> None:
        """Start all, and wait until they serve.

        Args:
            counters: counts `shards_killed`.
            shard_watch: knows how they are.

        Raises:
            ShardFailedError: one cannot start; none is left running.
        """
        self._counters = counters
        self._shard_watch = shard_watch
        try:
            for one in self._running:
                self._start(one)
            for one in self._running:
                assert one.pipe is not None
                try:
                    problem = one.pipe.recv()
                except EOFError:
                    problem = "it has ended; its log says why"
                if problem:
                    raise ShardFailedError(f"shard {one.index} of {len(self._running)}: {problem}")
                one.started = True
                one.served = time.monotonic()
        except BaseException:
            self._end()
            raise
        self._thread.start()

    def stop(self) -> None:
        """Stop all in order."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._end()

    def _start(self, one: _Running) -> None:
        ours, theirs = self._context.Pipe()
        settings = replace(self._settings, shard=Shard(one.index, len(self._running)), metrics=None)
        name = f"fugu-shard-{one.index}"
        process = self._context.Process(target=self._serve, args=(settings, theirs, self._logs), name=name)
        process.start()
        theirs.close()  # so that its end is seen when it is gone
        one.process, one.pipe, one.started, one.again_at = process, ours, False, None
        one.began = one.served = time.monotonic()

    def _end(self) -> None:
        for one in self._running:
            if one.process is not None and one.process.is_alive():
                one.process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for one in self._running:
            if one.process is not None:
                one.process.join(max(deadline - time.monotonic(), 0.0))
                if one.process.is_alive():
                    _log.error("shard %d does not stop: it is killed", one.index)
                    one.process.kill()
                    one.process.join()
            if one.pipe is not None:
                one.pipe.close()
            one.process = one.pipe = None

    def _watch(self) -> None:
        while not self._ending.is_set():
            try:
                for one in self._running:
                    self._see(one, time.monotonic())
            except Exception as error:  # what nobody thought of must not end what watches
                _log.error("the watch over shards' processes: %s", cause(error))
            pipes = [one.pipe for one in self._running if one.pipe is not None]
            if not pipes:
                self._ending.wait(_ROUND_SECONDS)
            elif wait(pipes, _ROUND_SECONDS):
                self._ending.wait(_ROUND_SECONDS / 10)

    def _see(self, one: _Running, now: float) -> None:
        """Take note of what a process has sent, or that it is gone, and start it again."""
        assert self._shard_watch is not None
        if one.pipe is not None and one.process is not None:
            with contextlib.suppress(EOFError, OSError):
                while one.pipe.poll():
                    if problem := one.pipe.recv():
                        _log.error("shard %d cannot start: %s", one.index, problem)
                    one.started, one.served = True, now
            if one.process.is_alive():
                if one.started and now - max(one.served, self._shard_watch.healthy(one.index)) > _STUCK_SECONDS:
                    _log.error("shard %d has done nothing for %g s: it is killed", one.index, _STUCK_SECONDS)
                    self._counters["shards_killed"] += 1
                    one.process.kill()
                return
            one.process.join()
            _log.error("shard %d has ended with exit code %s", one.index, one.process.exitcode)
            one.pipe.close()
            one.pause = _FIRST_PAUSE if now - one.began > _CALM_SECONDS else min(2 * one.pause, _LONGEST_PAUSE)
            one.process, one.pipe, one.again_at = None, None, now + one.pause
            self._shard_watch.gone(one.index)
        elif one.again_at is not None and now >= one.again_at:
            self._start(one)
