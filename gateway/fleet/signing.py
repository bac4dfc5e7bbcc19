"""Policy documents: made from policies, checked as every device will check them, and signed by several keys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fugu.contract.envelope import Envelope, sign
from fugu.contract.errors import FrameError, PolicyError, Reason, TrustError
from fugu.contract.fleet_documents import (
    INSERTED,
    Address,
    Enrolment,
    PolicyDocument,
    check_compiled,
    compile_document,
    read_document,
    verify_signatures,
    write_document,
)
from fugu.contract.joint import check_joint_streams
from fugu.contract.measure_table import TimedTable
from fugu.contract.pins import MeasuredPins, SymbolPins, pins_of
from fugu.contract.policies import AnyPolicy, read_policy
from fugu.contract.policy import Policy
from fugu.contract.stretches import StretchBound
from fugu.contract.trust import Trust
from fugu.host.files import file_errors
from gateway.fleet.entries import FleetError
from gateway.fleet.keys import Root

__all__ = [
    "Signed",
    "StreamPromise",
    "content_lines",
    "content_of",
    "make_document",
    "policies_in",
    "promise_of",
    "promises",
    "read_bodies",
    "read_complete",
    "read_pins",
    "read_templates",
    "verify_guarantees",
    "weaker_promises",
]

_MAX_FILE = 1 << 20


class Signed(NamedTuple):
    """A policy document, whose signatures are valid and of policy keys."""

    document: PolicyDocument
    envelope: Envelope
    needed_signatures: int

    @property
    def signatures(self) -> int:
        """The number of signatures."""
        return len(self.envelope.signatures)

    @property
    def is_complete(self) -> bool:
        """True if devices accept the signatures."""
        return self.signatures >= self.needed_signatures

    @property
    def payload(self) -> bytes:
        """The bytes that devices get."""
        return self.envelope.encode()

    def with_signatures(self, keys: Sequence[Ed25519PrivateKey]) -> Signed:
        """Return the document with further signatures. FuguError if a guarantee, derived again, does not hold."""
        verify_guarantees(self.document)
        own_signatures = sign("policy", self.envelope.payload, keys).signatures
        signatures = tuple(sorted((*self.envelope.signatures, *own_signatures), key=lambda signature: signature.key))
        return self._replace(envelope=replace(self.envelope, signatures=signatures))

    def check(self, root: Root, now: int, enrolments: Iterable[Enrolment] = ()) -> bool:
        """Judge the complete document at Unix time `now`, as the devices will. Return whether it is valid then.

        Raises TrustError if a device never accepts it; FleetError if the document is not for an enrolment's device.
        """
        document = self.document
        trusts = [root.trust(document.to.example, (document.to.group,) if document.to.group else ())]
        for enrolment in enrolments:
            if enrolment.fleet != document.fleet or not document.to.reaches(enrolment.device, enrolment.groups):
                device = enrolment.device
                raise FleetError(f"the document is for {document.to}, not for device {device} as it is enrolled")
            trusts.append(Trust(enrolment.model_copy(update={"root": root.payload.hex()})))
        is_valid_now = True
        for trust in trusts:
            try:
                trust.judge(self.payload, "policy", now)
            except TrustError as error:
                if error.reason is not Reason.NOT_YET_VALID:
                    raise
                is_valid_now = False
                trust.judge(self.payload, "policy", document.valid_from)
        return is_valid_now

    @classmethod
    def sign(cls, document: PolicyDocument, keys: Sequence[Ed25519PrivateKey], root: Root) -> Self:
        """Sign a document."""
        return cls(document, sign("policy", write_document(document), keys), root.document.policy.threshold)

    @classmethod
    def read(cls, content: bytes, root: Root) -> Self:
        """Read a document that policy keys have signed, perhaps not yet enough of them.

        Raises FleetError if it is no policy document of this fleet, or no policy key of the root has validly signed it.
        Raises PolicyError if a policy, compiled again, differs from the compiled one.
        """
        try:
            envelope = Envelope.decode(content)
        except FrameError as error:
            raise FleetError(f"no envelope: {error}") from None
        if envelope.kind != "policy":
            raise FleetError(f"a {envelope.kind} document where a policy document was expected")
        role = root.document.policy
        foreign_keys = {signature.key.hex() for signature in envelope.signatures}.difference(role.keys)
        problem = "others have signed it, too" if foreign_keys else ""
        try:
            verify_signatures(envelope, root.document)
        except TrustError as error:
            problem = problem if error.reason is Reason.THRESHOLD else str(error)
        if problem:
            need = f"it takes {role.threshold} signatures of policy keys of root version {root.document.version}"
            raise FleetError(f"{problem}; {need}, and no others")
        document = read_document(PolicyDocument, envelope.payload)
        if document.fleet != root.document.fleet:
            raise FleetError(f"a document of fleet {document.fleet}; the root is that of fleet {root.document.fleet}")
        check_compiled(document)
        return cls(document, envelope, role.threshold)


class StreamPromise(NamedTuple):
    """A policy's promise about its stream: epsilon in nats, of `ticks` in a row or of a point (no adversary).

    `bound` gives the loss of any stretch, `period_us` is the length of a tick; a point has neither.
    """

    stream: str
    kind: Literal["symbols", "measured"]
    epsilon: float
    adversary: str
    bound: StretchBound | None = None
    period_us: int = 1

    @property
    def ticks(self) -> int:
        """The number of consecutive ticks that epsilon is about; 1 for a point."""
        return 1 if self.bound is None else self.bound.ticks

    @property
    def stretch_words(self) -> str:
        """The number of ticks as the end of a sentence, '' if it is 1."""
        return f" about any {self.ticks} ticks in a row" if self.ticks > 1 else ""

    def loses(self, other_promise: StreamPromise) -> float:
        """Return the loss of a stretch as long as that of another promise, in nats."""
        if self.bound is None:
            return self.epsilon
        return self.bound.epsilon(-(-other_promise.ticks * other_promise.period_us // self.period_us))


def read_bodies(files: Sequence[Path], fleet: str, address: Address) -> list[dict[str, Any]]:
    """Read policies in the form of a document, from JSON files with or without fleet, device and version.

    Raises FuguError, which names the file, if it cannot be read, or is for another fleet or device; PolicyError if it
    is no policy.
    """
    bodies = []
    for file in files:
        with file_errors(file, "the policy"):
            bodies.append(_read_body(file.read_bytes(), fleet, address))
    return bodies


def _read_body(content: bytes, fleet: str, address: Address) -> dict[str, Any]:
    try:
        document = json.loads(content) if len(content) <= _MAX_FILE else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise PolicyError(f"no JSON object of at most {_MAX_FILE} bytes")
    if document.get("fleet", fleet) != fleet:
        raise FleetError(f"a policy of fleet {str(document['fleet'])[:80]}; the keys are those of fleet {fleet}")
    if address.device is not None and document.get("device", address.device) != address.device:
        shown_device = str(document["device"])[:80]
        raise FleetError(f"a policy of device {shown_device}; the document is for device {address.device}")
    document = {"fleet": fleet, "device": address.example, "version": _table_version(document), **document}
    body: dict[str, Any] = json.loads(read_policy(json.dumps(document)).to_json())
    return {field_name: value for field_name, value in body.items() if field_name not in INSERTED}


def _table_version(body: dict[str, Any]) -> int:
    """Return the version that a measured policy's tables name, 1 for other policies."""
    try:
        return TimedTable.of_text(body["fallback"]).policy_version if body.get("kind") == "points" else 1
    except (KeyError, TypeError, FrameError):
        return 1


def _restamp(body: dict[str, Any], version: int) -> dict[str, Any]:
    """Return a policy whose tables, if it has any, name `version`."""
    if body.get("kind") != "points":
        return body

    def stamp(table_text: str) -> str:
        return replace(TimedTable.of_text(table_text), policy_version=version).text

    return {**body, "fallback": stamp(body["fallback"]), "tables": [stamp(table_text) for table_text in body["tables"]]}


def content_of(document: PolicyDocument) -> tuple[str, str]:
    """Return the address and policies of a document, without its version; equal if one document restores another."""
    return str(document.to), json.dumps([_restamp(dict(body), 1) for body in document.policies], sort_keys=True)


def content_lines(document: PolicyDocument) -> dict[str, str]:
    """Return all fields of a document as text, by `stream: field`."""
    lines = {"to": str(document.to), "on_expiry": document.on_expiry}
    lines |= {name: str(getattr(document, name)) for name in ("valid_from", "valid_until")}
    for body in document.policies:
        fields = _restamp(dict(body), 1)
        states = {f"discretiser.{name}": value for name, value in fields.pop("discretiser", {}).items()}
        stream = fields.pop("stream", "")
        for name, value in (states | fields).items():
            lines[f"{stream}: {name}"] = json.dumps(value, ensure_ascii=False)
    return lines


def weaker_promises(old_document: PolicyDocument, new_document: PolicyDocument) -> list[str]:
    """Return a line for each stream about which a new document promises less than an old one."""
    old_promises = {promise.stream: promise for promise in promises(old_document)}
    return [
        f"version {new_document.version} is weaker: epsilon {promise.loses(old_promise):g} of stream {promise.stream}"
        f"{old_promise.stretch_words}, where version {old_document.version} promises {old_promise.epsilon:g}"
        for promise in promises(new_document)
        if (old_promise := old_promises.get(promise.stream))
        and promise.kind == old_promise.kind
        and promise.loses(old_promise) > old_promise.epsilon
    ]


def make_document(
    fleet: str, version: int, address: Address, bodies: Iterable[dict[str, Any]], **terms: Any
) -> PolicyDocument:
    """Make a document of policies with verified guarantees; `terms` are the document's fields of validity.

    Raises FuguError if a guarantee does not hold, or two policies are for one stream; pydantic.ValidationError for a
    wrong field.
    """
    policies = tuple(_restamp(body, version) for body in bodies)
    document = PolicyDocument(fleet=fleet, version=version, to=address, policies=policies, **terms)
    verify_guarantees(compiled_document := compile_document(document))
    return compiled_document


def verify_guarantees(document: PolicyDocument) -> None:
    """Derive every guarantee of a document again. Raises FuguError if one does not hold."""
    policies = document.example_policies()
    for policy in policies:
        policy.verify()
    check_joint_streams(policies)


def promises(document: PolicyDocument) -> list[StreamPromise]:
    """Return the promises of a document's policies, one for each stream."""
    return list(map(promise_of, document.example_policies()))


def promise_of(policy: AnyPolicy) -> StreamPromise:
    """Return a policy's promise."""
    if not isinstance(policy, Policy):
        return StreamPromise(policy.stream, "measured", policy.epsilon, "")
    promise, period = policy.guarantee, policy.clock.period_us
    return StreamPromise(policy.stream, "symbols", promise.epsilon, promise.adversary, policy.bound(), period)


def read_complete(content: bytes, roots: Sequence[Root]) -> PolicyDocument:
    """Read a document that enough policy keys of one root have signed. Else FleetError, or as `Signed.read`."""
    refusals = []
    for root in roots:
        try:
            signed = Signed.read(content, root)
            if signed.is_complete:
                return signed.document
            raise FleetError(f"it has {signed.signatures} of {signed.needed_signatures} signatures")
        except FleetError as error:
            refusals.append(error)
    raise refusals[0]


def policies_in(
    files: Iterable[Path], root: Root | None, enrolments: Sequence[Enrolment], devices: Iterable[str]
) -> list[AnyPolicy]:
    """Read policies in their JSON form, and those of signed documents that enough policy keys have signed.

    Args:
        root: the fleet's root, for signed documents.
        enrolments: devices with their groups, for documents for a group.
        devices: the devices for documents for everyone.

    Errors name the file. FuguError if it cannot be read, or is a document that is not signed as the root says, or that
    reaches no device. PolicyError if it is no policy.
    """
    policies: list[AnyPolicy] = []
    for file in files:
        with file_errors(file, "the policy"):
            content = file.read_bytes()
            if content.lstrip()[:1] == b"{":
                policies.append(read_policy(content))
                continue
            if root is None:
                raise FleetError("a signed document needs the fleet's root: give --root")
            document = read_complete(content, [root])
            address = document.to
            reached_enrolments = (each for each in enrolments if address.reaches(each.device, each.groups))
            members = {enrolment.device for enrolment in reached_enrolments}
            device_names = {address.device} if address.device else set(devices) if address.everyone else members
            if not device_names:
                raise FleetError(f"it is for {address}: give --enrolment of the devices in it")
            policies += [policy for device_name in sorted(device_names) for policy in document.for_device(device_name)]
    return policies


def read_pins(files: Sequence[Path], fleet: str) -> dict[str, SymbolPins | MeasuredPins]:
    """Return by stream the pins of some policies (JSON, with or without fleet, device and version).

    Raises FuguError if a file cannot be read or is for another fleet, its guarantee is false, or two are for one
    stream.
    """
    return {policy.stream: pins_of(policy) for policy in read_templates(files, fleet)}


def read_templates(files: Sequence[Path], fleet: str) -> tuple[AnyPolicy, ...]:
    """Read policies that are for any device of a fleet. Raises as `read_pins`."""
    everyone = Address(everyone=True)
    return make_document(fleet, 1, everyone, read_bodies(files, fleet, everyone)).example_policies()
