"""What only a shard has: it hears its own devices alone, and answers what releases ask of them."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

from fugu.contract.errors import FuguError
from fugu.contract.topics import parse_topic
from fugu.host.database import DatabaseError, is_lost
from fugu.mqtt import Link
from gateway.releases.counts import Counts, StoreCounting
from gateway.releases.inputs import Question
from gateway.releases.schedule import StoreProgress
from gateway.service.intake import Intake
from gateway.service.ownership import Shard
from gateway.service.policies import Catalogue
from gateway.service.recorder import Recorder
from gateway.service.shard_channel import Asked, ShardChannel
from gateway.service.store import Store

__all__ = ["ShardPart"]

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.25
_SLICE_SECONDS = 0.05
_SHARE = 10
"""Answers that stand are brought up to date in at most one part of so many of the time."""


@dataclass(slots=True)
class _Question:
    """A question of the fleet's process, about the devices of this shard alone.

    Attributes:
        answered: what was answered last; it may be gone, if the question was withdrawn and asked again.
        work: the count that is under way.
    """

    asked: Asked
    what: str
    document: dict[str, Any]
    question: Question
    answered: dict[str, Any] | None = None
    work: Generator[bool, None, Counts] | None = None


class ShardPart:
    """Used by the gateway's worker.

    Args:
        channel: owned by the thread that calls.
        counters: counts `strays` (messages of devices that are other shards': an old session's), `channel_errors` and
            `answers`.
    """

    def __init__(
        self,
        shard: Shard,
        link: Link,
        store: Store,
        catalogue: Catalogue,
        recorder: Recorder,
        channel: ShardChannel,
        counters: Counter[str],
    ) -> None:
        self._shard = shard
        self._link = link
        self._catalogue = catalogue
        self._channel = channel
        self._counters = counters
        self._progress = StoreProgress(store, recorder)
        self._counting = StoreCounting(store, catalogue)
        self._questions: dict[str, _Question] = {}
        self._subscribed: set[str] = set()
        self._mine: set[str] = set()
        self._changed = True
        self._look_at = self._refresh_at = 0.0
        self.renew()

    @property
    def busy(self) -> bool:
        """Whether there is work to do now."""
        return any(one.work is not None for one in self._questions.values())

    def heard(self, topic: str) -> bool:
        """Whether a message is of a device that is another shard's: a session of before has subscribed to it."""
        if topic in self._mine:
            return False
        try:
            parsed = parse_topic(topic)
        except FuguError:
            return False  # whoever else reads it counts it
        if not (device := parsed.device) or self._shard.owns(device):
            if parsed.stream in self._catalogue.streams(device):
                self._mine.add(topic)
            return False
        self._counters["strays"] += 1
        self._link.unsubscribe(Intake.topics(self._catalogue.fleet, device))
        return True

    def stored(self) -> None:
        """New frames are in the store."""
        self._changed = True

    def renew(self) -> None:
        """The catalogue may have changed: new devices are subscribed to."""
        new = [device for device in self._catalogue.names() if device not in self._subscribed]
        self._link.subscribe(topic for device in new for topic in Intake.topics(self._catalogue.fleet, device))
        self._subscribed.update(new)

    def pump(self) -> None:
        """Answer what is asked.

        Raises:
            DatabaseError: a file is damaged or gone, or another process is this shard now; other errors are waited out.
        """
        try:
            self._look()
            self._count()
            self._refresh()
        except DatabaseError as error:
            if is_lost(error):
                raise
            self._counters["channel_errors"] += 1
            if self._counters["channel_errors"] == 1:
                _log.error("releases wait for shard %s: %s", self._shard, error)

    def _look(self) -> None:
        """See what is asked now."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_SECONDS
        self._channel.check(self._shard.count)
        every = self._channel.questions()
        answered = self._channel.answered(self._shard.index)
        names = {asked.name for asked in every}
        for name in [name for name in self._questions if name not in names]:
            del self._questions[name]
        for asked in every:
            known = self._questions.get(asked.name)
            stands = known is not None and known.asked == asked and (known.answered is None or asked in answered)
            if not stands and (found := self._channel.question(asked.name)) is not None:
                self._questions[asked.name] = self._read(*found)
                self._changed, self._refresh_at = True, 0.0

    def _read(self, asked: Asked, document: dict[str, Any]) -> _Question:
        question = Question.of_document(document["question"])
        mine = tuple(filter(self._shard.owns, question.devices)) if document["shards"] == self._shard.count else ()
        made = _Question(asked, document["what"], document, replace(question, devices=mine))
        if made.what == "count" and mine:
            if asked in self._channel.answered(self._shard.index):
                made.answered = {}
            else:
                made.work = self._counting.count(made.question, document["first"])
        return made

    def _count(self) -> None:
        """Count for a short while; what is counted is answered once."""
        deadline = time.monotonic() + _SLICE_SECONDS
        for one in [one for one in self._questions.values() if one.work is not None]:
            while one.work is not None and time.monotonic() < deadline:
                try:
                    next(one.work)
                except StopIteration as ended:
                    self._answer(one, ended.value.document())
                except DatabaseError:
                    one.work = self._counting.count(one.question, one.document["first"])
                    raise
                except FuguError as error:
                    self._answer(one, {"refused": str(error)})

    def _refresh(self) -> None:
        """Bring answers up to date that stand."""
        if not self._changed or time.monotonic() < self._refresh_at:
            return
        self._changed, began = False, time.monotonic()
        for one in self._questions.values():
            if one.what != "count" and one.question.devices:
                answer = self._stands(one)
                if answer != one.answered:
                    self._answer(one, answer)
        now = time.monotonic()
        self._refresh_at = now + max(_LOOK_SECONDS, _SHARE * (now - began))

    def _stands(self, one: _Question) -> dict[str, Any]:
        question, given = one.question, one.document
        if one.what == "reached":
            return self._progress.reached(question)._asdict()
        if one.what == "complete":
            return {"complete": self._progress.complete(question, given["first"], given["end"])}
        if one.what == "next":
            return {"next": self._progress.next_frame(question, given["tick"])}
        return {"wall": self._progress.wall_tick(question, given["numbers"])}

    def _answer(self, one: _Question, document: dict[str, Any]) -> None:
        self._channel.answer(self._shard.index, one.asked, document)
        one.answered, one.work = document, None
        self._counters["answers"] += 1

    def pumps(self, *, idle: bool) -> tuple[Callable[[], None], ...]:
        """What is to be done in every round."""
        return (self.pump,)
