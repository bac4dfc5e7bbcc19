"""Records of a ledger: accounts and allowances, releases and entries.

Equal documents have equal bytes, and their digest names them.

Streams that move together share their charges. Given the states of a joint chain, releases about its streams are
independent. So charges of a tick add up over all these streams, against the allowance of the joint class. Source:
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
    "AccountKey",
    "Allowance",
    "Content",
    "Entry",
    "LouderTicks",
    "Promise",
    "Release",
    "State",
    "Stream",
    "StreamPast",
    "base_problem",
    "canonical_bytes",
    "digest",
    "inputs_digest",
    "named_streams",
    "together_name",
    "uncharged_problem",
]


Stream = tuple[str, str]
"""A device and one of its streams."""


def named_streams(chains: ReleaseClass, device: str) -> frozenset[Stream]:
    """The streams that a class of chains of a device's policy names; empty unless it names two or more."""
    if len(chains.named_streams) < 2:
        return frozenset()
    name_parts = [shown_streams.name.rpartition("/") for shown_streams in chains.named_streams]
    return frozenset((owner or device, stream) for owner, _, stream in name_parts)


def together_name(members: Iterable[Stream]) -> str:
    """Name streams that move together: the names joined by "+", with the device once if all are of one device."""
    streams = sorted(members)
    if len({device for device, _ in streams}) == 1:
        return f"{streams[0][0]}/{'+'.join(stream for _, stream in streams)}"
    return "+".join(f"{device}/{stream}" for device, stream in streams)


def canonical_bytes(document: Mapping[str, Any]) -> bytes:
    """Write a document of plain values as JSON, so that equal documents have equal bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(document: bytes) -> str:
    """The SHA-256 of canonical bytes, as hexadecimal digits."""
    return hashlib.sha256(document).hexdigest()


def inputs_digest(question: bytes, first: int, inputs: bytes) -> str:
    """Compute one digest of a question, its window's first wall tick and its inputs, all as canonical bytes."""
    return digest(canonical_bytes({"question": digest(question), "first": first, "inputs": digest(inputs)}))


SITE = "site"
"""The audience that sees the symbols anyway: a release to the site is post-processing, and charges nothing."""
DEVICE_WINDOWS = ("device-windows", "mixed")
"""Kinds of noise with windows that devices released themselves: an account's base is the charge of these."""
CHARGED_BEFORE = "counted by devices: the base of their accounts holds it"
"""The reason why a release of devices' own windows charges nothing."""
State = Literal["reserved", "published", "abandoned"]


class AccountKey(NamedTuple):
    """The key of an account: a stream of a device, and an audience."""

    device: str
    stream: str
    audience: str

    def __str__(self) -> str:
        return f"{self.device}/{self.stream}, audience {self.audience}"


class Promise(NamedTuple):
    """Promise to an audience: any stretch of `seconds` loses at most epsilon; 0 seconds mean a single tick."""

    epsilon: float
    adversary: Adversary
    seconds: int = 0

    def ticks(self, period_us: int) -> int:
        """The most ticks that a stretch can have, for a tick period in microseconds."""
        return stretch_ticks(self.seconds, period_us) if self.seconds else 1

    def __str__(self) -> str:
        """The promise as part of a sentence."""
        stretch = f" about any {self.seconds} seconds" if self.seconds else ""
        return f"{self.epsilon:.10g}{stretch} ({self.adversary})"


class StreamPast(NamedTuple):
    """Facts about streams that a ledger knows, and no policy any more.

    Attributes:
        classes: classes of chains, with tick periods in microseconds, in force when a store may have been lost.
        lost: whether charges may have been lost.
    """

    classes: tuple[tuple[ReleaseClass, int], ...] = ()
    lost: bool = False


NO_PAST = StreamPast()


class Allowance(NamedTuple):
    """The terms of an account.

    Attributes:
        allowance: the largest total charge to every tick: the least that any of the classes allows.
        base: the part of the allowance that the device's own windows take.
        period_us: the shortest tick period of the classes' policies, in microseconds.
        chains: the classes of chains.
    """

    key: AccountKey
    allowance: int
    base: int
    promise: Promise
    period_us: int
    mechanism: Mechanism
    chains: tuple[ReleaseClass, ...]


class LouderTicks(NamedTuple):
    """Ticks of a stream of which an audience was told more than it may be told now.

    Attributes:
        last: the last such tick, as the device numbers it.
        excess: by how much, at most, a charge is above today's allowance; `None` if a lost ledger had the charges.
    """

    last: int
    excess: int | None


class Account(NamedTuple):
    """The state of an account.

    Attributes:
        spent: the largest charge of releases to a tick, without the base.
        first, last: first and last tick with a charge, -1 if there is none.
        runs: number of rows that the charges take.
        exclusive: number of the only release that this account may ever have; 0 if it had none that does not compose.
        together: name of the streams that move together and share their charges; empty if the stream is alone.
        spent_together: the largest charge to a tick by releases about all these streams, without the base.
    """

    key: AccountKey
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
        """The charge that is left for the tick that was charged most."""
        return 0 if self.exclusive else max(self.allowance - self.base - self.spent_together, 0)


@dataclass(frozen=True, slots=True)
class Release:
    """A release that the ledger may accept or refuse; `name` and `first` say which window of which schedule it is.

    Attributes:
        first, last: wall ticks.
        since_us: the beginning of the first wall tick, in microseconds of Unix time.
        charges: the charge to every tick of the release, by device.
        shifts: by how much a device's tick numbers, which are charged, are ahead of the wall ticks, by device; 0 if not
            given.
        noise, scale: who adds the noise, and its scale.
        reason: the reason why there is no charge; empty if there is one.
        basis: of a mechanism that does not compose, the basis of its scale, as JSON.
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
        if problem := uncharged_problem(self.audience, self.topic, self.charges.values(), self.noise):
            raise LedgerError(f"release {self.name}: {problem}")

    @property
    def exclusive(self) -> bool:
        """Tell whether the mechanism does not compose: no other release of these streams to this audience, ever."""
        return self.mechanism in ALONE


class Content(NamedTuple):
    """The content of a release with its noise.

    Attributes:
        payload: the bytes to publish.
        question, inputs, tables: documents of the release, as `gateway.releases.inputs` writes them.
    """

    payload: bytes
    question: bytes
    inputs: bytes
    tables: tuple[bytes, ...] = ()


class Entry(NamedTuple):
    """A reserved release: its charge stands, whatever its state."""

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


def uncharged_problem(audience: str, topic: str, charges: Iterable[int], noise: str) -> str:
    """Say why a release would tell readers more than they are charged for, or ''.

    Only a release to the site, or of windows that devices released themselves, charges nothing: an account's base has
    the charge of the latter. A release is charged to the audience that may read its topic.
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


def base_problem(key: AccountKey, allowance: int, base: int) -> str:
    """Say why nothing of a stream can be released to an audience, and what to change, or ''."""
    if base <= allowance:
        return ""
    return (
        f"{key}: nothing can be released. Windows of a policy that the device ran, or may run, take {nats(base):.3g} "
        f"of the audience's {nats(allowance):.3g} nats. Ask for a new audience with a larger epsilon, or plan windows "
        "with more noise before any device has that policy"
    )
