"""Signed envelopes: bytes of some kind, and Ed25519 signatures over both.

What is inside is not looked at here. A signature covers the kind, so that a document signed as one kind is never taken
for another. Keys are named by the first half of the SHA-256 of the public key, so a key has one name only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fugu.contract._wire import array, binary, each, fields, identity, length, pack, text
from fugu.contract.errors import FrameRangeError

__all__ = [
    "MAX_ENVELOPE_BYTES",
    "Envelope",
    "Kind",
    "Signature",
    "decode_envelope",
    "decode_roots",
    "encode_envelope",
    "encode_roots",
    "key_name",
    "sign",
]

Kind = Literal["root", "policy", "table", "time", "stop", "statement"]

ENVELOPE, ROOTS = 10, 12
MAX_ENVELOPE_BYTES = 1 << 21
MAX_SIGNATURES = 16
MAX_ROOTS = 256
_DOMAIN = b"fugu-edge/2/"
_KEY_BYTES = 32
SIGNATURE_BYTES = 64
KEY_NAME_BYTES = 16


@dataclass(frozen=True, slots=True)
class Signature:
    """The name of a key, and its signature."""

    key: bytes
    signature: bytes

    def __post_init__(self) -> None:
        """Refuse other lengths."""
        binary(self.key, KEY_NAME_BYTES, KEY_NAME_BYTES, "key")
        binary(self.signature, SIGNATURE_BYTES, SIGNATURE_BYTES, "signature")


@dataclass(frozen=True, slots=True)
class Envelope:
    """Bytes that somebody has signed.

    Attributes:
        kind: what they are; says which role has to sign them.
        signatures: at most one of each key.
    """

    kind: Kind
    payload: bytes
    signatures: tuple[Signature, ...]

    def __post_init__(self) -> None:
        """Refuse values that no envelope can hold."""
        text(self.kind, 1, 16, "kind")
        if self.kind not in get_args(Kind):
            raise FrameRangeError("an envelope of an unknown kind")
        binary(self.payload, 1, MAX_ENVELOPE_BYTES, "payload")
        length(self.signatures, 0, MAX_SIGNATURES, "signatures")
        if len({signature.key for signature in self.signatures}) != len(self.signatures):
            raise FrameRangeError("an envelope with two signatures of one key")

    @property
    def message(self) -> bytes:
        """What the signatures are of: the payload, and of which kind it is."""
        return _signed(self.kind, self.payload)

    @property
    def digest(self) -> str:
        """What names the content, whoever has signed it."""
        return hashlib.sha256(self.message).hexdigest()


def sign(kind: Kind, payload: bytes, keys: Iterable[Ed25519PrivateKey]) -> Envelope:
    """Put bytes into an envelope and sign it."""
    message = _signed(kind, payload)
    signatures = (Signature(key_name(key.public_key().public_bytes_raw()), key.sign(message)) for key in keys)
    return Envelope(kind, payload, tuple(sorted(signatures, key=lambda signature: signature.key)))


def key_name(public: bytes) -> bytes:
    """The name of a public key of 32 bytes."""
    binary(public, _KEY_BYTES, _KEY_BYTES, "public key")
    return hashlib.sha256(public).digest()[:KEY_NAME_BYTES]


def encode_envelope(envelope: Envelope) -> bytes:
    """Bytes of an envelope."""
    signatures = [[signature.key, signature.signature] for signature in envelope.signatures]
    return pack(ENVELOPE, [envelope.kind, envelope.payload, signatures])


def decode_envelope(payload: bytes) -> Envelope:
    """Parse an envelope; what is inside stays bytes.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    if len(payload) > MAX_ENVELOPE_BYTES:
        raise FrameRangeError(f"an envelope of {len(payload)} bytes; at most {MAX_ENVELOPE_BYTES} are allowed")
    kind, content, rows = fields(payload, ENVELOPE, 3)

    def signature(row: Any) -> Signature:
        return Signature(*array(row, 2, "signature"))

    return Envelope(kind, content, each(rows, signature, "signatures"))


def encode_roots(envelopes: Sequence[bytes]) -> bytes:
    """Bytes of a message with root documents, each in its envelope, one version after the other."""
    return pack(ROOTS, [list(envelopes)])


def decode_roots(payload: bytes) -> tuple[bytes, ...]:
    """The envelopes of a message with root documents.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    (rows,) = fields(payload, ROOTS, 1)
    found = each(rows, identity, "roots")
    length(found, 1, MAX_ROOTS, "roots")
    for envelope in found:
        binary(envelope, 1, MAX_ENVELOPE_BYTES, "root")
    return found


def _signed(kind: str, payload: bytes) -> bytes:
    return _DOMAIN + kind.encode() + b"\0" + payload
