"""Signed envelopes: a kind, a payload, and Ed25519 signatures over both; the payload is not parsed here.

The signed kind keeps a document of one kind from being taken for another. Keys are named by the first half of the
SHA-256 of the public key, so a key has one name only. Kinds of a group of homes (`fugu.contract.groups`) are signed by
its helper, and count for no role of a fleet. A device signs a `report` in the same way, without an envelope.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import msgpack

from fugu.contract.errors import range_error
from fugu.contract.message import Binary, Many, Message, Row, Word, check_binary, frozen

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = [
    "MAX_ENVELOPE_BYTES",
    "Envelope",
    "Kind",
    "Roots",
    "Signature",
    "encode_roots",
    "key_digits",
    "key_name",
    "read_digits",
    "sign",
    "signed_bytes",
]


Kind = Literal["root", "policy", "table", "time", "stop", "statement", "group", "opening-key", "answer"]
MAX_ENVELOPE_BYTES = 1 << 21
MAX_ROOTS = 256
_MAX_SIGNATURES = 16
_DOMAIN = b"fugu-edge/2/"
_KEY_BYTES = 32
_SIGNATURE_BYTES = 64
_KEY_NAME_BYTES = 16
_DIGITS, _BLOCK = 30, 5
_DIGITS_DOMAIN = b"fugu-edge/2/digits\0"


@frozen
class Signature(Message):
    """The name of a key, and its signature."""

    key: Annotated[bytes, Binary(_KEY_NAME_BYTES, _KEY_NAME_BYTES), "The first half of the SHA-256 of the public key."]
    signature: Annotated[bytes, Binary(_SIGNATURE_BYTES, _SIGNATURE_BYTES), "Ed25519."]


@frozen
class Envelope(Message):
    """A signed payload of some kind."""

    SCHEMA = 10
    MOST_BYTES = MAX_ENVELOPE_BYTES, "an envelope"

    kind: Annotated[Kind, Word(get_args(Kind)), "What the payload is; says which role has to sign it."]
    payload: Annotated[bytes, Binary(1, MAX_ENVELOPE_BYTES), "The bytes that are signed."]
    signatures: Annotated[
        tuple[Signature, ...], Many(Row(Signature), 0, _MAX_SIGNATURES, "signature"), "At most one of each key."
    ]

    def _check_consistency(self) -> None:
        if len({signature.key for signature in self.signatures}) != len(self.signatures):
            raise range_error("an envelope with two signatures of one key")

    @property
    def message(self) -> bytes:
        """The signed bytes: the kind and the payload."""
        return signed_bytes(self.kind, self.payload)

    @property
    def digest(self) -> str:
        """The SHA-256 of the signed bytes, the same for all signers."""
        return hashlib.sha256(self.message).hexdigest()


@frozen
class Roots(Message):
    """The root documents of a fleet."""

    SCHEMA = 12

    roots: Annotated[
        tuple[bytes, ...],
        Many(Binary(1, MAX_ENVELOPE_BYTES), 1, MAX_ROOTS, "root"),
        "Envelopes of kind root, each as a payload of its own, in the order of their versions.",
    ]


def sign(kind: Kind, payload: bytes, keys: Iterable["Ed25519PrivateKey"]) -> Envelope:
    """Put a payload into an envelope and sign it with some keys."""
    message = signed_bytes(kind, payload)
    signatures = (Signature(key_name(key.public_key().public_bytes_raw()), key.sign(message)) for key in keys)
    return Envelope(kind, payload, tuple(sorted(signatures, key=lambda signature: signature.key)))


def key_name(public_key: bytes) -> bytes:
    """Return the name of a public key of 32 bytes."""
    check_binary(public_key, _KEY_BYTES, _KEY_BYTES, "public key")
    return hashlib.sha256(public_key).digest()[:_KEY_NAME_BYTES]


def key_digits(public_key: bytes) -> str:
    """Return the 30 digits by which people compare a public key, in six groups of five."""
    digest_number = int.from_bytes(hashlib.sha256(_DIGITS_DOMAIN + public_key).digest(), "big") % 10**_DIGITS
    digit_text = f"{digest_number:0{_DIGITS}}"
    return " ".join(digit_text[i : i + _BLOCK] for i in range(0, _DIGITS, _BLOCK))


def read_digits(text: str) -> str:
    """Convert typed digits to the form of `key_digits`; ValueError unless there are 30."""
    digit_text = "".join(text.split()).replace("-", "")
    if len(digit_text) != _DIGITS or not (digit_text.isascii() and digit_text.isdigit()):
        raise ValueError(f"{_DIGITS} digits are wanted, in six groups of five")
    return " ".join(digit_text[i : i + _BLOCK] for i in range(0, _DIGITS, _BLOCK))


def encode_roots(envelopes: Sequence[bytes]) -> bytes:
    """Encode a message of root documents, each in its envelope, one version after the other."""
    packed: bytes = msgpack.packb([list(envelopes)])
    return bytes([Roots.SCHEMA]) + packed


def signed_bytes(kind: Kind | Literal["report"], payload: bytes) -> bytes:
    """Return the bytes to sign for a payload: a domain, the kind and the payload."""
    return _DOMAIN + kind.encode() + b"\0" + payload
