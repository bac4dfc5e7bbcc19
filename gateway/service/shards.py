"""The processes of a fleet's shards: started, watched, started again when one has ended, and stopped in order.

A shard that ends is started again after a pause, which grows while it keeps ending; so is one whose worker has not
finished a round for long, after it was killed. A shard whose parent is gone stops by itself. How each is, it says
itself (`gateway.service.shard_channel`); one of which nothing was heard lately is missing.
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
from typing import Any

from contract.errors import FuguError
from gateway.service.ownership import Shard
from gateway.service.settings import GatewaySettings
from gateway.service.shard_channel import ShardChannel
from gateway.service.shard_files import channel_file
from host.database import DatabaseError
from host.logs import LogSettings, log_settings

__all__ = ["ShardFailedError", "Shards"]

_log = logging.getLogger(__name__)
_ROUND_SECONDS = 0.25
_MISSING_SECONDS = 5.0
_STUCK_SECONDS = 120.0
_STOP_SECONDS = 20.0
_FIRST_PAUSE, _LONGEST_PAUSE, _CALM_SECONDS = 0.5, 60.0, 300.0


class ShardFailedError(FuguError):
    """A shard cannot start."""


Serve = Callable[[GatewaySettings, Connection, LogSettings], None]


class _Running:
    """A shard's process, and what was heard of it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.process: BaseProcess | None = None
        self.pipe: Connection | None = None
        self.started = False
        self.number = 0
        self.since = 0.0
        self.before: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()
        self.heard = self.healthy = self.began = time.monotonic()
        self.pause = _FIRST_PAUSE
        self.again_at: float | None = None


class Shards:
    """The shards of a gateway on this machine.

    Args:
        serve: what each process does, with its own settings: sends an empty text when it has started, or why it cannot;
            a function of a module, because the processes are new ones.
    Attributes:
        reports: by shard, how it was when it last said so.
    """

    def __init__(self, settings: GatewaySettings, serve: Serve) -> None:
        self._settings = settings
        self._serve = serve
        self._counters: Counter[str] = Counter()
        self._context = multiprocessing.get_context("spawn")
        self._running = [_Running(index) for index in range(settings.shards)]
        self._channel: ShardChannel | None = None
        self._ending = threading.Event()
        self._logs = log_settings()
        self._thread = threading.Thread(target=self._watch, name="gateway-shards", daemon=True)
        self.reports: dict[int, dict[str, Any]] = {}

    def start(self, counters: Counter[str]) -> None:
        """Start all, and wait until they serve.

        Args:
            counters: counts `shards_restarted`, and `shards_killed` of them.

        Raises:
            ShardFailedError: one cannot start; none is left running.
        """
        self._counters = counters
        self._channel = ShardChannel(channel_file(self._settings.store))
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
                one.healthy = time.monotonic()
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

    def counters(self) -> Counter[str]:
        """Of all shards together, also from before they were started again."""
        return sum(((one.before + one.counted) for one in self._running), Counter[str]())

    @property
    def missing(self) -> tuple[int, ...]:
        """The shards that nothing was heard of lately, or that have no connection to the broker."""
        now, reports = time.monotonic(), dict(self.reports)
        return tuple(
            one.index
            for one in self._running
            if now - one.heard > _MISSING_SECONDS or not reports.get(one.index, {"connected": False})["connected"]
        )

    def _start(self, one: _Running) -> None:
        ours, theirs = self._context.Pipe()
        settings = replace(self._settings, shard=Shard(one.index, len(self._running)), metrics=None)
        name = f"fugu-shard-{one.index}"
        process = self._context.Process(target=self._serve, args=(settings, theirs, self._logs), name=name)
        process.start()
        theirs.close()  # so that its end is seen when it is gone
        one.process, one.pipe, one.started, one.again_at = process, ours, False, None
        one.healthy = one.began = time.monotonic()

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
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _watch(self) -> None:
        while not self._ending.is_set():
            try:
                self._look()
            except DatabaseError as error:
                _log.error("what shards say cannot be read: %s", error)
            except Exception as error:  # what nobody thought of must not end what watches
                _log.error("the watch over shards: %s", type(error).__name__)
            pipes = [one.pipe for one in self._running if one.pipe is not None]
            if not pipes:
                self._ending.wait(_ROUND_SECONDS)
            elif wait(pipes, _ROUND_SECONDS):
                self._ending.wait(_ROUND_SECONDS / 10)

    def _look(self) -> None:
        assert self._channel is not None
        now, beats = time.monotonic(), self._channel.beats()
        for one in self._running:
            beat = beats.get(one.index)
            if beat is not None and beat.number != one.number:
                one.number, one.heard = beat.number, now
                if beat.body["alive"]:
                    one.healthy = now
                if beat.body["since"] != one.since:
                    one.since, one.before = beat.body["since"], one.before + one.counted
                one.counted = Counter(beat.body["counters"])
                self.reports[one.index] = beat.body
            self._see(one, now)

    def _see(self, one: _Running, now: float) -> None:
        """Take note of what a process has sent, or that it is gone, and start it again."""
        if one.pipe is not None and one.process is not None:
            with contextlib.suppress(EOFError, OSError):
                while one.pipe.poll():
                    if problem := one.pipe.recv():
                        _log.error("shard %d cannot start: %s", one.index, problem)
                    one.started = True
            if one.process.is_alive():
                if one.started and now - one.healthy > _STUCK_SECONDS:
                    _log.error("shard %d has done nothing for %g s: it is killed", one.index, _STUCK_SECONDS)
                    self._counters["shards_killed"] += 1
                    one.process.kill()
                return
            one.process.join()
            _log.error("shard %d has ended with exit code %s", one.index, one.process.exitcode)
            one.pipe.close()
            one.pause = _FIRST_PAUSE if now - one.began > _CALM_SECONDS else min(2 * one.pause, _LONGEST_PAUSE)
            one.process, one.pipe, one.again_at, one.heard = None, None, now + one.pause, float("-inf")
        elif one.again_at is not None and now >= one.again_at:
            self._counters["shards_restarted"] += 1
            self._start(one)
