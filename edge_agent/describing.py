"""Descriptions that a device publishes of its streams, in fleets without a gateway.

A description follows from the policy alone while no other policy has drawn anything. Elsewhere a process of its own
finds since when the promise is true (`edge_agent.dating`), whenever a row of drawn ticks has begun.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence

from edge_agent.outbox import Outbox
from edge_agent.plan import StreamPlan
from fugu.host.child import Child

__all__ = ["Describing"]

_log = logging.getLogger(__name__)
_SECONDS = 120.0
_REST_SECONDS = 60.0
"""Between two datings, at least: where ticks are lost again and again, the last row begins again and again."""


class Describing:
    """Descriptions that are due; used from the agent's loop, in which `queue` runs what a thread leaves for it.

    `descriptions` are those by policies alone, by stream; empty where a gateway describes streams.
    """

    def __init__(
        self, config: str, descriptions: Mapping[str, str], outbox: Outbox, queue: Callable[[Callable[[], None]], None]
    ) -> None:
        self._config, self._outbox = config, outbox
        self._descriptions = dict(descriptions)
        self._due: dict[str, str] = {}
        self._shape_dated: object = None
        self._next = 0.0
        self._dating = False
        self._child = Child("edge_agent.dating", "the process that dates promises", _SECONDS, queue)

    def connected(self) -> None:
        """Say everything again: the broker may have forgotten it."""
        self._due = {stream: text for stream, text in self._descriptions.items() if text}

    def pump(self, streams: Sequence[StreamPlan], publish: Callable[[str, str], bool]) -> None:
        """Publish what is due, by stream and text, as far as `publish` takes it; look for what has to be dated."""
        if not self._descriptions:
            return
        shape = self._shape()
        if shape != self._shape_dated:
            if not self._dating and time.monotonic() >= self._next:
                self._begin(streams, shape)
            if self._shape_dated is None:
                return  # what follows from the policy alone is not true
        for stream, text in list(self._due.items()):
            if not publish(stream, text):
                return
            del self._due[stream]

    def close(self) -> None:
        """End what is under way."""
        self._child.close()

    def _shape(self) -> object:
        """Return what the dates of a stream depend on; `None` while its policy alone says everything."""
        rows = {name: self._outbox.drawn(name) for name in self._descriptions}  # some may move together
        return None if all(ticks.unchanged for ticks in rows.values()) else [ticks.shape for ticks in rows.values()]

    def _begin(self, plans: Sequence[StreamPlan], shape: object) -> None:
        """Date all streams in a process of its own."""
        request = {
            plan.stream: {**self._outbox.drawn(plan.stream).document(), "running": [plan.version, plan.noise_bound]}
            for plan in plans
        }
        self._dating, self._next = True, time.monotonic() + _REST_SECONDS
        arguments = (self._config, str(os.getpid()))
        self._child.ask(arguments, json.dumps(request).encode(), lambda answer: self._dated(answer, shape))

    def _dated(self, answer: Mapping[str, object], shape: object) -> None:
        self._dating, self._shape_dated = False, shape
        texts = answer.get("descriptions")
        if not isinstance(texts, dict):
            _log.warning("streams are not described, since when they are true cannot be said: %s", answer.get("detail"))
            texts = {}
        # Of a stream that is not in the answer, the file has another policy by now.
        self._descriptions, self._due = {**dict.fromkeys(self._descriptions, ""), **texts}, dict(texts)
