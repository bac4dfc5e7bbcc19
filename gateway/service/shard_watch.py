"""How the shards of a fleet are, wherever they run, from what they say of themselves now and then.

Nothing is known of a shard but its beats (`gateway.service.shard_channel`). One of which nothing was heard lately is
missing; one that says that it began at another time was started again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from fugu.contract.errors import cause
from fugu.host.database import DatabaseError
from gateway.service.shard_channel import ShardChannel

__all__ = ["ShardWatch"]

_log = logging.getLogger(__name__)
_ROUND_SECONDS = 0.25
_MISSING_SECONDS = 5.0


class _Known:
    """What was heard of a shard; times are seconds of a steady clock."""

    def __init__(self, now: float) -> None:
        self.number = 0
        self.since = 0.0
        self.before: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()
        self.heard = now


class ShardWatch:
    """Looks in a thread of its own, between `start` and `stop`.

    Args:
        channel: only this uses it, and closes it.
        count: how many shards there are.
        counters: counts `shards_restarted`.
        seconds: a clock that only goes forward.

    Attributes:
        reports: by shard, how it was when it last said so.
    """

    def __init__(
        self,
        channel: ShardChannel,
        count: int,
        counters: Counter[str],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channel = channel
        self._seconds = seconds
        self._known = [_Known(seconds()) for _ in range(count)]
        self._counters = counters
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gateway-shard-watch", daemon=True)
        self.reports: dict[int, dict[str, Any]] = {}

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._channel.close()

    @property
    def missing(self) -> tuple[int, ...]:
        """The shards that nothing was heard of lately, or that have no connection to the broker."""
        now, reports = self._seconds(), dict(self.reports)
        return tuple(
            index
            for index, one in enumerate(self._known)
            if now - one.heard > _MISSING_SECONDS or not reports.get(index, {"connected": False})["connected"]
        )

    def counters(self) -> Counter[str]:
        """Of all shards together, also from before they were started again."""
        return sum(((one.before + one.counted) for one in self._known), Counter[str]())

    def look(self) -> None:
        """See what was said.

        Raises:
            DatabaseError: it cannot be read.
        """
        beats, now = self._channel.beats(), self._seconds()
        for index, one in enumerate(self._known):
            beat = beats.get(index)
            if beat is None or beat.number == one.number:
                continue
            one.number, one.heard = beat.number, now
            if beat.body["since"] != one.since:
                self._counters["shards_restarted"] += one.since > 0.0
                one.since, one.before = beat.body["since"], one.before + one.counted
            one.counted = Counter(beat.body["counters"])
            self.reports[index] = beat.body

    def _watch(self) -> None:
        away = False
        while not self._ending.wait(_ROUND_SECONDS):
            try:
                self.look()
                away = False
            except DatabaseError as error:
                if not away:
                    _log.error("what shards say cannot be read: %s", error)
                away = True
            except Exception as error:  # what nobody thought of must not end what watches
                _log.error("the watch over shards: %s", cause(error))
