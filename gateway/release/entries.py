"""What a ledger holds, as values; all charges are whole units of `gateway.release.charges`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from fugu.contract.chains import ChainClass
from fugu.contract.errors import FuguError, TopicError
from fugu.contract.guarantee import Adversary
from fugu.contract.mechanisms import ALONE, Mechanism
from fugu.contract.release_frames import Noise
from fugu.contract.topics import parse_topic
from gateway.release.charges import nats

__all__ = [
    "DEVICE_WINDOWS",
    "SITE",
    "Account",
    "Allowance",
    "Drawn",
    "Entry",
    "Key",
    "LedgerError",
    "Release",
    "State",
    "refusal",
    "uncharged",
]

SITE = "site"
"""The audience that sees the symbols anyway: a release to it is post-processing, and charges nothing."""

DEVICE_WINDOWS = ("device-windows", "mixed")
"""Noise of windows which devices released themselves: an account's base is their charge."""

State = Literal["reserved", "published", "abandoned"]


class LedgerError(FuguError):
    """The ledger refuses a release, or cannot be used; one line that says why."""


class Key(NamedTuple):
    """Whom a charge is for: what an audience may still learn about a stream of a device."""

    device: str
    stream: str
    audience: str

    def __str__(self) -> str:
        """As errors name it."""
        return f"{self.device}/{self.stream}, audience {self.audience}"


class Allowance(NamedTuple):
    """What may be charged to every tick of an account, and what stands against it.

    Attributes:
        allowance: the largest total of a tick.
        base: standing charge of every tick, of what the device itself releases to this audience.
        epsilon, adversary, mechanism, chains: what the allowance was computed for: the promise, by whose rule releases
            keep it, and the classes of chains, of which the least allowance counts.
    """

    key: Key
    allowance: int
    base: int
    epsilon: float
    adversary: Adversary
    mechanism: Mechanism
    chains: tuple[ChainClass, ...]


class Account(NamedTuple):
    """The state of an account.

    Attributes:
        spent: the most that releases have charged to a tick; the base is not in it.
        first, last: ticks that have been charged, -1 if none has.
        runs: rows that the charges take.
        exclusive: number of the one release that this account may ever have, 0 if there is none such.
        mechanism: by whose rule its releases are charged.
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
        """What may still be charged to the tick that has been charged most."""
        return 0 if self.exclusive else max(self.allowance - self.base - self.spent_together, 0)


@dataclass(frozen=True, slots=True)
class Release:
    """A release that asks to be made.

    Attributes:
        name: of the release; together with `first` it says which window of which schedule this is.
        first, last: wall ticks.
        charges: for each device, what every one of these ticks is charged.
        shifts: by how much a device's tick numbers, which are charged, are ahead of the wall ticks; 0 if not given.
        mechanism: by whose rule it is charged.
        noise, scale: who adds it, and how much.
        topic: where the release is published.
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

    def __post_init__(self) -> None:
        """Refuse what cannot be accounted for."""
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
        """Whether the mechanism does not compose: no other release of these streams to this audience, ever."""
        return self.mechanism in ALONE


class Drawn(NamedTuple):
    """A release with its noise, and what it was computed from, all of it canonical.

    Attributes:
        payload: to publish.
        question: that it answers, as `gateway.release.question` writes it.
        inputs: as `gateway.release.inputs` writes them: the sums before noise, and the noise.
        tables: the noise tables that the inputs name.
    """

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

    Only the site is told things for nothing, and what devices released themselves, with which an account begins; and
    whom a release is charged to is whom its topic lets read it.
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


def refusal(key: Key, first: int, last: int, reached: int, allowance: int, together: str = "") -> LedgerError:
    """The error of a release that would push ticks above their allowance, with all streams that move together."""
    who = f"{key}, with all of {together}, which move together" if together else f"{key}"
    return LedgerError(
        f"{who}: ticks {first}..{last} would reach {nats(reached):.12g} of {nats(allowance):.12g} allowed, "
        f"{nats(reached - allowance):.12g} too much"
    )
