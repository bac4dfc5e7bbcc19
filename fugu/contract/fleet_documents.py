"""The signed documents of a fleet, read only after `fugu.core.judge` has had their signatures checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from fractions import Fraction
from functools import partial
from itertools import zip_longest
from typing import Annotated, Any, ClassVar, Literal, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import Field, ValidationError, model_validator

from fugu.contract._document import Document, DocumentFile, first_problem, read_document, write_document
from fugu.contract.compiled import read_policy
from fugu.contract.compiler import compile_board_policy, compile_policy
from fugu.contract.envelope import Envelope, key_name
from fugu.contract.errors import PolicyError, Reason, TrustError
from fugu.contract.frames import KEY_BYTES
from fugu.contract.losses import Adversary
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.pins import Pins
from fugu.contract.policies import AnyPolicy
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
    "check_compiled",
    "compile_document",
    "compile_for_boards",
    "read_document",
    "read_enrolment",
    "refusals",
    "signatures_match",
    "units",
    "verify_signatures",
    "write_document",
]

Hex32 = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Hex64 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Compiled = Annotated[str, Field(pattern="^([0-9a-f]{2})+$", max_length=1 << 21)]
Seconds = Annotated[int, Field(ge=0, le=2**53)]
Version = Annotated[int, Field(ge=1, le=2**32 - 1)]
INSERTED = ("fleet", "device", "version")
"""Fields of a policy that are those of its document, and not said again."""
_MAX_SHOWN = 60


class Role(Document):
    """Whose signatures count for something, and how many of them it takes."""

    keys: tuple[Hex32, ...] = Field(min_length=1, max_length=16)
    threshold: int = Field(ge=1, le=16)

    @model_validator(mode="after")
    def _check_threshold(self) -> Self:
        if len(set(self.keys)) != len(self.keys):
            raise ValueError("a role names a key twice")
        if self.threshold > len(self.keys):
            raise ValueError(f"a threshold of {self.threshold} with {len(self.keys)} keys can never be met")
        return self

    @property
    def names(self) -> set[bytes]:
        """The keys' names."""
        return {bytes.fromhex(key) for key in self.keys}


class RootDocument(Document):
    """The fleet's keys; signed by the root keys, its own and those of the root before it.

    Attributes:
        keys: public keys by name.
        root, policy, gateway: who may sign new roots; policies; tables, the time and stops. No key is in two roles.
    """

    document: Literal["root"] = "root"
    fleet: Name
    version: Version
    keys: dict[Hex32, Hex64] = Field(min_length=1, max_length=48)
    root: Role
    policy: Role
    gateway: Role

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        for name, public_key in self.keys.items():
            if key_name(bytes.fromhex(public_key)).hex() != name:
                raise ValueError(f"key {name} is not the one of its name")
        roles = [*self.root.keys, *self.policy.keys, *self.gateway.keys]
        if len(set(roles)) != len(roles):
            raise ValueError("a key is in two roles")
        if set(roles) != set(self.keys):
            raise ValueError("every key has one role, and every key of a role is there")
        return self

    @property
    def public_keys(self) -> dict[bytes, bytes]:
        """Public keys by name, as bytes."""
        return {bytes.fromhex(name): bytes.fromhex(public_key) for name, public_key in self.keys.items()}


class Address(Document):
    """Whom a policy document is for: exactly one of the three."""

    device: Name | None = None
    group: Name | None = None
    everyone: Literal[True] | None = None

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        if sum(field is not None for field in (self.device, self.group, self.everyone)) != 1:
            raise ValueError("a document is for a device, a group or everyone: give exactly one")
        return self

    def reaches(self, device: str, groups: tuple[str, ...]) -> bool:
        """True if a device is meant."""
        return bool(self.everyone) or self.device == device or (self.group is not None and self.group in groups)

    @property
    def example(self) -> str:
        """The name of a device that is meant, or what stands for one of several."""
        return self.device or "device"

    def __str__(self) -> str:
        return "everyone" if self.everyone else f"device {self.device}" if self.device else f"group {self.group}"


class PolicyDocument(Document):
    """Everything that a device is to do, from one moment on: the policies of all its streams.

    Attributes:
        version: of the document, and of each policy in it; frames name it.
        valid_from, valid_until: Unix time in seconds within which it may be accepted and may run.
        on_expiry: what a device does from valid_until on without a newer document: go on (`hold`), or be silent.
        policies: in their JSON form, without fleet, device and version, which are those of the document.
        compiled: the same policies as agents run them (`fugu.contract.compiler`), as hexadecimal digits.
        boards: as microcontrollers run them; none if the document is for no microcontroller.
    """

    binary: ClassVar[tuple[str, ...]] = ("compiled", "boards")
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

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.valid_until is not None and self.valid_until <= self.valid_from:
            raise ValueError("valid_until is not after valid_from")
        for policy in self.policies:
            for field in INSERTED:
                if field in policy:
                    raise ValueError(f"a policy of a document does not say its {field} again")
        return self

    def for_device(self, device: str) -> tuple[AnyPolicy, ...]:
        """The policies as a device has them; PolicyError if one is malformed, or two are for one stream."""
        policies: list[AnyPolicy] = []
        for policy in self.policies:
            text = json.dumps({**policy, "fleet": self.fleet, "device": device, "version": self.version})
            policies.append((MeasurePolicy if policy.get("kind") == "points" else Policy).from_json(text))
        streams = [policy.stream for policy in policies]
        if len(set(streams)) != len(streams):
            raise PolicyError("two policies of a document are for one stream")
        return tuple(policies)

    def templates(self) -> tuple[AnyPolicy, ...]:
        """The policies as any of the devices has them, which puts its own name there; errors as for one device."""
        return self.for_device(self.to.example)


class TableDocument(Document):
    """A table for a measured stream of one device, in the bytes of its message."""

    document: Literal["table"] = "table"
    fleet: Name
    device: Name
    stream: Name
    table: Annotated[str, Field(max_length=1 << 20)]


class TimeDocument(Document):
    """The time, as the gateway says: Unix time in seconds."""

    document: Literal["time"] = "time"
    fleet: Name
    time: Seconds


class StopDocument(Document):
    """Tells a device to draw nothing more until it has a newer policy document; it can do nothing else.

    Attributes:
        version: of the newest policy document that does not end the stop.
    """

    document: Literal["stop"] = "stop"
    fleet: Name
    device: Name
    version: Version


class Enrolment(DocumentFile):
    """Initial trust of a device, handed over by its owner before anything is sent to it.

    Attributes:
        root: the envelope of the root document that was in force at enrolment, as hexadecimal digits.
        groups: that the device is in.
        ceiling: the most that its owner lets a stream tell about a tick, or about a stretch of time.
        total_ceiling: of all its streams together; a device with one accepts no streams without a joint bound
            (`fugu.contract.joint`). None bounds each stream alone.
        measurement_ceiling: of one released point; none refuses measured streams.
        adversaries: which notions of a guarantee are good enough; none means any.
        fresh_seconds: how old the newest signed time may be before the device calls itself stale; none means any age.
        pins: for each stream what its policy may not change. If there are any, streams that are not among them are
            refused. If there are none, whoever signs policies may change everything that keeps to the ceilings.
        key: by which it knows its gateway's watermarks (`fugu.contract.frames`), as hexadecimal digits; a secret. None
            if the gateway does not know the device.
    """

    remedy: ClassVar[str] = "enrol the device anew"
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


def read_enrolment(text: str | bytes) -> Enrolment:
    """Parse an enrolment, a JSON file; the PolicyError is one line that names the first field that is wrong."""
    Enrolment.refuse_other_format(text)
    try:
        return Enrolment.model_validate_json(text)
    except ValidationError as error:
        raise PolicyError(f"enrolment: {first_problem(error, 'enrolment')}") from None


def verify_signatures(envelope: Envelope, role: Role, keys: Mapping[bytes, bytes]) -> None:
    """Refuse an envelope unless enough of a role's keys have signed it, as `core.verify` says; TrustError."""
    with refusals():
        core.verify(core.Envelope(envelope.encode()), dict(keys), (role.names, role.threshold), signatures_match)


@contextmanager
def refusals() -> Iterator[None]:
    """Raise what the core refuses as a TrustError."""
    try:
        yield
    except RefusedError as error:
        raise TrustError(error.detail, Reason(error.reason)) from None


def signatures_match(checks: Iterable[tuple[bytes, tuple[bytes, ...], bytes]]) -> bool:
    """True if signatures are right; of each the public key, the message in parts, and the signature."""
    try:
        for public_key, message, signature in checks:
            Ed25519PublicKey.from_public_bytes(public_key).verify(signature, b"".join(message))
    except InvalidSignature:
        return False
    return True


# Compiled policies: whoever signs a document compiles its policies, and whoever takes one in compiles them again.


def compile_document(document: PolicyDocument) -> PolicyDocument:
    """The same document with what agents run; PolicyError if an agent does not do what a policy says."""
    forms = tuple(compile_policy(policy).hex() for policy in document.templates())
    return document.model_copy(update={"compiled": forms})


def compile_for_boards(document: PolicyDocument, units_of: Mapping[str, Fraction]) -> PolicyDocument:
    """The same document, for boards too; units are by stream, as the images were built with, by default 1.

    Raises:
        PolicyError: a board does not do what a policy says, or no policy is of such a stream.
    """
    policies = document.templates()
    if unknown_streams := set(units_of) - {policy.stream for policy in policies}:
        raise PolicyError(f"a unit of stream {min(unknown_streams)}, of which there is no policy")
    forms = tuple(compile_board_policy(policy, units_of.get(policy.stream, Fraction(1))).hex() for policy in policies)
    return document.model_copy(update={"boards": forms})


def units(document: PolicyDocument) -> dict[str, Fraction]:
    """By stream, the unit that a document was compiled with for boards; PolicyError if a compiled policy is none."""
    try:
        policies = [read_board_policy(bytes.fromhex(digits)) for digits in document.boards]
    except CompiledError as error:
        raise PolicyError(f"a compiled policy of the document is none: {error}") from None
    return {policy.stream: Fraction(*policy.unit) for policy in policies}


def check_compiled(document: PolicyDocument) -> tuple[bytes, ...]:
    """Compile the policies of a document again, for its boards too, and refuse a difference; what agents run of them.

    Raises:
        PolicyError: something differs: what, and where.
    """
    policies = document.templates()
    _compare_compiled(policies, document.compiled, compile_policy, read_policy)
    if document.boards:
        _compare_compiled(policies, document.boards, partial(_recompile, units(document)), read_board_policy)
    return tuple(map(bytes.fromhex, document.compiled))


def _recompile(units_of: Mapping[str, Fraction], policy: AnyPolicy) -> bytes:
    return compile_board_policy(policy, units_of.get(policy.stream, Fraction(1)))


def _compare_compiled(
    policies: tuple[AnyPolicy, ...],
    forms: tuple[str, ...],
    compiler: Callable[[AnyPolicy], bytes],
    reader: Callable[[bytes], Any],
) -> None:
    if len(forms) != len(policies):
        raise PolicyError(f"{len(forms)} compiled policies for the {len(policies)} of the document: sign it again")
    for policy, form in zip(policies, forms, strict=True):
        actual, expected = bytes.fromhex(form), compiler(policy)
        if actual == expected:
            continue
        try:
            difference = _difference("", _comparable(reader(actual)), _comparable(reader(expected)))
        except CompiledError as error:
            difference = f"it cannot be read: {error}"
        raise PolicyError(f"the compiled policy of stream {policy.stream} is not its JSON form: {difference}")


def _difference(path: str, actual: Any, expected: Any) -> str:
    """The first place at which two values differ, and what they are there."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        pairs = [(name, actual.get(name), expected.get(name)) for name in (*expected, *actual)]
    elif isinstance(expected, list) and isinstance(actual, list):
        pairs = [(str(index), *values) for index, values in enumerate(zip_longest(actual, expected))]
    else:
        pairs = []
    for name, actual_value, expected_value in pairs:
        if actual_value != expected_value:
            return _difference(f"{path}.{name}" if path else name, actual_value, expected_value)
    return f"{path} is {actual!r:.{_MAX_SHOWN}}, and {expected!r:.{_MAX_SHOWN}} by the JSON form"


def _comparable(value: Any) -> Any:
    """A compiled policy, or a part of it, as values that can be compared."""
    if isinstance(value, list | tuple):
        return [_comparable(part) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _comparable(part) for name, part in asdict(value).items()}
    return {name: _comparable(part) for name, part in vars(value).items()} if hasattr(value, "__dict__") else value
