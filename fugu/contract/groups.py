"""Groups: homes of which only sums become known, with one noise for all of them.

A *group document* is fixed and signed by the key of its *helper*, whom the homes' site does not control. A policy
contains the whole document with its signature, and adds nothing to it. A device takes part only if its own
configuration pins the helper and its least protection (`GroupPin`): the authors of policies can choose neither.

One tick of one home moves a sum by at most 1, and `honest` shares are discrete Laplace noise. So the sum adds
`fugu.core.shares.rate_up` to the loss of each of the home's ticks, as if the home had drawn all of the noise. That
holds for an attacker who sees all sums, knows all other homes, and knows the shares of all but `honest` homes in the
sum. It needs two things: the helper opens one set of each window once, and `honest` homes in it are real, honest and
silent.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, StringConstraints

from fugu.contract._document import Document, Printable, read_document, write_document
from fugu.contract.errors import PolicyError, Reason, TrustError
from fugu.contract.frames import MAX_ANSWERS, MAX_TICK, MAX_WINDOW_TICKS, WINDOW_NAME_PATTERN
from fugu.contract.noise_table import SCALE
from fugu.contract.queries import Query, query_of
from fugu.contract.sentences import LAST_US, sum_condition
from fugu.contract.stretches import Ceiling
from fugu.contract.topics import NAME_PATTERN
from fugu.contract.windows import Blocks

if TYPE_CHECKING:  # few policies have groups, and a gateway without any needs no more of this than their form
    from fugu.contract.envelope import Envelope, Kind

__all__ = ["GroupDocument", "GroupPin", "SharedWindow", "check_signed", "largest_noise", "noise_rate"]

_DAY_US = 86_400_000_000
MAX_HOMES = 10_000
Hex64 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
GroupName = Annotated[str, Field(pattern=WINDOW_NAME_PATTERN)]


class GroupDocument(Document):
    """A sum over homes: what is counted, in which windows, and how much noise each home adds.

    Its properties are those of a `fugu.contract.windows.Window`, as an attacker who knows all other homes sees the sum.

    Attributes:
        name: of the group, and of the window in each policy.
        helper: the public key that signs this document, opening keys and answers.
        states: all states of the homes' streams.
        count: the states whose ticks are counted.
        epoch_us, period_us: of the streams' clock.
        start, length: window n has the wall ticks start + n * length .. + length - 1; at most a day.
        blocks: of the local day, with a sum each; a window is then a day.
        honest: m, the number of shares that are the whole noise; m homes in a sum have to be real, honest and silent.
        colluding: c, the number of further homes in every sum.
        noise: A: a share is 0 on one side with probability A / 2^32.
        deadline: seconds after a window's end at which the site settles the set of homes that it asks for.
        valid_from: Unix seconds; windows that begin earlier belong to the document before, if there is one.
    """

    kind: ClassVar = "sum"
    document: Literal["group"] = "group"
    fleet: Name
    name: GroupName
    helper: Hex64
    stream: Name
    states: tuple[Printable, ...] = Field(min_length=2, max_length=255)
    count: tuple[Printable, ...] = Field(min_length=1, max_length=254)
    epoch_us: int = Field(ge=0, le=LAST_US)
    period_us: int = Field(ge=100, le=_DAY_US)
    start: int = Field(default=0, ge=0, le=MAX_TICK - MAX_WINDOW_TICKS)
    length: int = Field(ge=1, le=MAX_WINDOW_TICKS)
    blocks: Blocks | None = None
    honest: int = Field(ge=1, le=MAX_HOMES)
    colluding: int = Field(ge=0, le=MAX_HOMES)
    noise: int = Field(ge=1, lt=SCALE)
    deadline: int = Field(ge=1, le=86_400)
    valid_from: int = Field(default=0, ge=0, le=2**53)

    def _check_consistency(self) -> None:
        if re.search("-[0-9]+$", self.name):
            raise ValueError("a group's name does not end in - and digits: the sums of a group's blocks are called so")
        if len(set(self.states)) != len(self.states):
            raise ValueError("two states have the same name")
        if len(set(self.count)) != len(self.count) or not set(self.count) < set(self.states):
            raise ValueError("count is some of the states, each once, and not all of them")
        if self.length * self.period_us > _DAY_US:
            raise ValueError("windows longer than a day: a restart of the helper would lose too much")
        if 2 * _DAY_US + self.deadline * 1_000_000 >= (MAX_ANSWERS - 1) * self.length * self.period_us:
            raise ValueError("windows so short that a helper cannot remember all that it has answered: take 10 seconds")
        if self.blocks is not None and self.length * self.period_us != _DAY_US:
            raise ValueError("blocks of a day are for windows of a day")

    @property
    def payload(self) -> bytes:
        """The document as the bytes that are signed."""
        return write_document(self)

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the signed bytes, which names the document in reports."""
        from fugu.contract.envelope import signed_bytes

        return hashlib.sha256(signed_bytes("group", self.payload)).digest()

    @property
    def helper_digits(self) -> str:
        """The digits by which people compare the helper's key."""
        from fugu.contract.envelope import key_digits

        return key_digits(bytes.fromhex(self.helper))

    @property
    def quorum(self) -> int:
        """The least number of homes in a sum."""
        return self.honest + self.colluding

    @property
    def rate(self) -> Fraction:
        """The loss that the sum adds to each of a home's ticks, in nats, rounded up."""
        return noise_rate(self.noise, self.honest)

    @property
    def scale(self) -> str:
        """The least scale of the honest homes' noise, in ticks."""
        return str(1 / self.rate)

    @property
    def stride(self) -> int:
        """Ticks from the beginning of one window to that of the next."""
        return self.length

    @property
    def query(self) -> Query:
        """The query about the ticks of a window."""
        return query_of(self.count, self.blocks)

    def groups(self, labels: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """Return for each sum the indices of the states that it counts."""
        return self.query.groups(tuple(map(labels.index, self.count)))

    @property
    def sum_count(self) -> int:
        """The number of sums of a window."""
        return len(self.query.groups(self.count))

    @property
    def release_names(self) -> tuple[str, ...]:
        """The names of the sums' releases: the group's name, or a name for each block of the day."""
        return tuple(f"{self.name}-{block}" for block in range(self.sum_count)) if self.sum_count > 1 else (self.name,)

    def begins_us(self, window_number: int) -> int:
        """Return the time at which a window begins, in microseconds of Unix time."""
        return self.epoch_us + (self.start + window_number * self.length) * self.period_us

    def due_us(self, window_number: int) -> int:
        """Return the time at which the site settles the set of a window, in microseconds of Unix time."""
        return self.begins_us(window_number + 1) + self.deadline * 1_000_000

    @classmethod
    def read(cls, envelope: Envelope) -> Self:
        """Read the document of an envelope; TrustError unless its helper alone has signed exactly these bytes."""
        if envelope.kind != "group":
            raise TrustError(f"a {envelope.kind} document where a group's was expected")
        document = read_document(cls, envelope.payload)
        if document.payload != envelope.payload or len(envelope.signatures) != 1:
            raise TrustError("a group document in other bytes than it has, or not signed once")
        check_signed(envelope, "group", bytes.fromhex(document.helper))
        return document


@lru_cache(maxsize=256)  # policies of a fleet have few groups
def noise_rate(noise: int, honest: int) -> Fraction:
    """Return the loss that a sum with `honest` shares adds to each tick of a home, in nats, rounded up."""
    from fugu.core.shares import UNIT, rate_up

    return Fraction(rate_up(noise, honest), 1 << UNIT)


def largest_noise(scale: Fraction, honest: int) -> int:
    """Return the largest A for which `honest` shares are noise of at least a scale in ticks; PolicyError if none is."""
    noise = bisect_left(range(1, SCALE), True, key=lambda noise: noise_rate(noise, honest) * scale > 1)
    if not noise:
        raise PolicyError(f"no share of {honest} homes has noise of {float(scale):.3g} ticks")
    return noise


def check_signed(envelope: Envelope, kind: Kind, helper: bytes) -> None:
    """Refuse, by a TrustError, an envelope of another kind or without the helper's signature."""
    from cryptography.exceptions import InvalidSignature  # who reads policies without groups does not need it
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from fugu.contract.envelope import key_name

    if envelope.kind != kind or [signature.key for signature in envelope.signatures] != [key_name(helper)]:
        raise TrustError(f"no {kind} that this helper has signed", Reason.WRONG_ROLE)
    try:
        Ed25519PublicKey.from_public_bytes(helper).verify(envelope.signatures[0].signature, envelope.message)
    except (InvalidSignature, ValueError):
        raise TrustError("a signature does not match the document", Reason.BAD_SIGNATURE) from None


class SharedWindow(Document):
    """A window whose counts a device adds to the sum of a group: the group's signed document."""

    group: GroupDocument
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$")]

    def _check_consistency(self) -> None:
        GroupDocument.read(self.envelope)

    @classmethod
    def of(cls, envelope: Envelope) -> Self:
        """Make the window of a signed document; TrustError, PolicyError or ValidationError if it is not valid."""
        return cls(group=GroupDocument.read(envelope), signature=envelope.signatures[0].signature.hex())

    def check_stream(self, fleet: str, stream: str, states: tuple[str, ...], clock: tuple[int, int]) -> None:
        """Refuse another stream than the group's, or another epoch or period, by a ValueError."""
        group, policy_values = self.group, (fleet, stream, states, clock)
        group_values = group.fleet, group.stream, group.states, (group.epoch_us, group.period_us)
        for field, value, expected in zip(
            ("fleet", "stream", "states", "clock"), policy_values, group_values, strict=True
        ):
            if value != expected:
                raise ValueError(f"the {field} of group {group.name} is another: {expected}, and here {value}")

    @property
    def envelope(self) -> Envelope:
        """The envelope of the signed document."""
        from fugu.contract.envelope import Envelope, Signature, key_name

        signature = Signature(key_name(bytes.fromhex(self.group.helper)), bytes.fromhex(self.signature))
        return Envelope("group", self.group.payload, (signature,))

    @property
    def condition(self) -> str:
        """The condition under which the epsilons of a policy with this sum are true, in a sentence."""
        return sum_condition(self.group.name, self.group.helper_digits, self.group.honest)


class GroupPin(Document):
    """The owner's terms for taking part in a group, written on the device only (`fugu-agent join`).

    Attributes:
        helper: the 30 digits of the helper's key.
        honest: the least m that is accepted.
        most: the largest epsilon of all outputs of the stream about a stretch of time.
    """

    name: GroupName
    helper: Annotated[str, StringConstraints(pattern="^([0-9]{5} ){5}[0-9]{5}$")]
    honest: int = Field(ge=1, le=MAX_HOMES)
    most: Ceiling

    def refusal(self, group: GroupDocument) -> str | None:
        """Return the reason why a document is not within these terms, epsilon aside, or `None` if it is."""
        if group.helper_digits != self.helper:
            return f"the helper of group {self.name} is another than the one whose digits were typed in here"
        if group.honest < self.honest:
            return f"group {self.name} counts on {group.honest} honest homes; here at least {self.honest} are wanted"
        return None
