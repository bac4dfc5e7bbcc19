"""Releases about the devices of several shards, as the process of the whole fleet sees them.

Where devices are is asked of every shard that owns any of them, as a question that stands: a shard brings its answer up
to date. Nothing is decided while a shard is missing. What is to be counted is frozen before it is asked: the window,
the devices, what is counted of them and how many shards there are, under one digest. A shard answers with whole numbers
of its own devices. So a shard that is missing delays a release, and one that was started again answers the same
question; and the fleet's process, if it was, asks the same again. Noise is added once, to the sum, by whoever asked.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import Any

from gateway.releases.counts import Counts
from gateway.releases.inputs import Question
from gateway.releases.schedule import NotKnownError, Reached
from gateway.releases.statistics import ReleaseError
from gateway.service.ownership import owner
from gateway.service.shard_channel import Asked, ShardChannel

__all__ = ["ShardCounting", "ShardProgress"]

_log = logging.getLogger(__name__)
_STANDING = ("reached", "complete", "next", "wall")


class ShardProgress:
    """A `Progress` of all shards.

    Args:
        channel: owned by the thread that calls.
        missing: the shards that nothing was heard of lately.
    """

    def __init__(self, channel: ShardChannel, shards: int, missing: Callable[[], tuple[int, ...]]) -> None:
        self._channel = channel
        self._shards = shards
        self._missing = missing
        self._asked: dict[str, tuple[dict[str, Any], Asked, frozenset[int]]] = {}

    def reached(self, question: Question) -> Reached:
        """How far the devices are."""
        if missing := self._missing():
            raise NotKnownError(f"shards {missing} are missing")
        found = self._answers("reached", question, {})
        return Reached(min(one["low"] for one in found), max(one["high"] for one in found))

    def complete(self, question: Question, first: int, end: int) -> bool:
        """Whether no frame of any device is missing in the wall ticks first..end."""
        return all(one["complete"] for one in self._answers("complete", question, {"first": first, "end": end}))

    def next_frame(self, question: Question, tick: int) -> int | None:
        """The first wall tick of the first stored frame of any device that ends at a wall tick or later."""
        found = [one["next"] for one in self._answers("next", question, {"tick": tick})]
        return min((one for one in found if one is not None), default=None)

    def wall_tick(self, question: Question, numbers: Mapping[str, int]) -> int:
        """The last wall tick that any of these numbers stands for: tick numbers of devices, 0 where none is given."""
        return max(int(one["wall"]) for one in self._answers("wall", question, {"numbers": dict(numbers)}))

    def done(self, question: Question) -> None:
        """A window is dealt with: nothing is asked any more."""
        self._channel.withdraw(f"{what}:{question.name}" for what in (*_STANDING, "count"))
        for what in _STANDING:
            self._asked.pop(f"{what}:{question.name}", None)

    def _answers(self, what: str, question: Question, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        name = f"{what}:{question.name}"
        known = self._asked.get(name)
        if known is None or known[0] != arguments:
            document = {"what": what, "shards": self._shards, "question": question.document(), **arguments}
            owners = frozenset(owner(device, self._shards) for device in question.devices)
            known = self._asked[name] = arguments, self._channel.ask(name, document), owners
        _, asked, owners = known
        found = self._channel.answers(asked)
        if not owners <= found.keys():
            raise NotKnownError(f"shards {sorted(owners - found.keys())} have not answered")
        return [found[index] for index in sorted(owners)]


class ShardCounting:
    """A `Counting` of all shards.

    Args:
        channel: owned by the thread that calls.
        counters: counts `answers_refused`: of shards, to other questions or about devices that are not theirs.
    """

    def __init__(self, channel: ShardChannel, shards: int, counters: Counter[str]) -> None:
        self._channel = channel
        self._shards = shards
        self._counters = counters

    def count(self, question: Question, first: int) -> Generator[bool, None, Counts]:
        """Count the window that begins at a wall tick."""
        name = f"count:{question.name}"
        document: dict[str, Any] = {
            "what": "count",
            "shards": self._shards,
            "question": question.document(),
            "first": first,
        }
        if (before := self._channel.question(name)) is not None and _same_window(before[1], document):
            document = before[1]  # asked before a restart: the devices of that moment take part, and no others
            question = Question.of_document(document["question"])
        asked = self._channel.ask(name, document)
        owners: dict[int, set[str]] = {}
        for device in question.devices:
            owners.setdefault(owner(device, self._shards), set()).add(device)
        refused: set[int] = set()
        while True:
            found: dict[int, Counts] = {}
            for index, answer in self._channel.answers(asked).items():
                if "refused" in answer:
                    raise ReleaseError(answer["refused"])
                counts = Counts.of_document(question, answer)
                if {*counts.windows, *counts.tables, *counts.shifts} <= owners.get(index, set()):
                    found[index] = counts
                else:
                    self._refuse(asked, index, refused)
            for index in self._channel.refused(asked):
                self._refuse(asked, index, refused)
            if owners.keys() <= found.keys():
                break
            yield True
        total = Counts.of(question)
        for index in sorted(owners):
            total.add(found[index])
        return total

    def _refuse(self, asked: Asked, index: int, known: set[int]) -> None:
        if index not in known:
            known.add(index)
            self._counters["answers_refused"] += 1
            _log.error("an answer of shard %d to %s is refused: it is of another question, or of others", index, asked)


def _same_window(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two documents ask the same of a window, but perhaps of other devices."""
    return _without_devices(one) == _without_devices(other)


def _without_devices(document: Mapping[str, Any]) -> dict[str, Any]:
    question = {k: v for k, v in document["question"].items() if k not in ("devices", "windows", "silent")}
    return {**document, "question": question}
