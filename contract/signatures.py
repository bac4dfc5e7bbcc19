"""Whose signatures count: the one rule that device, operator and gateway judge an envelope by."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from contract.envelope import Envelope
from contract.errors import RoleError, SignatureError, ThresholdError
from contract.fleet_documents import Role

__all__ = ["signers", "verified"]


def signers(envelope: Envelope, role: Role, keys: Mapping[bytes, bytes]) -> set[bytes]:
    """The names of a role's keys that have validly signed an envelope.

    Args:
        keys: public keys of 32 bytes by name, of all roles.
    """
    return {
        one.key
        for one in envelope.signatures
        if one.key in role.names and one.key in keys and _valid(keys[one.key], one.signature, envelope.message)
    }


def verified(envelope: Envelope, role: Role, keys: Mapping[bytes, bytes]) -> None:
    """Refuse an envelope unless enough of a role's keys have signed it, each of them validly; others do not count.

    Args:
        envelope, role, keys: as for `signers`.

    Raises:
        RoleError: no key of the role has signed it.
        SignatureError: a signature of such a key does not match.
        ThresholdError: too few of them have signed.
    """
    claimed = {one.key for one in envelope.signatures} & role.names & set(keys)
    if not claimed:
        raise RoleError(f"no key that may sign a {envelope.kind} document has signed it")
    valid = signers(envelope, role, keys)
    if valid != claimed:
        raise SignatureError("a signature does not match the document")
    if len(valid) < role.threshold:
        raise ThresholdError(f"{len(valid)} of the {role.threshold} signatures that are needed")


def _valid(public: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True
