"""Values of a ledger: accounts, what they allow, entries and releases.

Equal documents have equal bytes, and their digest names them.

Streams that move together share their charges. Given the states of a joint chain, releases about its streams are
independent. So charges of a tick add up over all of them, against the allowance of the joint class. Source:
docs/proofs/joint-streams.md, "Streams that move together".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fugu.contract.errors import TopicError
from fugu.contract.losses import Adversary
from fugu.contract.reports import Noise
from fugu.contract.stretches import stretch_ticks
from fugu.contract.topics import parse_topic
from fugu.contract.windows import ALONE, Mechanism
from gateway.releases.charges import nats
from gateway.store.engine import LedgerError

if TYPE_CHECKING:
    from fugu.privacy.chain_class import ReleaseClass  # the page, which reads entries, has no numerical library

__all__ = [
    "CHARGED_BEFORE",
    "NO_PAST",
    "SITE",
    "Account",
    "Allowance",
    "Drawn",
    "Entry",
    "Key",
    "Louder",
    "Past",
    "Promise",
    "Release",
    "State",
    "Stream",
    "canonical",
    "digest",
    "inputs_digest",
    "named_streams",
    "standing_problem",
    "together_name",
    "uncharged",
]


Stream = tuple[str, str]
"""A device and one of its streams."""


def named_streams(chains: ReleaseClass, device: str) -> frozenset[Stream]:
    """The streams that a class of a device's policy is of, if they are several; else none."""
    if len(chains.named_streams) < 2:
        return frozenset()
    parts = [shown.name.rpartition("/") for shown in chains.named_streams]
    return frozenset((owner or device, stream) for owner, _, stream in parts)


def together_name(members: Iterable[Stream]) -> str:
    """Name of streams that move together: their names, with the device once if it is one."""
    streams = sorted(members)
    if len({device for device, _ in streams}) == 1:
        return f"{streams[0][0]}/{'+'.join(stream for _, stream in streams)}"
    return "+".join(f"{device}/{stream}" for device, stream in streams)


def canonical(document: Mapping[str, Any]) -> bytes:
    """The one way to write a document of plain values."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(document: bytes) -> str:
    """The SHA-256 of canonical bytes, as hexadecimal digits."""
    return hashlib.sha256(document).hexdigest()


def inputs_digest(question: bytes, first: int, inputs: bytes) -> str:
    """The digest of what was read for a question about the window that begins at a wall tick, all of it canonical."""
    return digest(canonical({"question": digest(question), "first": first, "inputs": digest(inputs)}))


SITE = "site"
"""The audience that sees the symbols anyway: a release to it is post-processing, and charges nothing."""
DEVICE_WINDOWS = ("device-windows", "mixed")
"""Noise of windows which devices released themselves: an account's base is their charge."""
CHARGED_BEFORE = "counted by devices: the base of their accounts holds it"
"""Why windows of devices charge nothing once more."""
State = Literal["reserved", "published", "abandoned"]


class Key(NamedTuple):
    """Whom a charge is for: what an audience may still learn about a stream of a device."""

    device: str
    stream: str
    audience: str

    def __str__(self) -> str:
        return f"{self.device}/{self.stream}, audience {self.audience}"


class Promise(NamedTuple):
    """Promise to an audience: any stretch of so many seconds loses at most epsilon; 0 seconds are a tick."""

    epsilon: float
    adversary: Adversary
    seconds: int = 0

    def ticks(self, period_us: int) -> int:
        """The most ticks of such a stretch."""
        return stretch_ticks(self.seconds, period_us) if self.seconds else 1

    def __str__(self) -> str:
        """As it is said in a sentence."""
        about = f" about any {self.seconds} seconds" if self.seconds else ""
        return f"{self.epsilon:.10g}{about} ({self.adversary})"


class Past(NamedTuple):
    """Facts of streams that policies do not say.

    Attributes:
        classes: classes with periods that were in force when a store may have been lost.
        lost: whether charges may be.
    """

    classes: tuple[tuple[ReleaseClass, int], ...] = ()
    lost: bool = False


NO_PAST = Past()


class Allowance(NamedTuple):
    """Largest total charge to every tick of an account, and `base`, the part that the device itself releases.

    Of the classes of chains the least allowance counts; `period_us` is the shortest from tick to tick of their
    policies.
    """

    key: Key
    allowance: int
    base: int
    promise: Promise
    period_us: int
    mechanism: Mechanism
    chains: tuple[ReleaseClass, ...]


class Louder(NamedTuple):
    """Ticks of a stream of which an audience was told more than it may be told now.

    Attributes:
        last: the last of them, as its device numbers it.
        excess: how much more that was at most; `None` if the ledger has lost what was charged.
    """

    last: int
    excess: int | None


class Account(NamedTuple):
    """The state of an account.

    Attributes:
        spent: the most that releases have charged to a tick; the base is not in it.
        first, last: ticks that have been charged, -1 if none has.
        runs: rows that the charges take.
        exclusive: number of the one release that this account may ever have, 0 if there is none such.
        together: the streams that move together, to whose ticks charges are added up; empty if it is one by itself.
        spent_together: the most that releases about all of these have charged to a tick.
    """

    key: Key
    allowance: int
    base: int
    spent: int
    first: int
    last: int
    runs: int
    exclusive: int
    mechanism: Mechanism
    together: str = ""
    spent_together: int = 0

    @property
    def remaining(self) -> int:
        """The charge that is left for the tick that has been charged most."""
        return 0 if self.exclusive else max(self.allowance - self.base - self.spent_together, 0)


@dataclass(frozen=True, slots=True)
class Release:
    """A release that asks to be made; `name` and `first` say which window of which schedule this is.

    Attributes:
        first, last: wall ticks.
        since_us: when the first of them is, in microseconds of Unix time.
        charges: for each device, what every one of these ticks is charged.
        shifts: by how much a device's tick numbers, which are charged, are ahead of the wall ticks; 0 if not given.
        noise, scale: who adds it, and how much.
        reason: why there is no charge, if there is none.
        basis: of a mechanism that does not compose, what its scale follows from, as JSON.
    """

    name: str
    audience: str
    stream: str
    first: int
    last: int
    charges: Mapping[str, int]
    mechanism: Mechanism
    noise: Noise
    scale: str
    topic: str
    reason: str = ""
    basis: str = ""
    shifts: Mapping[str, int] = field(default_factory=dict)
    since_us: int = field(kw_only=True)

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            raise LedgerError(f"release {self.name}: ticks {self.first}..{self.last} are none")
        if min(self.shifts.values(), default=0) < 0:
            raise LedgerError(f"release {self.name}: tick numbers are never behind the wall clock")
        if not self.charges or min(self.charges.values()) < 0:
            raise LedgerError(f"release {self.name}: every device needs a charge of at least 0, and there must be one")
        if min(self.charges.values()) == 0 and (not self.reason or self.exclusive):
            raise LedgerError(f"release {self.name}: a charge of 0 needs a reason")
        if problem := uncharged(self.audience, self.topic, self.charges.values(), self.noise):
            raise LedgerError(f"release {self.name}: {problem}")

    @property
    def exclusive(self) -> bool:
        """True if the mechanism does not compose: no other release of these streams to this audience, ever."""
        return self.mechanism in ALONE


class Drawn(NamedTuple):
    """A release with its noise: the bytes to publish; question and inputs as `gateway.releases.inputs` writes them."""

    payload: bytes
    question: bytes
    inputs: bytes
    tables: tuple[bytes, ...] = ()


class Entry(NamedTuple):
    """A release that was reserved: its charge stands, whatever became of it."""

    number: int
    name: str
    audience: str
    stream: str
    time_us: int
    mechanism: Mechanism
    noise: Noise
    scale: str
    first: int
    last: int
    exclusive: bool
    basis: str
    reason: str
    state: State
    topic: str
    payload: bytes


def uncharged(audience: str, topic: str, charges: Iterable[int], noise: str) -> str:
    """Why a release would tell somebody something that is not charged to them; empty if it would not.

    Only the site is told things without a charge, and what devices released themselves, with which an account begins. A
    release is charged to those whom its topic lets read it.
    """
    try:
        readers = parse_topic(topic).audience
    except TopicError as error:
        return str(error)
    if readers != audience:
        return f"is charged to audience {audience}, and its topic is that of {readers or 'a device'}"
    if audience != SITE and noise not in DEVICE_WINDOWS and min(charges, default=0) == 0:
        return f"charges nothing, and audience {audience} does not see the symbols"
    return ""


def standing_problem(key: Key, allowance: int, base: int) -> str:
    """Why nothing can be released of a stream to an audience, and what to change; empty if something can."""
    if base <= allowance:
        return ""
    return (
        f"{key}: nothing can be released. Windows of a policy that the device ran, or may run, take {nats(base):.3g} "
        f"of the audience's {nats(allowance):.3g} nats. Ask for a new audience with a larger epsilon, or plan windows "
        "with more noise before any device has that policy"
    )
