"""The gateway's own key: it signs tables for measured streams, and the time, and nothing else."""

from __future__ import annotations

import stat
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from contract.envelope import Kind, encode_envelope, sign
from contract.errors import FuguError
from contract.fleet_documents import TableDocument, TimeDocument, write_document
from contract.measure_table import TimedTable, encoded_table

__all__ = ["Signer", "SignerError"]


class SignerError(FuguError):
    """The gateway's key cannot be used."""


class Signer:
    """Signs for one fleet.

    Args:
        fleet: name of the fleet.
        key: PEM file of the private key, encrypted, readable by its owner only.
        passphrase_file: its first line is the key's passphrase; readable by its owner only.

    Raises:
        SignerError: one line that says what is wrong with the files.
    """

    def __init__(self, fleet: str, key: Path, passphrase_file: Path) -> None:
        self._fleet = fleet
        passphrase = _secret(passphrase_file).split(b"\n", 1)[0].rstrip(b"\r")
        try:
            loaded = load_pem_private_key(_secret(key), passphrase)
        except (ValueError, TypeError):
            raise SignerError(f"{key} is no private key of this passphrase") from None
        if not isinstance(loaded, Ed25519PrivateKey):
            raise SignerError(f"{key} is no Ed25519 key")
        self._key = loaded

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def table(self, device: str, stream: str, table: TimedTable) -> bytes:
        """The envelope of a table."""
        document = TableDocument(fleet=self._fleet, device=device, stream=stream, table=encoded_table(table))
        return self._sealed("table", write_document(document))

    def time(self, seconds: int) -> bytes:
        """The envelope of the time, in Unix seconds."""
        return self._sealed("time", write_document(TimeDocument(fleet=self._fleet, time=seconds)))

    def _sealed(self, kind: Kind, payload: bytes) -> bytes:
        return encode_envelope(sign(kind, payload, [self._key]))


def _secret(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        content = path.read_bytes()
    except OSError as error:
        raise SignerError(f"cannot read {path}: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SignerError(f"{path} can be read by others: chmod 600 {path}")
    return content
