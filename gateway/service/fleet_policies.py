"""The policies that a fleet's registry holds, so that the gateway understands the frames of enrolled devices.

Documents are believed only if enough policy keys of a root have signed them, here as on a device; the registry's file
is no authority.
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

from contract.envelope import Envelope, decode_envelope
from contract.errors import FuguError, PolicyError, TrustError
from contract.fleet_documents import PolicyDocument, RootDocument, read_document
from contract.signatures import verified
from gateway.fleet import Document, Registry
from gateway.service.policies import Catalogue

__all__ = ["FleetPolicies", "read_roots"]

_log = logging.getLogger(__name__)


def read_roots(paths: list[Path], fleet: str) -> list[tuple[RootDocument, bytes]]:
    """Root documents with their envelopes, in the order of their versions; the newest is in force.

    Raises:
        PolicyError: one cannot be read, or is another fleet's.
    """
    if not paths:
        raise PolicyError("a registry needs the root documents of its fleet")
    found = []
    for path in paths:
        try:
            payload = path.read_bytes()
            envelope = decode_envelope(payload)
            document = read_document(RootDocument, envelope.payload)
        except OSError as error:
            raise PolicyError(f"cannot read {path}: {error.strerror}") from None
        except FuguError as error:
            raise PolicyError(f"{path}: {error}") from None
        if envelope.kind != "root" or document.fleet != fleet:
            raise PolicyError(f"{path} is not a root of fleet {fleet}")
        try:
            verified(envelope, document.root, document.public_keys)
        except TrustError:
            raise PolicyError(f"{path} is not signed by its own keys") from None
        found.append((document, payload))
    return sorted(found, key=lambda pair: pair[0].version)


class FleetPolicies:
    """Follows the registry.

    Args:
        registry: open; the same thread uses it.
        roots: every root that policies may have been signed under.
        counters: counts `documents_taken` and `documents_refused`.
    """

    def __init__(
        self, registry: Registry, roots: list[RootDocument], catalogue: Catalogue, counters: Counter[str]
    ) -> None:
        self._registry = registry
        self._roots = roots
        self._catalogue = catalogue
        self._counters = counters
        self._documents: dict[int, PolicyDocument | None] = {}
        self._added: set[tuple[int, str]] = set()

    def refresh(self) -> bool:
        """Take what is new in the registry; whether there was anything.

        Raises:
            RegistryError: the registry cannot be read.
        """
        devices = self._registry.devices()
        before = len(self._added)
        for document in self._registry.documents():
            if document.version not in self._documents:
                self._documents[document.version] = self._opened(document)
            if (opened := self._documents[document.version]) is None:
                continue
            for device in devices:
                key = (document.version, device.name)
                if key not in self._added and opened.to.reaches(device.name, tuple(device.groups)):
                    self._add(opened, device.name)
                    self._added.add(key)
        return len(self._added) > before

    def _opened(self, document: Document) -> PolicyDocument | None:
        try:
            envelope = decode_envelope(document.payload)
            if envelope.kind != "policy" or not any(_signed_under(root, envelope) for root in self._roots):
                raise PolicyError("it is not signed by the policy keys of a root")
            opened = read_document(PolicyDocument, envelope.payload)
            if (opened.fleet, opened.version) != (self._catalogue.fleet, document.version):
                raise PolicyError(f"it is version {opened.version} of fleet {opened.fleet}")
        except FuguError as error:
            self._counters["documents_refused"] += 1
            _log.error("document %d of the registry is not believed: %s", document.version, error)
            return None
        self._counters["documents_taken"] += 1
        return opened

    def _add(self, document: PolicyDocument, device: str) -> None:
        try:
            for policy in document.for_device(device):
                self._catalogue.add(policy)
        except FuguError as error:
            self._counters["documents_refused"] += 1
            _log.error("document %d cannot be used for %s: %s", document.version, device, error)


def _signed_under(root: RootDocument, envelope: Envelope) -> bool:
    try:
        verified(envelope, root.policy, root.public_keys)
    except TrustError:
        return False
    return True
