"""The calls that the gateway's loop makes to each of its parts; only configured parts are made.

This room has the parts that tell what streams are: descriptions, Home Assistant, tables for devices.

In a round, the messages are stored in one transaction, and the parts hear of them. Then each part that is due does one
small piece of work. The worker's thread makes all calls but these: another thread calls `start` and `close`, and the
monitor calls `details`. If a call raises an error of store or ledger, the loop counts it, and goes on with the next
part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from fugu.contract.errors import FuguError
from fugu.contract.frames import PolicyStatus, Status
from fugu.contract.topics import Topic, parse_topic

if TYPE_CHECKING:
    from gateway.store.journal import Heard

__all__ = ["Message", "Part"]

Form = TypeVar("Form", Status, PolicyStatus)


@dataclass(slots=True, unsafe_hash=True, repr=False)
class Message:
    """A message from the broker. Topic and payload are decoded once, even if several parts read them."""

    topic: str
    payload: bytes
    _parsed: Topic | FuguError | None = field(default=None, init=False, compare=False)
    _content: Status | PolicyStatus | FuguError | None = field(default=None, init=False, compare=False)

    @property
    def parsed(self) -> Topic:
        """The parsed topic. Raises TopicError."""
        if self._parsed is None:
            try:
                self._parsed = parse_topic(self.topic)
            except FuguError as error:
                self._parsed = error
        if isinstance(self._parsed, FuguError):
            raise self._parsed
        return self._parsed

    def decode(self, form: type[Form]) -> Form:
        """Decode the payload by the one form that its topic has. Raises FrameError."""
        if self._content is None:
            try:
                self._content = form.decode(self.payload)
            except FuguError as error:
                self._content = error
        if isinstance(self._content, FuguError):
            raise self._content
        assert isinstance(self._content, form)
        return self._content


class Part:
    """A part of the gateway's loop, whose calls do nothing; each part overrides some of them."""

    topics: tuple[str, ...] = ()
    """The topic filters that the gateway's connection subscribes to for this part."""
    due = 0.0
    """The earliest time of the next call of `pump`, by the monotonic clock."""

    def start(self) -> None:
        """Begin the work in the background, once the connection is under way."""

    def connected(self, *, begun_anew: bool) -> None:
        """Note a new connection, to a broker that may have lost its retained messages.

        With `begun_anew` the broker acknowledges nothing that was under way.
        """

    def heard(self, message: Message) -> bool:
        """Note a message, unless it is of a known stream of symbols. Return whether no other part needs it."""
        return False

    def born(self, device: str) -> None:
        """Note that a device has come online."""

    def stored(self, newest_frames: Sequence[Heard]) -> None:
        """Note that frames of streams are durable, or refused for good."""

    def acknowledged(self, message_id: int, accepted: bool) -> None:
        """Take the broker's answer to a published message."""

    def renew(self) -> None:
        """Note that the policies of the fleet have changed."""

    def pump(self, *, idle: bool = False) -> None:
        """Do one small piece of work; `idle` if no message has arrived."""

    def close(self) -> None:
        """Close what the part has opened; the store is already closed."""

    @property
    def busy(self) -> bool:
        """True if there is, or may be, work to do at once, so that the worker does not wait for messages."""
        return False

    @property
    def finished(self) -> bool:
        """True if no message is owed or under way."""
        return True

    def details(self) -> dict[str, object]:
        """Return this part's share of the gateway's health details; the monitor's thread calls it."""
        return {}
