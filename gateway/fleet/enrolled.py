"""Enrolled devices as a gateway knows them: their policies and keys, and the documents that it signs for them.

Documents of the registry are believed only if enough policy keys of a root have signed them, as on a device. The
registry's file is no authority.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fugu.contract.envelope import Envelope, Kind, sign
from fugu.contract.errors import FuguError, PolicyError, TrustError
from fugu.contract.fleet_documents import (
    PolicyDocument,
    RootDocument,
    StopDocument,
    TableDocument,
    TimeDocument,
    check_compiled,
    read_document,
    verify_signatures,
    write_document,
)
from fugu.contract.measure_table import TimedTable
from gateway.config import FleetConfig
from gateway.estimates.catalogue import Catalogue
from gateway.fleet.entries import Document, RegistryError
from gateway.fleet.keys import Root, decrypt_key, read_passphrase, read_private
from gateway.fleet.registry import Device, Registry
from gateway.parts import Registered, Stopping

__all__ = ["EnrolledDevices"]


_log = logging.getLogger(__name__)
_REFRESH_SECONDS = 2.0


def read_roots(paths: Sequence[Path], fleet: str) -> list[Root]:
    """Read the roots of a fleet, sorted by version; the newest is in force. FuguError names a wrong or foreign file."""
    if not paths:
        raise PolicyError("a registry needs the root documents of its fleet")
    roots = []
    for path in paths:
        roots.append(Root.read(path))
        if roots[-1].document.fleet != fleet:
            raise PolicyError(f"{path} is not a root of fleet {fleet}")
    return sorted(roots, key=lambda root: root.document.version)


class FleetPolicies:
    """Follows the registry; the same thread uses both.

    `roots` are all roots under which policies may have been signed. `counters` counts `documents_taken` and
    `documents_refused`. `devices` are all for which the registry has had policies since the start.
    """

    def __init__(
        self, registry: Registry, roots: list[RootDocument], catalogue: Catalogue, counters: Counter[str]
    ) -> None:
        self._registry = registry
        self._roots = roots
        self._catalogue = catalogue
        self._counters = counters
        self._documents: dict[int, PolicyDocument | None] = {}
        self.devices: set[str] = set()
        self._groups: dict[str, tuple[str, ...]] = {}
        self._pushed_versions: set[tuple[str, int]] = set()
        self._sent_versions: set[tuple[str, int]] = set()
        self._last_sent = 0
        self._last_refusal = 0
        self._ever_refused: set[tuple[str, int]] = set()
        self._ever_accepted: set[tuple[str, int]] = set()
        self._refused_versions: dict[str, int] = {}
        self._in_force: dict[str, int] = {}
        catalogue.may_run = self.may_run
        catalogue.pushed = lambda device, version: (device, version) in self._pushed_versions
        catalogue.may_go_back = lambda device: device not in self.devices

    def refresh(self, devices: Sequence[Device]) -> bool:
        """Add the registry's new policies to the catalogue. Return whether a device got any. Raises RegistryError."""
        self._follow_registry(devices)
        is_changed, old_versions = False, {*self._documents}
        for document in self._registry.documents(max(old_versions, default=0)):
            self._documents[document.version] = self._read_document(document)
        groups = {device.name: tuple(sorted(device.groups)) for device in devices if self._catalogue.owns(device.name)}
        changed_groups = dict(groups.items() - self._groups.items())
        self._groups = groups
        for version, policy_document in self._documents.items():
            for device_name, own_groups in (changed_groups if version in old_versions else groups).items():
                if policy_document and policy_document.to.reaches(device_name, own_groups):
                    self._add_policies(policy_document, device_name)
                    self.devices.add(device_name)
                    is_changed = True
        return is_changed

    def _follow_registry(self, devices: Sequence[Device]) -> None:
        """Note the documents sent since the last call, all new refusals, and the newest answers of devices."""
        sent_rows = self._registry.sent_documents(self._last_sent)
        self._last_sent = max([self._last_sent, *(number for number, _, _ in sent_rows)])
        self._sent_versions.update((device, version) for _, device, version in sent_rows)
        answers = [(device.name, device.reported) for device in devices if device.reported]
        refused_answers = [(name, answer) for name, answer in answers if answer.outcome == "refused"]
        versions = {name: answer.version for name, answer in refused_answers if answer.in_force != answer.version}
        in_force = {name: answer.in_force for name, answer in answers if answer.in_force}
        while refusals := self._registry.refusals(self._last_refusal):
            self._last_refusal = refusals[-1].number
            refused_documents = [refusal for refusal in refusals if refusal.outcome == "refused"]
            self._ever_refused.update((refusal.device, refusal.version) for refusal in refused_documents)
        self._ever_accepted.update(in_force.items())
        if sent_rows or (versions, in_force) != (self._refused_versions, self._in_force):
            self._catalogue.charges += 1
        self._refused_versions, self._in_force = versions, in_force

    def may_run(self, device: str, version: int) -> bool:
        """Return whether a version is in a file, or was sent and is not refused by the device's newest answer.

        A version that the device has refused may not run once a later version is in force: no device goes back.
        """
        pair = (device, version)
        if pair not in self._pushed_versions:
            return True
        was_refused = pair in self._ever_refused and pair not in self._ever_accepted
        is_overtaken = was_refused and version < self._in_force.get(device, 0)
        return pair in self._sent_versions and self._refused_versions.get(device) != version and not is_overtaken

    def _read_document(self, document: Document) -> PolicyDocument | None:
        try:
            envelope = Envelope.decode(document.payload)
            if envelope.kind != "policy" or not any(_is_signed_under(root, envelope) for root in self._roots):
                raise PolicyError("it is not signed by the policy keys of a root")
            policy_document = read_document(PolicyDocument, envelope.payload)
            if (policy_document.fleet, policy_document.version) != (self._catalogue.fleet, document.version):
                raise PolicyError(f"it is version {policy_document.version} of fleet {policy_document.fleet}")
            check_compiled(policy_document)
        except FuguError as error:
            self._counters["documents_refused"] += 1
            _log.error("document %d of the registry is not believed: %s", document.version, error)
            return None
        self._counters["documents_taken"] += 1
        return policy_document

    def _add_policies(self, document: PolicyDocument, device: str) -> None:
        try:
            for policy in document.for_device(device):
                if policy.version not in self._catalogue.policies_of(device, policy.stream):
                    self._pushed_versions.add((device, policy.version))
                self._catalogue.add(policy)
        except FuguError as error:
            self._counters["documents_refused"] += 1
            _log.error("document %d cannot be used for %s: %s", document.version, device, error)


def _is_signed_under(root: RootDocument, envelope: Envelope) -> bool:
    with suppress(TrustError):
        verify_signatures(envelope, root)
        return True
    return False


class Signer:
    """Signs documents for one fleet.

    `key` is an encrypted PEM file; the first line of `passphrase_file` is its passphrase. Only their owner may be able
    to read both. Raises FuguError for a wrong file.
    """

    def __init__(self, fleet: str, key_file: Path, passphrase_file: Path | None) -> None:
        if passphrase_file is None:
            raise FuguError("the gateway's key needs a file with its passphrase")
        self._fleet = fleet
        self._key = decrypt_key(read_private(key_file, "a key"), read_passphrase(passphrase_file), key_file)

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def table(self, device: str, stream: str, table: TimedTable) -> bytes:
        """Return the signed envelope of a table."""
        document = TableDocument(fleet=self._fleet, device=device, stream=stream, table=table.text)
        return self._sign("table", write_document(document))

    def stop(self, device: str, version: int) -> bytes:
        """Return the signed envelope of a stop of a device, up to a version of policy documents."""
        return self._sign("stop", write_document(StopDocument(fleet=self._fleet, device=device, version=version)))

    def time(self, seconds: int) -> bytes:
        """Return the signed envelope of the time, in Unix seconds."""
        return self._sign("time", write_document(TimeDocument(fleet=self._fleet, time=seconds)))

    def _sign(self, kind: Kind, payload: bytes) -> bytes:
        return sign(kind, payload, [self._key]).encode()


class EnrolledDevices(Registered):
    """The enrolled devices of a fleet, followed in the registry by one thread.

    `counters` counts `documents_taken`, `documents_refused` and `fleet_errors`. `roots` has every root document with
    its envelope, the newest last. Raises FuguError, which names the wrong file.
    """

    def __init__(self, fleet: str, files: FleetConfig, catalogue: Catalogue, counters: Counter[str]) -> None:
        self._counters = counters
        self.roots = read_roots(files.roots, fleet)
        self.signer = None if files.key is None else Signer(fleet, files.key, files.passphrase_file)
        root = self.roots[-1][0]
        gateway_keys = {root.keys[key_name] for key_name in root.gateway.keys}
        if self.signer is not None and self.signer.public.hex() not in gateway_keys:
            raise FuguError(f"{files.key} is not a gateway key of root version {self.roots[-1][0].version}")
        self._registry = Registry(files.registry)
        try:
            if self._registry.fleet != fleet:
                raise FuguError(f"{files.registry} is the registry of fleet {self._registry.fleet}")
            self._policies = FleetPolicies(self._registry, [root.document for root in self.roots], catalogue, counters)
            self._refresh_at = 0.0
            self._versions: dict[str, int] = {}
            self._device_keys: dict[str, bytes] = {}
            self._policies.refresh(self._read_devices())
        except BaseException:
            self._registry.close()
            raise

    def close(self) -> None:
        """Close the registry."""
        self._registry.close()

    def refresh(self) -> bool:
        """Read the registry every two seconds. Return whether there are new policies, or a device has come or gone."""
        now = time.monotonic()
        if now < self._refresh_at:
            return False
        self._refresh_at = now + _REFRESH_SECONDS
        try:
            old_devices = set(self._device_keys)
            return self._policies.refresh(self._read_devices()) or old_devices != set(self._device_keys)
        except RegistryError as error:
            self._counters["fleet_errors"] += 1
            if self._counters["fleet_errors"] == 1:
                _log.error("policies of the registry wait: %s", error)
            return False

    def _read_devices(self) -> list[Device]:
        """Read keys, versions and devices from the registry."""
        self._device_keys = self._registry.keys()
        self._newest_version = self._registry.newest_version()
        devices = self._registry.devices()
        self._versions = {device.name: (device.reported.in_force or 0) if device.reported else 0 for device in devices}
        return devices

    def has(self, device: str) -> bool:
        """Return whether a device is in the registry, with a policy or without."""
        return device in self._versions

    def has_left(self, device: str) -> bool:
        """Return whether a device was in the registry, and is no longer; any thread may call this."""
        return device in self._policies.devices and device not in self._device_keys

    def key(self, device: str) -> bytes | None:
        """Return the key by which an enrolled device checks its watermarks, `None` for other devices."""
        return self._device_keys.get(device)

    @property
    def stopping(self) -> Stopping | None:
        """The means of stopping devices, `None` if nothing is signed."""
        if self.signer is None:
            return None
        return Stopping(self.signer.stop, lambda: self._newest_version, lambda: self._versions)

    def table_bytes(self, device: str, stream: str, table: TimedTable) -> bytes:
        """Return the bytes of a table for a device: signed, if the device is enrolled."""
        if self.signer is None or device not in self._device_keys:
            return super().table_bytes(device, stream, table)
        return self.signer.table(device, stream, table)
