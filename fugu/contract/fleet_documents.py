"""The signed documents of a fleet, read only after `fugu.core.judge` has had their signatures checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from itertools import zip_longest
from typing import Annotated, Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import Field, ValidationError

from fugu.contract._document import Document, DocumentFile, first_problem, read_document, write_document
from fugu.contract.compiled import read_policy as read_agent_policy
from fugu.contract.compiler import compile_board_policies, compile_board_policy, compile_policy
from fugu.contract.envelope import Envelope, key_name
from fugu.contract.errors import PolicyError, Reason, TrustError
from fugu.contract.frames import KEY_BYTES
from fugu.contract.losses import Adversary
from fugu.contract.pins import Pins
from fugu.contract.policies import AnyPolicy, read_policy
from fugu.contract.policy import Name, Policy
from fugu.contract.stretches import Ceiling
from fugu.core import judge as core
from fugu.core.compiled import read_policy as read_board_policy
from fugu.core.policy import PolicyError as CompiledError
from fugu.core.trust import RefusedError

__all__ = [
    "INSERTED",
    "Address",
    "Enrolment",
    "PolicyDocument",
    "Role",
    "RootDocument",
    "StopDocument",
    "TableDocument",
    "TimeDocument",
    "board_units",
    "check_compiled",
    "compile_document",
    "compile_for_boards",
    "read_document",
    "read_enrolment",
    "signatures_match",
    "trust_errors",
    "verify_signatures",
    "write_document",
]

Hex32 = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Hex64 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Compiled = Annotated[str, Field(pattern="^([0-9a-f]{2})+$", max_length=1 << 21)]
Seconds = Annotated[int, Field(ge=0, le=2**53)]
Version = Annotated[int, Field(ge=1, le=2**32 - 1)]
INSERTED = ("fleet", "device", "version")
"""Fields of a policy that its document has, and that the policies in it leave out."""
_MAX_SHOWN = 60


class Role(Document):
    """The keys whose signatures count for a role, and how many of them have to sign."""

    keys: tuple[Hex32, ...] = Field(min_length=1, max_length=16)
    threshold: int = Field(ge=1, le=16)

    def _check_consistency(self) -> None:
        if len(set(self.keys)) != len(self.keys):
            raise ValueError("a role names a key twice")
        if self.threshold > len(self.keys):
            raise ValueError(f"a threshold of {self.threshold} with {len(self.keys)} keys can never be met")


class RootDocument(Document):
    """The fleet's keys; signed by its own root keys and the root keys of the document before it.

    Attributes:
        keys: public keys by name.
        root, policy, gateway: the roles that sign new roots; policies; tables, times and stops. No key is in two roles.
    """

    document: Literal["root"] = "root"
    fleet: Name
    version: Version
    keys: dict[Hex32, Hex64] = Field(min_length=1, max_length=48)
    root: Role
    policy: Role
    gateway: Role

    def _check_consistency(self) -> None:
        for name, public_key in self.keys.items():
            if key_name(bytes.fromhex(public_key)).hex() != name:
                raise ValueError(f"key {name} is not the one of its name")
        roles = [*self.root.keys, *self.policy.keys, *self.gateway.keys]
        if len(set(roles)) != len(roles):
            raise ValueError("a key is in two roles")
        if set(roles) != set(self.keys):
            raise ValueError("every key has one role, and every key of a role is there")


class Address(Document):
    """The receivers of a policy document: exactly one of a device, a group and everyone."""

    device: Name | None = None
    group: Name | None = None
    everyone: Literal[True] | None = None

    def _check_consistency(self) -> None:
        if sum(field is not None for field in (self.device, self.group, self.everyone)) != 1:
            raise ValueError("a document is for a device, a group or everyone: give exactly one")

    def reaches(self, device: str, groups: tuple[str, ...]) -> bool:
        """True if the document is for a device in some groups."""
        return bool(self.everyone) or self.device == device or (self.group is not None and self.group in groups)

    @property
    def example(self) -> str:
        """The name of the device, or a placeholder for the devices of a group or fleet."""
        return self.device or "device"

    def __str__(self) -> str:
        return "everyone" if self.everyone else f"device {self.device}" if self.device else f"group {self.group}"


class PolicyDocument(Document):
    """The policies of all streams of a device.

    Attributes:
        version: of the document, and of each policy in it; frames name it.
        valid_from, valid_until: Unix times in seconds between which the document may be accepted and may run.
        on_expiry: what a device does from valid_until on without a newer document: go on (`hold`), or be silent.
        policies: in their JSON form, without fleet, device and version, which the document has.
        compiled: the policies as agents run them (`fugu.contract.compiler`), as hexadecimal digits.
        boards: the policies as microcontrollers run them; empty if the document is for no microcontroller.
    """

    hex_lists = ("compiled", "boards")
    document: Literal["policy"] = "policy"
    fleet: Name
    version: Version
    to: Address
    valid_from: Seconds = 0
    valid_until: Seconds | None = None
    on_expiry: Literal["hold", "stop"] = "hold"
    policies: tuple[dict[str, Any], ...] = Field(max_length=64)
    compiled: tuple[Compiled, ...] = Field(default=(), max_length=64)
    boards: tuple[Compiled, ...] = Field(default=(), max_length=64)

    def _check_consistency(self) -> None:
        if self.valid_until is not None and self.valid_until <= self.valid_from:
            raise ValueError("valid_until is not after valid_from")
        for policy in self.policies:
            for field in INSERTED:
                if field in policy:
                    raise ValueError(f"a policy of a document does not say its {field} again")

    def for_device(self, device: str) -> tuple[AnyPolicy, ...]:
        """Return the policies of a device; PolicyError if one is malformed, or two are for one stream."""
        own_fields = {"fleet": self.fleet, "device": device, "version": self.version}
        policies = tuple(read_policy(json.dumps(fields | own_fields)) for fields in self.policies)
        if len({policy.stream for policy in policies}) != len(policies):
            raise PolicyError("two policies of a document are for one stream")
        return policies

    def example_policies(self) -> tuple[AnyPolicy, ...]:
        """Return the policies as for one addressed device, or a placeholder for several; errors as `for_device`."""
        return self.for_device(self.to.example)


class TableDocument(Document):
    """A table for a measured stream of one device, in the bytes of its message."""

    document: Literal["table"] = "table"
    fleet: Name
    device: Name
    stream: Name
    table: Annotated[str, Field(max_length=1 << 20)]


class TimeDocument(Document):
    """The gateway's time, Unix time in seconds."""

    document: Literal["time"] = "time"
    fleet: Name
    time: Seconds


class StopDocument(Document):
    """A stop: the device draws nothing more until it accepts a newer policy document.

    Attributes:
        version: of the newest policy document that does not end the stop.
    """

    document: Literal["stop"] = "stop"
    fleet: Name
    device: Name
    version: Version


class Enrolment(DocumentFile):
    """The initial trust of a device, which its owner hands over before any document is sent to it.

    Attributes:
        root: the envelope of the root document that was in force at enrolment, as hexadecimal digits.
        groups: the groups of the device.
        ceiling: the most that a stream may tell about a tick, or about a stretch of time.
        total_ceiling: the most that all streams together may tell. A device with this ceiling accepts no streams
            without a joint bound (`fugu.contract.joint`). None bounds each stream alone.
        measurement_ceiling: the largest epsilon of a released point; none refuses measured streams.
        adversaries: the adversaries that a guarantee may be against; none accepts all.
        fresh_seconds: the age of the newest signed time at which the device calls itself stale; none means never.
        pins: for each stream what its policy may not change. With pins, streams without a pin are refused. Without any,
            the signers of policies may change everything within the ceilings.
        key: the secret key that authenticates the gateway's watermarks (`fugu.contract.frames`), as hexadecimal
            digits. None if the gateway does not know the device.
    """

    remedy = "enrol the device anew"
    fleet: Name
    device: Name
    root: Annotated[str, Field(pattern="^([0-9a-f]{2})+$", max_length=1 << 16)]
    groups: tuple[Name, ...] = Field(default=(), max_length=64)
    ceiling: Ceiling
    total_ceiling: Ceiling | None = None
    measurement_ceiling: Annotated[float, Field(gt=0.0)] | None = None
    adversaries: tuple[Adversary, ...] | None = None
    fresh_seconds: Annotated[int, Field(ge=1, le=2**31)] | None = None
    pins: dict[Name, Pins] = Field(default_factory=dict, max_length=64)
    key: str | None = Field(default=None, pattern=f"^[0-9a-f]{{{2 * KEY_BYTES}}}$", repr=False)

    def check_pinned(self, policy: AnyPolicy) -> None:
        """Refuse, by a TrustError, a stream without a pin beside others that have one."""
        stream = policy.stream
        if self.pins and stream not in self.pins:
            raise TrustError(f"nothing is pinned of stream {stream}, unlike of others: it may not run", Reason.PINNED)

    def check_adversary(self, policy: Policy) -> None:
        """Refuse, by a TrustError, a guarantee against an adversary that the owner does not accept."""
        if self.adversaries is not None and policy.guarantee.adversary not in self.adversaries:
            raise TrustError(
                f"stream {policy.stream} is protected against the {policy.guarantee.adversary} adversary; its owner "
                f"accepts {' or '.join(self.adversaries)}",
                Reason.CEILING,
            )


def read_enrolment(text: str | bytes) -> Enrolment:
    """Parse an enrolment, a JSON file; the PolicyError is one line that names the first wrong field."""
    Enrolment.refuse_other_format(text)
    try:
        return Enrolment.model_validate_json(text)
    except ValidationError as error:
        raise PolicyError(f"enrolment: {first_problem(error, 'enrolment')}") from None


def verify_signatures(envelope: Envelope, root: RootDocument) -> None:
    """Refuse an envelope by a TrustError unless enough policy keys of a root have signed it, as `core.verify` does."""
    with trust_errors():
        core.verify(core.Envelope(envelope.encode()), core.Root(write_document(root)), "policy", signatures_match)


@contextmanager
def trust_errors() -> Iterator[None]:
    """Raise the core's RefusedError as a TrustError."""
    try:
        yield
    except RefusedError as error:
        raise TrustError(error.detail, Reason(error.reason)) from None


def signatures_match(checks: Iterable[tuple[bytes, tuple[bytes, ...], bytes]]) -> bool:
    """True if all signatures are valid; each is a public key, a message in parts, and a signature."""
    try:
        for public_key, message, signature in checks:
            Ed25519PublicKey.from_public_bytes(public_key).verify(signature, b"".join(message))
    except InvalidSignature:
        return False
    return True


# Compiled policies: the signer of a document compiles its policies, and each receiver compiles them again to compare.


def compile_document(document: PolicyDocument) -> PolicyDocument:
    """Return a document with its policies compiled for agents; PolicyError if agents cannot run a policy."""
    compiled_policies = tuple(compile_policy(policy).hex() for policy in document.example_policies())
    return document.model_copy(update={"compiled": compiled_policies})


def compile_for_boards(document: PolicyDocument, stream_units: Mapping[str, Fraction]) -> PolicyDocument:
    """Return a document with its policies compiled for boards, too.

    `stream_units` has by stream the unit that its images were built with, by default 1.

    Raises:
        PolicyError: boards cannot run a policy, or a unit is for a stream without a policy.
    """
    compiled = compile_board_policies(document.example_policies(), stream_units)
    return document.model_copy(update={"boards": tuple(policy.hex() for policy in compiled)})


def board_units(document: PolicyDocument) -> dict[str, Fraction]:
    """Return by stream the unit of a document's compiled policies for boards; PolicyError if one cannot be read."""
    try:
        policies = [read_board_policy(bytes.fromhex(digits)) for digits in document.boards]
    except CompiledError as error:
        raise PolicyError(f"a compiled policy of the document is none: {error}") from None
    return {policy.stream: Fraction(*policy.unit) for policy in policies}


def check_compiled(document: PolicyDocument) -> tuple[bytes, ...]:
    """Compile the policies of a document again and refuse a difference. Return the policies compiled for agents.

    Raises:
        PolicyError: a compiled policy differs; the error says where.
    """
    policies = document.example_policies()
    _compare_compiled(policies, document.compiled, map(compile_policy, policies), read_agent_policy)
    if document.boards:
        units = board_units(document)
        board_policies = (compile_board_policy(policy, units.get(policy.stream, Fraction(1))) for policy in policies)
        _compare_compiled(policies, document.boards, board_policies, read_board_policy)
    return tuple(map(bytes.fromhex, document.compiled))


def _compare_compiled(
    policies: tuple[AnyPolicy, ...],
    hex_texts: tuple[str, ...],
    expected_policies: Iterable[bytes],
    read: Callable[[bytes], Any],
) -> None:
    if len(hex_texts) != len(policies):
        raise PolicyError(f"{len(hex_texts)} compiled policies for the {len(policies)} of the document: sign it again")
    for policy, hex_text, expected in zip(policies, hex_texts, expected_policies, strict=True):
        actual = bytes.fromhex(hex_text)
        if actual == expected:
            continue
        try:
            difference = _difference("", _comparable(read(actual)), _comparable(read(expected)))
        except CompiledError as error:
            difference = f"it cannot be read: {error}"
        raise PolicyError(f"the compiled policy of stream {policy.stream} is not its JSON form: {difference}")


def _difference(path: str, actual: Any, expected: Any) -> str:
    """Describe the first place at which two values differ, with both values."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        compared_parts = [(name, actual.get(name), expected.get(name)) for name in (*expected, *actual)]
    elif isinstance(expected, list) and isinstance(actual, list):
        compared_parts = [(str(index), *both_values) for index, both_values in enumerate(zip_longest(actual, expected))]
    else:
        compared_parts = []
    for name, actual_value, expected_value in compared_parts:
        if actual_value != expected_value:
            return _difference(f"{path}.{name}" if path else name, actual_value, expected_value)
    return f"{path} is {actual!r:.{_MAX_SHOWN}}, and {expected!r:.{_MAX_SHOWN}} by the JSON form"


def _comparable(value: Any) -> Any:
    """Convert a compiled policy, or a part of it, to values that can be compared."""
    if isinstance(value, list | tuple):
        return [_comparable(part) for part in value]
    return {name: _comparable(part) for name, part in vars(value).items()} if hasattr(value, "__dict__") else value
