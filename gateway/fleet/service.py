"""The conversation with enrolled devices: policy documents, answers to them, and the time.

The operator's connection has its own credentials, because no other account may publish policies. Once a second it
writes all arrivals into the registry, in one transaction, and lets rollouts go on. Then it publishes due documents,
retained and a limited number a second, until the broker has acknowledged them. After every new connection it first
listens for a while. So it knows the retained answers before it takes any device for silent. It also learns the retained
documents, and publishes again those that the broker has lost. The broker can withhold documents and replay them, no
more, and their versions stop replay. A registry that is locked or full stops nothing: a later step tries again, with
nothing lost.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import chain

from fugu.contract.envelope import encode_roots
from fugu.contract.errors import FuguError, StatusCode
from fugu.contract.frames import JUDGED_BYTES, PolicyStatus, Status
from fugu.contract.reports import AlarmCode
from fugu.contract.topics import parse_topic, topic_of
from fugu.contract.trust import FAR_AHEAD_SECONDS
from fugu.host.clock import synchronised
from fugu.host.files import hold as hold_file
from fugu.mqtt import Link
from gateway.config import FleetConfig
from gateway.fleet.enrolled import EnrolledDevices
from gateway.fleet.entries import PolicyReport, RegistryError, Sighting
from gateway.fleet.registry import Registry, lock_path
from gateway.fleet.rollouts import Rollouts
from gateway.parts import Loop, Message, Part

__all__ = ["FleetService"]


_log = logging.getLogger(__name__)
_STEP_SECONDS = 1.0
_STEP_DOCUMENTS = 50
"""Most documents that are published in a step."""
_SETTLE_SECONDS = 5.0
_REFUSED_SECONDS = 60.0
_TIME_SECONDS = 300.0
_MOST_STRANGERS = 64
"""Most unknown devices in a step whose statuses and answers are looked up in the registry."""


class FleetService(Part):
    """The service for enrolled devices, used by the gateway's worker. The starting thread makes, starts and closes it.

    The loop's counters count `policies_sent`, `policies_acknowledged`, `policies_refused` (by the broker), and
    `policies_lost` (by the broker, which had them). They count `fleet_strangers` (messages of devices that are not
    enrolled), `fleet_dropped`, `fleet_errors`, and every unreadable answer by its reason. `connections` is how often
    the broker has accepted the operator's connection.

    Args:
        operator: a link with the operator's credentials, for this service only, which subscribes, starts and stops it.
        is_synchronised: returns whether this clock is synchronised.

    Raises RegistryError if the registry does not exist or cannot be opened.
    """

    def __init__(
        self,
        loop: Loop,
        files: FleetConfig,
        operator: Link,
        enrolled: EnrolledDevices,
        is_synchronised: Callable[[], bool] = synchronised,
    ) -> None:
        super().__init__(loop)
        self._registry = Registry(files.registry)
        self._gateway_lock = hold_file(lock_path(files.registry))
        self._rollouts = Rollouts(self._registry)
        self._operator, self._enrolled = operator, enrolled
        self._chain = encode_roots([payload for _, payload in enrolled.roots])
        self._trusts_clock = files.trusted_clock
        self._is_synchronised = is_synchronised
        self._strangers: set[str] = set()
        self._sightings: dict[str, list[Sighting]] = {}
        self._reports: dict[str, tuple[PolicyStatus, int]] = {}
        self._version_of_digest: dict[bytes, int] = {}
        self._in_flight: dict[int, tuple[str, int]] = {}
        self._acknowledgements: deque[tuple[int, bool]] = deque()
        self._acknowledged_versions: list[tuple[str, int]] = []
        self._not_before: dict[str, float] = {}
        self.connections = self._listening_to = self._root_sent_to = 0
        self._held_digests: dict[str, bytes] = {}
        self._held_since = self._ready_at = self._next_step_at = self._time_at = 0.0
        self._has_compared = False
        self._clock_doubt = ""
        self._doubting_devices: set[str] = set()
        self.topics = topic_of("status", self._fleet, "+"), topic_of("policy_status", self._fleet, "+")
        operator.subscriptions = (topic_of("policy_set", self._fleet, "+"),)
        operator.on_connected = self._operator_connected
        operator.on_message = self._note_held
        operator.on_published = lambda message_id, accepted: self._acknowledgements.append((message_id, accepted))

    def start(self) -> None:
        """Connect as the operator, in the background; a `LinkError` if TLS or password files cannot be read."""
        self._operator.start()

    def close(self) -> None:
        """Disconnect, and write all arrivals into the registry."""
        self._operator.stop()
        try:
            self._write_arrivals()
        except RegistryError as error:  # answers are retained at the broker, and come again
            _log.error("what devices said last is not in the registry: %s", error)
        self._registry.close()
        if self._gateway_lock is not None:
            self._gateway_lock.close()

    def heard(self, message: Message) -> bool:
        """Note a device's status or answer. Return whether no other part needs the message."""
        with suppress(FuguError):  # counted by another reader of the message
            parsed = message.parsed
            if parsed.kind == "status" and parsed.fleet == self._fleet:
                self._take_status(parsed.device, message.decode(Status))
            elif parsed.kind == "policy_status" and parsed.fleet == self._fleet:
                self._take_answer(parsed.device, message)
                return True
        return False

    def _take_status(self, device: str, status: Status) -> None:
        """Note a birth, status or last will for the next step; the newest one counts, a birth before a last will."""
        if self._may_be_enrolled(device):
            code_words, version = " ".join(status.codes), status.agent_version
            sighting = Sighting(device, status.online, status.outbox_depth, code_words, version, self._now_us())
            births = () if status.online else self._sightings.get(device, ())
            self._sightings[device] = [*(birth for birth in births if birth.online), sighting]
        self._doubting_devices.discard(device)
        if StatusCode.GATEWAY_CLOCK in status.codes and self._enrolled.has(device):
            self._doubting_devices.add(device)

    def _take_answer(self, device: str, message: Message) -> None:
        """Note a device's answer to a document, in place of an earlier answer that is not yet written."""
        try:
            answer = message.decode(PolicyStatus)
        except FuguError as error:
            self._counters[error.reason] += 1
            if message.payload:  # an empty one is an operator's, to clear the topic
                self._monitor.note_refusal(device, error.reason)
            return
        if self._may_be_enrolled(device):
            self._reports[device] = answer, self._now_us()

    def _may_be_enrolled(self, device: str) -> bool:
        """Return whether a device is in the registry, or is one of a few strangers, looked up at the next step."""
        if self._enrolled.has(device) or device in self._strangers:
            return True
        if len(self._strangers) >= _MOST_STRANGERS:
            self._counters["fleet_dropped"] += 1
            return False
        self._strangers.add(device)
        return True

    def connected(self, *, begun_anew: bool) -> None:
        """Publish the time at the next `pump`: the broker may have lost it."""
        self._time_at = 0.0

    def pump(self, *, idle: bool = False) -> None:
        """Do the due work; called several times a second."""
        now = self._seconds()
        self._operator.maintain()
        if now >= self._next_step_at:
            self._next_step_at = now + _STEP_SECONDS
            try:
                self._write_arrivals()
                if self._has_listened(now, self._operator.connected and self._link.connected):
                    self._publish_due(now)
            except RegistryError as error:
                self._counters["fleet_errors"] += 1
                if self._counters["fleet_errors"] == 1:
                    _log.error("rollouts wait: %s", error)
        self._publish_root()
        self._publish_time(now)
        gateway_names = [""] if self._clock_doubt else []
        self._monitor.hold(AlarmCode.CLOCK, [*gateway_names, *sorted(self._doubting_devices)])

    def _write_arrivals(self) -> None:
        """Write acknowledgements, statuses and answers since the last step into the registry."""
        while self._acknowledgements:
            message_id, accepted = self._acknowledgements.popleft()
            device_version = self._in_flight.pop(message_id, None)
            if device_version is not None and accepted:
                self._acknowledged_versions.append(device_version)
            elif device_version is not None:
                self._counters["policies_refused"] += 1
                self._not_before[device_version[0]] = self._seconds() + _REFUSED_SECONDS
        if self._acknowledged_versions:
            self._registry.note_published(self._acknowledged_versions)
            self._counters["policies_acknowledged"] += len(self._acknowledged_versions)
            self._acknowledged_versions = []
        if self._sightings:
            sightings = chain.from_iterable(self._sightings.values())
            self._counters["fleet_strangers"] += self._registry.note_sightings(sightings)
            self._sightings = {}
        if self._reports:
            reports = [self._policy_report(device, *answer) for device, answer in self._reports.items()]
            self._counters["fleet_strangers"] += self._registry.note_reports(reports)
            self._reports = {}
        self._strangers.clear()

    def _policy_report(self, device: str, answer: PolicyStatus, time_us: int) -> PolicyReport:
        if not answer.reason:
            return PolicyReport(device, answer.version, "accepted", "", time_us, answer.stale, answer.version)
        reason = f"{answer.reason}: {answer.detail}" if answer.detail else answer.reason
        judged_version = self._version_of(answer.judged)
        return PolicyReport(device, judged_version, "refused", reason, time_us, answer.stale, answer.version)

    def _version_of(self, digest: bytes) -> int:
        """Return the version of the document with a digest, 0 if it is not in the registry."""
        newest_judged = max(self._version_of_digest.values(), default=0)
        if digest not in self._version_of_digest and newest_judged != self._registry.newest_version():
            self._version_of_digest = {
                hashlib.sha256(document.payload).digest()[:JUDGED_BYTES]: document.version
                for document in self._registry.documents()
            }
        return self._version_of_digest.get(digest, 0)

    def _operator_connected(self) -> None:
        """Forget which documents the broker has: it may have lost them. The network thread calls this."""
        self._held_digests = {}
        self.connections += 1

    def _note_held(self, topic: str, payload: bytes, _retained: bool) -> None:
        """Note the digest of a document that the broker has. The network thread calls this."""
        if not self._enrolled.has(device := parse_topic(topic).device):
            return
        self._held_digests[device] = hashlib.sha256(payload).digest()[:JUDGED_BYTES]
        self._held_since = self._seconds()

    def _has_listened(self, now: float, is_connected: bool) -> bool:
        """Return whether both connections last, and the broker's documents were compared with the registry's."""
        if not is_connected:
            self._listening_to = 0
            return False
        if self._listening_to != self.connections:
            self._listening_to, self._has_compared = self.connections, False
            self._in_flight.clear()
            self._ready_at = now + _SETTLE_SECONDS
        if not self._has_compared and now >= max(self._ready_at, self._held_since + _STEP_SECONDS):
            versions = {device: self._version_of(document) for device, document in dict(self._held_digests).items()}
            self._counters["policies_lost"] += self._registry.publish_again(versions)
            self._has_compared = True
        return self._has_compared

    def _publish_due(self, now: float) -> None:
        """Do the due work of rollouts, and publish the documents that wait longest."""
        self._not_before = {device: retry_at for device, retry_at in self._not_before.items() if retry_at > now}
        in_flight = set(self._in_flight.values())
        due_documents = self._rollouts.due(self._now_us(), _STEP_DOCUMENTS + len(in_flight) + len(self._not_before))
        documents = [due for due in due_documents if due[:2] not in in_flight and due.device not in self._not_before]
        documents = documents[:_STEP_DOCUMENTS]
        if documents:  # before a device can have one, since audiences are charged for it from then on
            self._registry.note_sent([due[:2] for due in documents])
        for due in documents:
            topic = topic_of("policy_set", self._fleet, due.device)
            if (message_id := self._operator.publish(topic, due.payload, retain=True)) is None:
                return
            self._in_flight[message_id] = due.device, due.version
            self._counters["policies_sent"] += 1

    def _publish_root(self) -> None:
        topic, connections = topic_of("root", self._fleet), self.connections
        if connections != self._root_sent_to and self._operator.publish(topic, self._chain, retain=True):
            self._root_sent_to = connections

    def _publish_time(self, now: float) -> None:
        signer = self._enrolled.signer
        if signer is None or now < self._time_at or not self._link.connected:
            return
        message_id = None
        if not self._doubt_clock():
            signed_time = signer.time(self._now_us() // 1_000_000)
            message_id = self._link.publish(topic_of("time", self._fleet), signed_time, retain=True)
        self._time_at = now + (_TIME_SECONDS if message_id is not None else 1.0)

    def _doubt_clock(self) -> str:
        """Return why this machine's clock may be wrong, or '': devices could not go back from a signed time."""
        offset, reason = self._monitor.clock_ahead(), ""
        if not (self._trusts_clock or self._is_synchronised()):
            reason = "this clock is not synchronised: let NTP set it, or, if it is right, say trusted_clock = true"
        elif offset is not None and abs(offset) > FAR_AHEAD_SECONDS:
            reason = f"this clock is {offset / 86_400:+.1f} days off those of the devices that send: set it right"
        if reason and not self._clock_doubt:
            _log.warning("no time is signed, as %s", reason)
        self._clock_doubt = reason
        return reason
