"""The judge of documents for an agent, and for programs that judge as an agent; `fugu.core.judge` has the rules.

The core decides. This module checks signatures, compiles a document's JSON policies again, and judges what only agents
have: measured streams, tables, and ceilings of all streams together. A device with a synchronised clock accepts no
signed time that is more than a day ahead of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TypeVar

from fugu.contract.compiled import AgentPolicy, read_policy
from fugu.contract.envelope import MAX_ENVELOPE_BYTES, Kind
from fugu.contract.errors import GuaranteeError, PolicyError, Reason, TrustError
from fugu.contract.fleet_documents import (
    Enrolment,
    PolicyDocument,
    TableDocument,
    check_compiled,
    read_document,
    signatures_match,
    trust_errors,
)
from fugu.contract.joint import NoJointBoundError, check_joint_streams, joint_epsilon
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.pins import SymbolPins, violations
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.stretches import Ceiling
from fugu.core import judge as core
from fugu.core.derived import check_limits
from fugu.core.policy import Policy as CorePolicy
from fugu.core.trust import RefusedError, TrustState, unpack

__all__ = ["FAR_AHEAD_SECONDS", "Trust", "Verdict"]


FAR_AHEAD_SECONDS = 86_400
"""The seconds by which a signed time may be ahead of a synchronised clock."""
_Read = TypeVar("_Read", PolicyDocument, TableDocument)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a document that is accepted or changes nothing.

    `policies` are those of a policy document, with this device's name; `compiled` has them as the device runs them.
    """

    state: TrustState
    changes: bool = False
    document: PolicyDocument | TableDocument | None = None
    policies: tuple[AnyPolicy, ...] = ()
    compiled: tuple[bytes, ...] = ()


class Trust:
    """The trust of a device; TrustError if the enrolment's root is not valid, or the stored state is damaged.

    Args:
        stored: the packed state; none for a device that has accepted nothing yet.
        sensors: for each stream a value that tells its sensor from others, by the device's configuration. `None` if it
            is unknown: streams that can be of one sensor are then taken to be so.
    """

    def __init__(
        self, enrolment: Enrolment, stored: bytes | None = None, sensors: Mapping[str, Hashable] | None = None
    ) -> None:
        self.enrolment, self._sensors = enrolment, sensors
        self._owner = SimpleNamespace(
            FLEET=enrolment.fleet, DEVICE=enrolment.device, GROUPS=enrolment.groups, VERSION=0
        )
        with trust_errors():
            envelope = core.Envelope(bytes.fromhex(enrolment.root))
            if envelope.kind != "root":
                raise TrustError(f"a {envelope.kind} document where a root was expected")
            root = core.Root(envelope.payload)
            core.verify(envelope, root, "root", signatures_match)
        if root.fleet != enrolment.fleet:
            raise TrustError(f"the root of fleet {root.fleet}", Reason.NOT_ADDRESSED)
        try:
            self.state = TrustState(envelope.payload) if stored is None else unpack(stored).under(envelope.payload)
        except OSError:
            raise TrustError("what is kept of earlier documents is damaged, or of an older format") from None

    def judge(self, payload: bytes, kind: Kind, now: int, *, is_synchronised: bool = False) -> Verdict:
        """Judge a document at a Unix time in seconds; an accepted document takes effect in `state`.

        `kind` is the expected kind, `root` for a message of root documents. `is_synchronised` says that `now` is of a
        synchronised clock. The TrustError says why the document is refused.
        """
        if len(payload) > MAX_ENVELOPE_BYTES:
            raise TrustError(f"no envelope: {len(payload)} bytes; at most {MAX_ENVELOPE_BYTES} are allowed")
        with trust_errors():
            if kind == "table":
                return self._judge_table(core.open_envelope(kind, payload, self.state, signatures_match).payload)
            state, content = core.judge(kind, payload, self._owner, self.state, now, signatures_match)
            if content is not None:
                document = core.Envelope(payload).payload
                verdict = self._check_policies(document)
                self.state = self.state.with_changes(policies=[document], **content[0])
                return Verdict(self.state, True, *verdict)
        if state is None:
            return Verdict(self.state)
        if kind == "time" and is_synchronised and state.time > now + FAR_AHEAD_SECONDS:
            raise TrustError(
                f"the time {state.time} is more than a day ahead of this device's synchronised clock", Reason.FAR_AHEAD
            )
        self.state = state
        return Verdict(state, True)

    def in_force(self) -> Verdict | None:
        """Check the newest accepted document again. Return the verdict, or `None` without a document.

        Its times are not checked: `on_expiry` is for that. TrustError: the owner has lowered a ceiling since.
        """
        return Verdict(self.state, False, *self._check_policies(*self.state.policies)) if self.state.policies else None

    def set_time_back(self, now: int) -> int:
        """Set a signed time that is ahead of `now` back to `now`, as the device's owner asks. Return the time in force.

        It is never below `valid_from` of the newest accepted document. TrustError as for `in_force`.
        """
        document = None if (verdict := self.in_force()) is None else verdict.document
        least_time = document.valid_from if isinstance(document, PolicyDocument) else 0
        self.state = self.state.with_changes(time=min(self.state.time, max(now, least_time)))
        return self.state.time

    def _judge_table(self, payload: bytes) -> Verdict:
        document = _read(TableDocument, payload)
        if (document.fleet, document.device) != (self.enrolment.fleet, self.enrolment.device):
            raise TrustError(f"a table for {document.fleet}/{document.device}", Reason.NOT_ADDRESSED)
        return Verdict(self.state, document=document)

    def _check_policies(self, payload: bytes) -> tuple[PolicyDocument, tuple[AnyPolicy, ...], tuple[bytes, ...]]:
        """Return a policy document, its policies for this device, and these compiled; TrustError outside the limits."""
        document = _read(PolicyDocument, payload)
        symbol_policies: list[tuple[Policy, AgentPolicy]] = []
        measured_policies: list[MeasurePolicy] = []
        try:
            compiled_policies = check_compiled(document)
            policies = document.for_device(self.enrolment.device)
            for policy, compiled_policy in zip(policies, compiled_policies, strict=True):
                if isinstance(policy, Policy):
                    symbol_policies.append((policy, read_policy(compiled_policy)))
                else:
                    policy.verify()
                    measured_policies.append(policy)
            check_joint_streams(policies)
        except (PolicyError, GuaranteeError) as error:
            raise TrustError(str(error), Reason.GUARANTEE) from None
        enrolment = self.enrolment
        for policy in policies:
            enrolment.check_pinned(policy)
        self._check_symbols(symbol_policies)
        for policy in measured_policies:
            self._check_measured(policy)
        if enrolment.total_ceiling is not None:
            self._check_total_ceiling(policies, enrolment.total_ceiling)
        return document, policies, compiled_policies

    def _check_symbols(self, policies: list[tuple[Policy, AgentPolicy]]) -> None:
        """Refuse, by a TrustError, policies of symbols that break pins, the ceiling or the accepted adversaries."""
        enrolment = self.enrolment
        pinned_policies: dict[str, CorePolicy] = {}
        for policy, agent_policy in policies:
            agent_policy.device = enrolment.device
            pins = enrolment.pins.get(policy.stream)
            if isinstance(pins, SymbolPins):
                pinned_policies[policy.stream] = pins.compiled(policy, agent_policy)
            elif pins is not None:
                raise TrustError(f"stream {policy.stream}: {violations(policy, pins)[0]}", Reason.PINNED)
        try:
            core_policies: list[CorePolicy] = [agent_policy for _, agent_policy in policies]
            check_limits(core_policies, pinned_policies, enrolment.ceiling.limits, lambda: None)
        except RefusedError as error:
            if error.reason == Reason.PINNED:
                raise TrustError(f"{error.detail} than is pinned", Reason.PINNED) from None
            for policy, _ in policies:
                _refuse_in_numbers(policy, enrolment.ceiling, Reason(error.reason))
            raise
        for policy, _ in policies:
            enrolment.check_adversary(policy)

    def _check_measured(self, policy: MeasurePolicy) -> None:
        ceiling, pins = self.enrolment.measurement_ceiling, self.enrolment.pins
        if pins and (problems := violations(policy, pins[policy.stream])):
            raise TrustError(f"stream {policy.stream}: {problems[0]}", Reason.PINNED)
        if ceiling is None:
            raise TrustError(f"this device accepts no measured streams (stream {policy.stream})", Reason.CEILING)
        if policy.epsilon > ceiling:
            raise TrustError(
                f"epsilon {policy.epsilon:g} of each point of stream {policy.stream} is above this device's ceiling "
                f"{ceiling:g}",
                Reason.CEILING,
            )

    def _check_total_ceiling(self, policies: tuple[AnyPolicy, ...], ceiling: Ceiling) -> None:
        try:
            epsilon = joint_epsilon(policies, self._sensors, ceiling.seconds)
        except NoJointBoundError as error:
            raise TrustError(
                f"this device has a ceiling for all streams together, and {error}", Reason.NO_JOINT_BOUND
            ) from None
        except GuaranteeError as error:
            raise TrustError(f"all streams together: {error}", Reason.CEILING) from None
        if epsilon > ceiling.epsilon:
            raise TrustError(
                f"epsilon {epsilon:g} of all streams together is above this device's ceiling {ceiling}", Reason.CEILING
            )


def _refuse_in_numbers(policy: Policy, ceiling: Ceiling, reason: Reason) -> None:
    """Refuse a policy again, with the numbers that the core's refusal leaves out."""
    try:
        policy.verify(ceiling)
    except GuaranteeError as error:
        raise TrustError(str(error), reason) from None


def _read(document_class: type[_Read], payload: bytes) -> _Read:
    try:
        return read_document(document_class, payload)
    except PolicyError as error:
        kind = document_class.model_fields["document"].default
        raise TrustError(f"a signed {kind} document is malformed: {error}") from None
