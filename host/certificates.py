"""When certificates end: what an installation's files say, without their keys."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

__all__ = ["Certificate", "certificate", "certificates"]

_DAY_SECONDS = 86_400


class Certificate(NamedTuple):
    """A certificate and its end.

    Attributes:
        file: where it was read from.
        name: its subject's common name.
        ends: the first moment at which it does not hold any more, in UTC.
    """

    file: Path
    name: str
    ends: datetime

    def days_left(self, now: datetime) -> float:
        """Days until its end, negative after it; `now` has its zone."""
        return (self.ends - now).total_seconds() / _DAY_SECONDS


def certificate(data: bytes, file: Path) -> Certificate | None:
    """A certificate from its PEM or DER form, of several the first; none if the bytes are none."""
    from cryptography import x509  # nobody else waits for the library

    try:
        load = x509.load_pem_x509_certificate if b"-----BEGIN" in data else x509.load_der_x509_certificate
        found = load(data)
        names = found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    except ValueError:
        return None
    return Certificate(file, str(names[0].value) if names else "", found.not_valid_after_utc)


def certificates(paths: Iterable[Path]) -> list[Certificate]:
    """Certificates in files, and in the `*.pem` of folders, the one that ends first first; other files are passed over.

    Raises:
        OSError: a file or a folder cannot be read.
    """
    files = [file for path in paths for file in (sorted(path.glob("*.pem")) if path.is_dir() else [path])]
    found = (certificate(file.read_bytes(), file) for file in dict.fromkeys(files))
    return sorted((one for one in found if one is not None), key=lambda one: one.ends)
