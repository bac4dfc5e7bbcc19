"""`python -m edge_agent.reporter < REQUEST`: draw a window's masks, encrypt them to a group's helper, and sign them.

A process of its own, so that cryptography costs the running agent neither memory nor time. It is done before the window
begins, and so knows no count. Request and answer are fields, each with its length in 4 bytes before it, the highest
first:

    request     helper's public key, signed bytes and signature of its opening key, that key, device key, header, count
    answer      count masks of 8 bytes, device's public key, ciphertext, signature of header and ciphertext

With a count of 0 the opening key is checked, and nothing else; then the answer has empty fields. Without an answer
something was wrong: the exit code is 3 if the opening key is not the helper's, 4 where `cryptography` is too old.
"""

from __future__ import annotations

import os
import sys

__all__ = ["BAD_KEY", "TOO_OLD", "join_fields", "seal", "split_fields"]

BAD_KEY, TOO_OLD = 3, 4
_REPORT = b"fugu-edge/2/report\0"
_ML_KEM_BYTES = 1184


def main() -> int:
    """Answer one request."""
    code, answer = seal(split_fields(sys.stdin.buffer.read()))
    sys.stdout.buffer.write(join_fields(answer))
    return code


def seal(request: list[bytes]) -> tuple[int, list[bytes]]:
    """Draw and encrypt masks: the exit code, and the fields of the answer if that is 0."""
    helper, signed, signature, key, seed, header, count = request
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
        from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PublicKey, Suite
    except ImportError:
        return TOO_OLD, []
    try:
        Ed25519PublicKey.from_public_bytes(helper).verify(signature, signed)
        public = MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(key[:_ML_KEM_BYTES]),
            X25519PublicKey.from_public_bytes(key[_ML_KEM_BYTES:]),
        )
    except (InvalidSignature, ValueError):
        return BAD_KEY, []
    answer = [b""] * 4
    if masks := os.urandom(8 * int.from_bytes(count, "big")):
        suite = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
        ciphertext = suite.encrypt(masks, public, info=header)
        device = Ed25519PrivateKey.from_private_bytes(seed)
        member = device.public_key().public_bytes_raw()
        answer = [masks, member, ciphertext, device.sign(_REPORT + header + ciphertext)]
    return 0, answer


def join_fields(fields: list[bytes]) -> bytes:
    """Fields one after the other, each with its length before it."""
    return b"".join(len(field).to_bytes(4, "big") + field for field in fields)


def split_fields(data: bytes) -> list[bytes]:
    """The fields of bytes that `join_fields` has made; ValueError if they end early."""
    fields, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise ValueError("a field ends early")
        fields.append(data[at + 4 : end])
        at = end
    return fields


if __name__ == "__main__":
    sys.exit(main())
