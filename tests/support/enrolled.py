"""A gateway whose fleet has a registry, as a process, and an operator at the broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from fugu.contract.envelope import Envelope
from fugu.contract.fleet_documents import PolicyDocument
from fugu.contract.frames import PolicyStatus
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker
from gateway.fleet.entries import Document, Target
from gateway.fleet.registry import Registry
from tests.support.brokers import wait_until
from tests.support.gateway_files import gateway_file
from tests.support.processes import Program, Recorder
from tests.support.signing import Keys
from tests.support.stored import stored_points, stored_symbols

SIGNED: dict[str, object] = {
    **{"registry": "fleet.sqlite", "roots": ["root.envelope"], "key": "gateway.key"},
    **{"passphrase_file": "passphrase", "trusted_clock": True},
}
"""Lines of a gateway's file about a registry and its keys, by the names that they have in its folder."""


def write_gateway_files(folder: Path, keys: Keys) -> None:
    """Keys of a fleet that a gateway needs: the root, and its own key with a passphrase."""
    (folder / "root.envelope").write_bytes(keys.root_envelope())
    (folder / "passphrase").write_text("correct horse\n")
    lock = BestAvailableEncryption(b"correct horse")
    (folder / "gateway.key").write_bytes(keys.gateway[0].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
    for name in ("passphrase", "gateway.key"):
        (folder / name).chmod(0o600)


def add(registry: Registry, keys: Keys, document: PolicyDocument) -> None:
    """Sign a document, enter it and let the device `watch` have it."""
    payload = keys.signed(document)
    entry = Document(
        document.version, Target("device", "watch"), Envelope.decode(payload).digest, payload, "test", "", 0, None
    )
    now = time.time_ns() // 1000
    registry.add_document(entry, actor="me", time_us=now)
    registry.desire(["watch"], document.version, actor="me", time_us=now)


class Gateway(Program):
    """`fugu gateway run` for a fleet with a registry."""

    def __init__(
        self, folder: Path, broker: Broker | int, operator: dict[str, object] | None = None, **values: object
    ) -> None:
        self.store = folder / "gateway.sqlite"
        signed = SIGNED | {"operator": operator}
        file = gateway_file(folder / "gateway.toml", broker, store=self.store, signed=signed, **values)
        super().__init__(folder / "gateway.log", "fugu", "gateway", "run", file, "--verbose")

    def points(self) -> list[MeasureFrame]:
        """Frames of points that are durable."""
        return stored_points(self.store)

    def versions(self) -> set[int]:
        """Policy versions of the durable frames of symbols."""
        return {frame.policy_version for some in stored_symbols(self.store).values() for frame in some}


class Operator(Recorder):
    """Publishes as an operator, or an attacker, and hears what the device says."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, topic_of("policy_status", "home", "watch"), topic_of("symbols", "home", "watch", "+"))

    @property
    def statuses(self) -> list[PolicyStatus]:
        return self.of("policy_status", PolicyStatus.decode)

    def say(self, payload: bytes, topic: str = topic_of("policy_set", "home", "watch"), retain: bool = True) -> None:
        assert self.link.publish(topic, payload, retain=retain) is not None

    @property
    def now(self) -> PolicyStatus:
        return self.statuses[-1]

    def until(self, condition: Callable[[PolicyStatus], object]) -> PolicyStatus:
        """Wait until the device has said something."""
        wait_until(lambda: self.statuses and condition(self.now), "the device's policy status")
        return self.now
