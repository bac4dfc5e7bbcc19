"""`python -m edge_agent.reporter < REQUEST`: draw a window's masks, encrypt them to a group's helper, and sign them.

This runs in a process of its own, so that cryptography costs the running agent neither memory nor time. It runs before
the window begins, and so knows no count. The request is a JSON list, the arguments of `seal`; the answer is a JSON
object, the fields of `Sealed`. Bytes are hexadecimal digits.
"""

from __future__ import annotations

import json
import os
import sys
from typing import NamedTuple

from fugu.contract.errors import FuguError
from fugu.host.child import Answer, answer_of

__all__ = ["Sealed", "seal"]

_REPORT = b"fugu-edge/2/report\0"
_ML_KEM_BYTES = 1184


class Sealed(NamedTuple):
    """Masks of 8 bytes, the device's public key, the ciphertext, and the signature of header and ciphertext."""

    masks: bytes = b""
    member: bytes = b""
    ciphertext: bytes = b""
    signature: bytes = b""


def main() -> None:
    """Answer the request on standard input."""

    def answer_request() -> Answer:
        count, *fields = json.load(sys.stdin)
        return {name: value.hex() for name, value in seal(count, *map(bytes.fromhex, fields))._asdict().items()}

    json.dump(answer_of(answer_request), sys.stdout)


def seal(count: int, helper: bytes, signed: bytes, signature: bytes, key: bytes, seed: bytes, header: bytes) -> Sealed:
    """Draw `count` masks and encrypt them to the helper's opening key. If `count` is 0, only check the opening key.

    Args:
        helper: the helper's public key.
        signed, signature: the message with the opening key that the helper has signed, and its signature.
        key: the opening key.
        seed: the seed of the device's own key.
        header: bytes that are bound to the ciphertext, and signed with it.

    Raises FuguError if the helper has not signed the opening key, or `cryptography` is too old.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
        from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PublicKey, Suite
    except ImportError:
        raise FuguError("the installed cryptography has no MLKEM768_X25519: install 50 or newer") from None
    try:
        Ed25519PublicKey.from_public_bytes(helper).verify(signature, signed)
        public_key = MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(key[:_ML_KEM_BYTES]),
            X25519PublicKey.from_public_bytes(key[_ML_KEM_BYTES:]),
        )
    except (InvalidSignature, ValueError):
        raise FuguError("its newest opening key is not signed by its helper") from None
    if not (masks := os.urandom(8 * count)):
        return Sealed()
    suite = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    ciphertext = suite.encrypt(masks, public_key, info=header)
    device = Ed25519PrivateKey.from_private_bytes(seed)
    return Sealed(masks, device.public_key().public_bytes_raw(), ciphertext, device.sign(_REPORT + header + ciphertext))


if __name__ == "__main__":
    main()
