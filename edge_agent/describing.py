"""Descriptions that a device publishes of its streams, in fleets without a gateway.

While only one policy has ever drawn, the description follows from the policy alone. After a change of policy, whenever
a row of drawn ticks has begun, a process of its own finds since when the promise is true (`edge_agent.dating`). If the
process fails, nothing is published, and another one tries ten minutes later.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence

from edge_agent.outbox import Outbox
from edge_agent.plan import StreamPlan
from fugu.host.child import Child, Queue

__all__ = ["Describer"]

_log = logging.getLogger(__name__)
_SECONDS = 120.0
_REST_SECONDS = 60.0
"""Shortest time between two datings: where ticks are often lost, rows of drawn ticks begin often."""
_RETRY_SECONDS = 600.0


class Describer:
    """Descriptions that are to be published; used from the agent's loop. `queue` hands work to the loop.

    `descriptions` follow from the policies alone, by stream; empty if a gateway describes the streams.
    """

    def __init__(self, config: str, descriptions: Mapping[str, str], outbox: Outbox, queue: Queue) -> None:
        self._config, self._outbox = config, outbox
        self._descriptions = dict(descriptions)
        self._due_texts: dict[str, str] = {}
        self._dated_starts: object = None
        self._next_dating = 0.0
        self._is_dating = False
        self._child = Child("edge_agent.dating", "the process that dates promises", _SECONDS, queue)

    def make_due(self) -> None:
        """Make all descriptions due again: the broker may have lost them."""
        self._due_texts = {stream: text for stream, text in self._descriptions.items() if text}

    def pump(self, plans: Sequence[StreamPlan], publish: Callable[[str, str], bool]) -> None:
        """Begin a dating if one is due, and publish each due description by `publish(stream, text)` until one fails."""
        if not self._descriptions:
            return
        row_starts = self._row_starts()
        if row_starts != self._dated_starts:
            if not self._is_dating and time.monotonic() >= self._next_dating:
                self._begin_dating(plans, row_starts)
            if self._dated_starts is None:
                return  # the description by the policy alone is not true any more
        for stream, text in list(self._due_texts.items()):
            if not publish(stream, text):
                return
            del self._due_texts[stream]

    def close(self) -> None:
        """End the process that dates."""
        self._child.close()

    def _row_starts(self) -> object:
        """Return the row starts of all streams, on which dates depend; `None` if no policy has changed."""
        drawn_ticks = [
            self._outbox.drawn_ticks(stream) for stream in self._descriptions
        ]  # streams may depend on others
        return None if all(ticks.unchanged for ticks in drawn_ticks) else [ticks.row_starts for ticks in drawn_ticks]

    def _begin_dating(self, plans: Sequence[StreamPlan], row_starts: object) -> None:
        """Date all streams in a process of its own."""
        documents = {plan.stream: self._outbox.drawn_document(plan) for plan in plans}
        self._is_dating, self._next_dating = True, time.monotonic() + _REST_SECONDS
        arguments = (self._config, str(os.getpid()))
        self._child.ask(arguments, json.dumps(documents).encode(), lambda answer: self._take_dates(answer, row_starts))

    def _take_dates(self, answer: Mapping[str, object], row_starts: object) -> None:
        self._is_dating, self._dated_starts = False, row_starts
        texts = answer.get("descriptions")
        if not isinstance(texts, dict):
            _log.warning("streams are not described, since when they are true cannot be said: %s", answer.get("detail"))
            texts, self._dated_starts, self._next_dating = {}, (), time.monotonic() + _RETRY_SECONDS
        # A stream that is not in the answer has another policy on disk by now.
        self._descriptions, self._due_texts = {**dict.fromkeys(self._descriptions, ""), **texts}, dict(texts)
