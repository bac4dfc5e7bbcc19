"""The calls that the gateway's loop makes to each of its parts; only configured parts are made.

This room has the parts that tell what streams are: descriptions, Home Assistant, tables for devices.

In a round, the messages are stored in one transaction, and the parts hear of them. Then each part that is due does one
small piece of work. The worker's thread makes all calls but these: another thread calls `start` and `close`, and the
monitor calls `details`. If a call raises an error of store or ledger, the loop counts it, and goes on with the next
part.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from fugu.contract.errors import FuguError, Reason
from fugu.contract.frames import PolicyStatus, Status
from fugu.contract.reports import AlarmCode
from fugu.contract.topics import Topic, parse_topic

if TYPE_CHECKING:
    from fugu.contract.measure_table import TimedTable
    from fugu.mqtt import Link
    from gateway.estimates.catalogue import Catalogue
    from gateway.store.journal import NewestFrame
    from gateway.store.store import Store

__all__ = ["Loop", "Message", "Part", "Registered", "Stopping"]

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


class Stopping(NamedTuple):
    """The means of stopping devices: `sign` returns the signed stop of a device, up to a version of policy documents.

    `newest` returns the version of the fleet's newest policy document, `in_force` by device the version that the device
    has reported, or 0.
    """

    sign: Callable[[str, int], bytes]
    newest: Callable[[], int]
    in_force: Callable[[], dict[str, int]]


class Registered:
    """The devices in a fleet's registry; here none, as for a site without a registry."""

    @property
    def stopping(self) -> Stopping | None:
        """The means of stopping devices, `None` if nothing is signed."""
        return None

    def has(self, device: str) -> bool:
        """Return whether a device is in the registry, with a policy or without."""
        return False

    def has_left(self, device: str) -> bool:
        """Return whether a device was in the registry, and is no longer; any thread may call this."""
        return False

    def key(self, device: str) -> bytes | None:
        """Return the key by which a registered device checks its watermarks, `None` for other devices."""
        return None

    def table_bytes(self, device: str, stream: str, table: TimedTable) -> bytes:
        """Return the bytes of a table for a device: signed, if the device is registered."""
        return table.encode()

    def refresh(self) -> bool:
        """Read the registry again. Return whether there are new policies, or a device has come or gone."""
        return False

    def close(self) -> None:
        """Close the registry."""


class Notes(Protocol):
    """The monitor of a gateway, as its parts see it: `gateway.health.monitor.Monitor`."""

    def note(self, code: AlarmCode, name: str = "", detail: str = "") -> None:
        """Note an event for an alarm."""

    def hold(self, code: AlarmCode, names: Iterable[str] | Mapping[str, str]) -> None:
        """Let a code's alarms hold for exactly these names, which may come with details, until the next call."""

    def note_refusal(self, device: str, reason: Reason) -> None:
        """Note the refusal of a message under a device's name."""

    def note_frames(self, newest_frames: Iterable[NewestFrame]) -> None:
        """Note each device's newest valid frame."""

    def clock_ahead(self) -> float | None:
        """Return the seconds by which this clock is ahead of the devices' clocks, `None` if that is unknown."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The objects of a gateway that its parts share.

    Attributes:
        parts: all parts, in the order of a round.
        now_us: returns the Unix time in microseconds.
        seconds: returns the time of a monotonic clock.
    """

    store: Store
    link: Link
    catalogue: Catalogue
    counters: Counter[str]
    registered: Registered
    monitor: Notes
    parts: list[Part] = field(default_factory=list)
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000
    seconds: Callable[[], float] = time.monotonic


class Part:
    """A part of the gateway's loop, whose calls do nothing; each part overrides some of them."""

    topics: tuple[str, ...] = ()
    """The topic filters that the gateway's connection subscribes to for this part."""
    due = 0.0
    """The earliest time of the next call of `pump`, by the monotonic clock."""

    def __init__(self, loop: Loop) -> None:
        self._store, self._link, self._catalogue = loop.store, loop.link, loop.catalogue
        self._fleet, self._counters = loop.catalogue.fleet, loop.counters
        self._registered, self._monitor = loop.registered, loop.monitor
        self._now_us, self._seconds = loop.now_us, loop.seconds

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

    def stored(self, newest_frames: Sequence[NewestFrame]) -> None:
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
