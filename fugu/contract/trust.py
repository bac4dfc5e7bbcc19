"""Which documents a device accepts: one state machine, without any I/O.

A document is untrusted bytes until all of this holds, checked in this order; the first that fails is the reason:

1. the envelope is well-formed, and of a kind that is expected;
2. every signature that counts is of a key that may sign this kind, and valid; the role's threshold is met;
3. it is this fleet's, and addressed to this device;
4. its version is higher than any that was ever accepted; the same version with the same content changes nothing, and
with other content is refused;
5. it is valid now. "Now" never goes back: it is at least the newest time that the gateway has signed;
a device whose own clock is synchronised takes no signed time that is more than a day ahead of it;
6. its guarantees, derived anew, hold, are about what the device's owner has pinned, and keep to the owner's ceilings.

The gateway may also stop a device: nothing is drawn until a policy document is accepted that is newer than the stop
says. A stop that is sent again after such a document says nothing any more.

A new root document is signed by enough keys of the old root and enough of its own, and is exactly one version ahead. It
also forgets the signed time and stops, so that a stolen gateway key does no lasting harm. A new enrolment with another
root ends the trust in every root before; versions go on all the same. The bytes inside an envelope are parsed only
after point 2. Whatever is refused changes nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from fugu.contract._document import FORMAT_NAME
from fugu.contract.compiler import check_compiled
from fugu.contract.envelope import ROOTS, ROOTS_SCHEMA, Envelope, Kind
from fugu.contract.errors import FrameError, GuaranteeError, PolicyError, Reason, TrustError
from fugu.contract.fleet_documents import (
    Enrolment,
    PolicyDocument,
    RootDocument,
    StopDocument,
    TableDocument,
    TimeDocument,
    read_document,
    verified,
)
from fugu.contract.joint import NoJointBoundError, check_named, joint_epsilon
from fugu.contract.message import read_row, unpacked
from fugu.contract.pins import violations
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy

__all__ = ["FAR_AHEAD_SECONDS", "Trust", "TrustState", "Verdict", "decode_roots"]


FAR_AHEAD_SECONDS = 86_400
"""By how much a signed time may be ahead of a synchronised clock."""
_Read = TypeVar("_Read", RootDocument, PolicyDocument, TableDocument, TimeDocument, StopDocument)


@dataclass(frozen=True, slots=True)
class TrustState:
    """Documents that a device has accepted; kept for ever.

    Attributes:
        root, policy: envelopes of the root document in force, and the newest policy document; empty for no policy.
        version: of the newest policy document ever accepted, 0 for none.
        time: the newest time that was signed, in Unix seconds.
        enrolled: digest of the root of the enrolment that all this began with.
        stopped: nothing is drawn under policy documents up to this version; 0 for none.
    """

    root: bytes
    version: int = 0
    digest: str = ""
    policy: bytes = b""
    time: int = 0
    enrolled: str = ""
    stopped: int = 0

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can carry."""
        envelopes = {"root": self.root, "policy": self.policy}
        encoded = {name: base64.b64encode(envelope).decode() for name, envelope in envelopes.items()}
        return {"format": FORMAT_NAME, **asdict(self), **encoded}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrustState:
        """Read the text of `to_json`, which the caller has kept from others; TrustError if it is anything else."""
        if values.get("format") != FORMAT_NAME:
            raise TrustError(f"what is kept of earlier documents is not of format {FORMAT_NAME}: enrol anew")
        try:
            return cls(
                base64.b64decode(values["root"], validate=True),
                int(values["version"]),
                str(values["digest"]),
                base64.b64decode(values["policy"], validate=True),
                int(values["time"]),
                str(values["enrolled"]),
                int(values["stopped"]),
            )
        except (KeyError, TypeError, ValueError, binascii.Error):
            raise TrustError("what is kept of earlier documents is damaged") from None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A document accepted, or changing nothing.

    `policies` are those of a policy document, as this device has them, and `compiled` what it runs of each.
    """

    state: TrustState
    document: RootDocument | PolicyDocument | TableDocument | TimeDocument | StopDocument
    policies: tuple[AnyPolicy, ...] = ()
    changes: bool = True
    compiled: tuple[bytes, ...] = ()


class Trust:
    """The rules of one device; TrustError if the enrolment's root is none.

    Args:
        sensors: for each stream what tells its sensor from others, by the device's configuration; `None` where that is
            not known, and then streams get the benefit of the doubt.

    `root` is the root in force.
    """

    def __init__(
        self, enrolment: Enrolment, state: TrustState | None = None, sensors: Mapping[str, Hashable] | None = None
    ) -> None:
        self.enrolment = enrolment
        self._sensors = sensors
        root = bytes.fromhex(enrolment.root)
        enrolled = _envelope(root).digest
        self.state = state or TrustState(root, enrolled=enrolled)
        if self.state.enrolled != enrolled:  # what the owner says by hand counts more than any root that was followed
            self.state = replace(self.state, root=root, time=0, stopped=0, enrolled=enrolled)
        self.root = self._own_root(self.state.root)

    def judge(self, payload: bytes, kind: Kind, now: int, *, sure: bool = False) -> Verdict:
        """Judge a document at a Unix time in seconds; what is accepted takes effect in `state`.

        `kind` is what is expected where it came from; `sure` says that `now` is of a clock known to be synchronised.
        The TrustError says why it is refused.
        """
        envelope = _envelope(payload)
        if envelope.kind != kind or kind == "root":
            raise TrustError(f"a {envelope.kind} document where a {kind} document was expected")
        if kind == "policy":
            verdict = self._judge_policy(envelope, payload, now)
        else:
            judges = {"table": self._judge_table, "stop": self._judge_stop}
            verdict = judges[kind](envelope) if kind in judges else self._judge_time(envelope, now if sure else None)
        self.state = verdict.state
        return verdict

    def follow_roots(self, payload: bytes) -> Verdict:
        """Follow root documents beyond the one in force; a TrustError says why the last is not in force afterwards."""
        try:
            chain = decode_roots(payload)
        except FrameError as error:
            raise TrustError(f"no root documents: {error}") from None
        before, last = self.state, ""
        refusal: TrustError | None = None
        for root in chain:
            envelope = _envelope(root)
            if envelope.kind != "root":
                raise TrustError(f"a {envelope.kind} document among root documents")
            last = envelope.digest
            try:
                verdict = self._judge_root(envelope, root)
            except TrustError as error:  # one from before ours, unless none after it follows either
                refusal = error
            else:
                self.state, self.root = verdict.state, self._own_root(verdict.state.root)
        if refusal is not None and last != _envelope(self.state.root).digest:
            raise refusal
        return Verdict(self.state, self.root, changes=self.state != before)

    def in_force(self) -> Verdict | None:
        """The newest document ever accepted, its guarantees derived once more; `None` if there is none.

        Its validity is not asked for: `on_expiry` says what happens to a policy whose time is over. TrustError: what
        was kept has been tampered with, or the owner has lowered a ceiling since.
        """
        if not self.state.policy:
            return None
        envelope = _envelope(self.state.policy)
        if envelope.kind != "policy" or envelope.digest != self.state.digest:
            raise TrustError("what is kept of earlier documents is damaged")
        document = _read(PolicyDocument, envelope)
        return self._accepted(self.state, document, changes=False)

    def _judge_root(self, envelope: Envelope, payload: bytes) -> Verdict:
        try:
            verified(envelope, self.root.root, self.root.public_keys)
        except TrustError as error:
            raise TrustError(f"a new root that the one in force has not signed: {error}", Reason.ROOT) from None
        document = _read(RootDocument, envelope)
        try:
            verified(envelope, document.root, document.public_keys)
        except TrustError as error:
            raise TrustError(f"a new root that its own keys have not signed: {error}", Reason.ROOT) from None
        if document.fleet != self.enrolment.fleet:
            raise TrustError(f"the root of fleet {document.fleet}", Reason.NOT_ADDRESSED)
        if document.version < self.root.version:
            raise TrustError(f"root version {document.version}; {self.root.version} is in force", Reason.REPLAYED)
        if document.version == self.root.version:
            if document != self.root:
                raise TrustError(f"another root of version {document.version}", Reason.SAME_VERSION)
            return Verdict(self.state, document, changes=False)
        if document.version != self.root.version + 1:
            raise TrustError(
                f"root version {document.version} does not follow version {self.root.version}", Reason.ROOT
            )
        return Verdict(replace(self.state, root=payload, time=0, stopped=0), document)

    def _judge_policy(self, envelope: Envelope, payload: bytes, now: int) -> Verdict:
        verified(envelope, self.root.policy, self.root.public_keys)
        document = _read(PolicyDocument, envelope)
        mine = self.enrolment
        if document.fleet != mine.fleet or not document.to.reaches(mine.device, mine.groups):
            raise TrustError(f"a document of fleet {document.fleet} for {document.to}", Reason.NOT_ADDRESSED)
        if document.version < self.state.version:
            raise TrustError(
                f"version {document.version}; version {self.state.version} has been accepted before", Reason.REPLAYED
            )
        if document.version == self.state.version:
            if envelope.digest != self.state.digest:
                raise TrustError(
                    f"version {document.version} has been accepted before, with other content", Reason.SAME_VERSION
                )
            return self._accepted(self.state, document, changes=False)
        moment = max(now, self.state.time)
        if moment < document.valid_from:
            raise TrustError(f"version {document.version} is valid from {document.valid_from} on", Reason.NOT_YET_VALID)
        if document.valid_until is not None and moment >= document.valid_until:
            raise TrustError(f"version {document.version} was valid until {document.valid_until}", Reason.EXPIRED)
        state = replace(self.state, version=document.version, digest=envelope.digest, policy=payload)
        return self._accepted(state, document, changes=True)

    def _judge_table(self, envelope: Envelope) -> Verdict:
        verified(envelope, self.root.gateway, self.root.public_keys)
        document = _read(TableDocument, envelope)
        if (document.fleet, document.device) != (self.enrolment.fleet, self.enrolment.device):
            raise TrustError(f"a table for {document.fleet}/{document.device}", Reason.NOT_ADDRESSED)
        return Verdict(self.state, document)

    def _judge_stop(self, envelope: Envelope) -> Verdict:
        verified(envelope, self.root.gateway, self.root.public_keys)
        document = _read(StopDocument, envelope)
        if (document.fleet, document.device) != (self.enrolment.fleet, self.enrolment.device):
            raise TrustError(f"a stop for {document.fleet}/{document.device}", Reason.NOT_ADDRESSED)
        if document.version < max(self.state.version, self.state.stopped + 1):
            return Verdict(self.state, document, changes=False)
        return Verdict(replace(self.state, stopped=document.version), document)

    def set_back(self, now: int) -> int:
        """Take a time for the signed one that is ahead of it, by the word of the device's owner; the time from then on.

        It is never below the beginning that the newest accepted document has. TrustError as for `in_force`.
        """
        document = None if (verdict := self.in_force()) is None else verdict.document
        floor = document.valid_from if isinstance(document, PolicyDocument) else 0
        self.state = replace(self.state, time=min(self.state.time, max(now, floor)))
        return self.state.time

    def _judge_time(self, envelope: Envelope, now: int | None) -> Verdict:
        verified(envelope, self.root.gateway, self.root.public_keys)
        document = _read(TimeDocument, envelope)
        if document.fleet != self.enrolment.fleet:
            raise TrustError(f"the time of fleet {document.fleet}", Reason.NOT_ADDRESSED)
        if document.time < self.state.time:
            raise TrustError(f"the time {document.time}; {self.state.time} has been before", Reason.REPLAYED)
        if now is not None and document.time > now + FAR_AHEAD_SECONDS:
            raise TrustError(
                f"the time {document.time} is more than a day ahead of this device's synchronised clock",
                Reason.FAR_AHEAD,
            )
        return Verdict(replace(self.state, time=document.time), document, changes=document.time > self.state.time)

    def _accepted(self, state: TrustState, document: PolicyDocument, *, changes: bool) -> Verdict:
        """The verdict on a document whose compiled policies are its own, and keep to the owner's limits."""
        try:
            compiled = check_compiled(document)
        except PolicyError as error:
            raise TrustError(str(error), Reason.GUARANTEE) from None
        return Verdict(state, document, self._guaranteed(document), changes, compiled)

    def _guaranteed(self, document: PolicyDocument) -> tuple[AnyPolicy, ...]:
        """The policies for this device, all their guarantees derived and within its owner's limits."""
        mine = self.enrolment
        try:
            policies = document.for_device(mine.device)
            for policy in policies:
                policy.verify()
            check_named(policies)
        except (PolicyError, GuaranteeError) as error:
            raise TrustError(str(error), Reason.GUARANTEE) from None
        for policy in policies:
            self._check_pins(policy)
            if not isinstance(policy, Policy):
                if mine.measurement_ceiling is None:
                    raise TrustError(
                        f"this device accepts no measured streams (stream {policy.stream})", Reason.CEILING
                    )
                if policy.epsilon > mine.measurement_ceiling:
                    raise TrustError(
                        f"epsilon {policy.epsilon:g} of each point of stream {policy.stream} is above this device's "
                        f"ceiling {mine.measurement_ceiling:g}",
                        Reason.CEILING,
                    )
                continue
            try:
                policy.check_ceiling(mine.ceiling)
            except GuaranteeError as error:
                raise TrustError(str(error), Reason.CEILING) from None
            if mine.adversaries is not None and policy.guarantee.adversary not in mine.adversaries:
                raise TrustError(
                    f"stream {policy.stream} is protected against the {policy.guarantee.adversary} adversary; "
                    f"this device accepts {' or '.join(mine.adversaries)}",
                    Reason.CEILING,
                )
        if mine.total_ceiling is not None:
            try:
                together = joint_epsilon(policies, self._sensors, mine.total_ceiling.seconds)
            except NoJointBoundError as error:
                raise TrustError(
                    f"this device has a ceiling for all streams together, and {error}", Reason.NO_JOINT_BOUND
                ) from None
            except GuaranteeError as error:
                raise TrustError(f"all streams together: {error}", Reason.CEILING) from None
            if together > mine.total_ceiling.epsilon:
                raise TrustError(
                    f"epsilon {together:g} of all streams together is above this device's ceiling {mine.total_ceiling}",
                    Reason.CEILING,
                )
        return policies

    def _check_pins(self, policy: AnyPolicy) -> None:
        if not self.enrolment.pins:
            return
        if (pins := self.enrolment.pins.get(policy.stream)) is None:
            raise TrustError(
                f"nothing is pinned of stream {policy.stream}, unlike of others: it may not run", Reason.PINNED
            )
        if problems := violations(policy, pins):
            raise TrustError(f"stream {policy.stream}: {problems[0]}", Reason.PINNED)

    def _own_root(self, payload: bytes) -> RootDocument:
        """The root of the enrolment, or one that followed it: its own keys must have signed it."""
        envelope = _envelope(payload)
        if envelope.kind != "root":
            raise TrustError(f"a {envelope.kind} document where a root was expected")
        document = _read(RootDocument, envelope)
        verified(envelope, document.root, document.public_keys)
        if document.fleet != self.enrolment.fleet:
            raise TrustError(f"the root of fleet {document.fleet}", Reason.NOT_ADDRESSED)
        return document


def decode_roots(payload: bytes) -> tuple[bytes, ...]:
    """The envelopes of a message with root documents; the FrameError says what is wrong."""
    envelopes: tuple[bytes, ...]
    (envelopes,) = read_row(unpacked(payload, ROOTS_SCHEMA), [ROOTS], "message")
    return envelopes


def _envelope(payload: bytes) -> Envelope:
    try:
        return Envelope.decode(payload)
    except FrameError as error:
        raise TrustError(f"no envelope: {error}") from None


def _read(kind: type[_Read], envelope: Envelope) -> _Read:
    try:
        return read_document(kind, envelope.payload)
    except PolicyError as error:
        raise TrustError(f"a signed {envelope.kind} document is malformed: {error}") from None
