"""Keys, roots and signed documents for tests of a fleet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fugu.contract.envelope import Envelope, key_name, sign
from fugu.contract.fleet_documents import (
    Address,
    Enrolment,
    PolicyDocument,
    Role,
    RootDocument,
    StopDocument,
    TableDocument,
    TimeDocument,
    compile_document,
    write_document,
)
from fugu.contract.measure_table import TimedTable
from fugu.contract.policies import AnyPolicy

NOW = 1_800_000_000
REPLAY = '{kind = "replay", file = "readings.csv"}'


def public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def named(key: Ed25519PrivateKey) -> str:
    return key_name(public(key)).hex()


def role(keys: Sequence[Ed25519PrivateKey], threshold: int) -> Role:
    """Those keys, so many of which have to sign."""
    return Role(keys=tuple(named(key) for key in keys), threshold=threshold)


def new_keys(count: int) -> list[Ed25519PrivateKey]:
    return [Ed25519PrivateKey.generate() for _ in range(count)]


@dataclass
class Keys:
    """A fleet's keys: two of three root keys, two of three policy keys, one gateway key."""

    root: list[Ed25519PrivateKey] = field(default_factory=lambda: new_keys(3))
    policy: list[Ed25519PrivateKey] = field(default_factory=lambda: new_keys(3))
    gateway: list[Ed25519PrivateKey] = field(default_factory=lambda: new_keys(1))

    def root_document(self, version: int = 1, fleet: str = "home") -> RootDocument:
        every = [*self.root, *self.policy, *self.gateway]
        return RootDocument(
            fleet=fleet,
            version=version,
            keys={named(key): public(key).hex() for key in every},
            root=role(self.root, 2),
            policy=role(self.policy, 2),
            gateway=role(self.gateway, 1),
        )

    def root_envelope(self, version: int = 1, *others: Ed25519PrivateKey, fleet: str = "home") -> bytes:
        """The same, signed by two of its root keys, and by others."""
        document = write_document(self.root_document(version, fleet))
        return sign("root", document, [*self.root[:2], *others]).encode()

    def signed(self, document: PolicyDocument, keys: Sequence[Ed25519PrivateKey] | None = None) -> bytes:
        """A policy document, signed by two policy keys if no others are given."""
        return self.envelope(document, keys).encode()

    def envelope(self, document: PolicyDocument, keys: Sequence[Ed25519PrivateKey] | None = None) -> Envelope:
        """The same before it is bytes."""
        return sign("policy", write_document(document), self.policy[:2] if keys is None else keys)

    def signed_time(self, time: int, fleet: str = "home") -> bytes:
        return sign("time", write_document(TimeDocument(fleet=fleet, time=time)), self.gateway).encode()

    def signed_stop(self, version: int, device: str = "watch", fleet: str = "home") -> bytes:
        """A stop up to a version, signed by the gateway."""
        document = StopDocument(fleet=fleet, device=device, version=version)
        return sign("stop", write_document(document), self.gateway).encode()

    def signed_table(self, table: TimedTable, device: str = "watch", stream: str = "place") -> bytes:
        document = TableDocument(fleet="home", device=device, stream=stream, table=table.text)
        return sign("table", write_document(document), self.gateway).encode()

    def enrolment(self, **fields: Any) -> Enrolment:
        defaults = {"fleet": "home", "device": "watch", "groups": ("wrists",), "ceiling": 1.0}
        return Enrolment(**{**defaults, "root": self.root_envelope().hex(), **fields})

    def enrolled(
        self,
        folder: Path,
        *lines: str,
        port: int | None = None,
        sensor: str = REPLAY,
        rows: str = "value\n0\n1\n",
        **fields: Any,
    ) -> Path:
        """The file of an agent of the stream `hr`, with its enrolment and readings."""
        folder.mkdir(exist_ok=True)
        (folder / "enrolment.json").write_text(self.enrolment(**fields).model_dump_json())
        (folder / "readings.csv").write_text(rows)
        broker = [] if port is None else ["[broker]", f"port = {port}", "max_backoff = 1"]
        names = 'fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nenrolment = "enrolment.json"'
        file = folder / "agent.toml"
        file.write_text("\n".join([names, *lines, *broker, "[[streams]]", 'stream = "hr"', f"sensor = {sensor}\n"]))
        return file


def policy_document(*policies: AnyPolicy, version: int = 1, **fields: Any) -> PolicyDocument:
    bodies = []
    for policy in policies:
        body = json.loads(policy.to_json())
        for name in ("fleet", "device", "version"):
            del body[name]
        bodies.append(body)
    defaults: dict[str, Any] = {"fleet": "home", "version": version, "to": Address(device="watch")}
    return compile_document(PolicyDocument(**{**defaults, **fields}, policies=tuple(bodies)))
