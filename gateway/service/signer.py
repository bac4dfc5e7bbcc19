"""The gateway's own key: it signs tables for measured streams, and the time, and nothing else."""

from __future__ import annotations

from pathlib import Path

from contract.envelope import Kind, encode_envelope, sign
from contract.errors import FuguError
from contract.fleet_documents import TableDocument, TimeDocument, write_document
from contract.measure_table import TimedTable, encoded_table
from gateway.fleet import KeyStoreError
from gateway.fleet.key_file import decrypted, read_private
from gateway.fleet.passphrases import read_passphrase

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
        try:
            self._key = decrypted(read_private(key, "a key"), read_passphrase(passphrase_file), key)
        except KeyStoreError as error:
            raise SignerError(str(error)) from None

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
