"""The calls that the gateway's loop makes to each of its parts; only parts that are configured are made.

In this room are those that say what streams are: descriptions, Home Assistant, tables for devices.

In a round, the messages are stored in one transaction, and the parts hear of them. Then each part that is due does one
small piece of work. The worker's thread calls all but `start` and `close`. What a call raises of store or ledger the
loop counts, and goes on with the next part.
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

Words = TypeVar("Words", Status, PolicyStatus)


@dataclass(slots=True, unsafe_hash=True, repr=False)
class Message:
    """A message that the broker has delivered; topic and words are read once, however many parts ask for them."""

    topic: str
    payload: bytes
    _parsed: Topic | FuguError | None = field(default=None, init=False, compare=False)
    _words: Status | PolicyStatus | FuguError | None = field(default=None, init=False, compare=False)

    @property
    def parsed(self) -> Topic:
        """Its topic, taken apart. Raises TopicError."""
        if self._parsed is None:
            try:
                self._parsed = parse_topic(self.topic)
            except FuguError as error:
                self._parsed = error
        if isinstance(self._parsed, FuguError):
            raise self._parsed
        return self._parsed

    def words(self, form: type[Words]) -> Words:
        """Return its content, which has one form on its topic. Raises FrameError."""
        if self._words is None:
            try:
                self._words = form.decode(self.payload)
            except FuguError as error:
                self._words = error
        if isinstance(self._words, FuguError):
            raise self._words
        assert isinstance(self._words, form)
        return self._words


class Part:
    """A part that does nothing; each does some of this."""

    topics: tuple[str, ...] = ()
    """The filters that the gateway's connection subscribes to for this."""
    due = 0.0
    """When there is something for `pump` to do, by the steady clock; it is not called before."""

    def start(self) -> None:
        """Begin what goes on in the background, once the connection is under way."""

    def connected(self, *, begun_anew: bool) -> None:
        """Note a new connection, to a broker that may have lost what it had.

        With `begun_anew` the broker answers nothing that was under way.
        """

    def heard(self, message: Message) -> bool:
        """Take note of a message that is no frame of a known stream of symbols; whether it was for nobody else."""
        return False

    def born(self, device: str) -> None:
        """Note that a device has come online."""

    def stored(self, heard: Sequence[Heard]) -> None:
        """Note that frames of streams are durable, or refused for good."""

    def acknowledged(self, message_id: int, accepted: bool) -> None:
        """Take the broker's answer for a message that was published."""

    def renew(self) -> None:
        """Note that the policies of the fleet have changed."""

    def pump(self, *, idle: bool = False) -> None:
        """Do one small piece of work; `idle` if nothing has arrived."""

    def close(self) -> None:
        """Close what was opened; the store is closed by then."""

    @property
    def busy(self) -> bool:
        """True if there is work to do now, or there may be."""
        return False

    @property
    def finished(self) -> bool:
        """True if nothing is owed or under way."""
        return True

    def details(self) -> dict[str, object]:
        """Return its share of what the gateway tells of itself."""
        return {}
