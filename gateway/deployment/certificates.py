"""The deployment's own certificate authority: one for the broker's certificate and, with mutual TLS, for its clients.

No certificate holds for longer than the authority's. All keys are on the curve P-256. A certificate of a client is good
for nothing but being a client, so that a stolen one cannot stand in for the broker.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fugu.contract.errors import FuguError

__all__ = ["Authority", "Issued"]

_BACKDATED = timedelta(days=1)
"""A device without a battery for its clock may wake up some hours in the past."""

_LONGEST_NAME = 64  # of a subject, by X.520
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority whose key is at hand."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, fleet: str, now: datetime, days: int) -> Self:
        """Make a new authority; `now` has a zone."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"Fugu Edge {fleet} authority"[:_LONGEST_NAME])
        unsigned = _builder(name, name, key.public_key(), now, now + timedelta(days), authority=True)
        return cls(unsigned.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """Read an authority from its two files. FuguError if they are none, or do not belong together."""
        try:
            loaded_certificate = x509.load_pem_x509_certificate(certificate)
            private, public = serialization.load_pem_private_key(key, password=None), loaded_certificate.public_key()
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise FuguError("the authority's certificate or key is not PEM") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != public:
            raise FuguError("the authority's key is not that of its certificate")
        return cls(loaded_certificate, private)

    def pem(self) -> Issued:
        """Its certificate and its key."""
        return Issued(self.certificate.public_bytes(serialization.Encoding.PEM), _pem(self.key))

    def issue_server(self, hosts: Sequence[str], now: datetime, days: int) -> Issued:
        """Make the broker's certificate."""
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        return self._issue(hosts[0][:_LONGEST_NAME], ExtendedKeyUsageOID.SERVER_AUTH, now, days, names)

    def issue_client(self, name: str, now: datetime, days: int) -> Issued:
        """Make the certificate of one account; the broker takes the name from it."""
        return self._issue(name, ExtendedKeyUsageOID.CLIENT_AUTH, now, days, None)

    def _issue(
        self,
        name: str,
        purpose: x509.ObjectIdentifier,
        now: datetime,
        days: int,
        names: x509.SubjectAlternativeName | None,
    ) -> Issued:
        last_time = self.certificate.not_valid_after_utc
        if last_time <= now:
            raise FuguError(f"the authority's certificate ended on {last_time:%Y-%m-%d}: make a new broker's folder")
        key = ec.generate_private_key(ec.SECP256R1())
        end = min(now + timedelta(days), last_time)
        unsigned = _builder(_name(name), self.certificate.subject, key.public_key(), now, end, authority=False)
        unsigned = unsigned.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        unsigned = unsigned.add_extension(issuer, critical=False)
        if names is not None:
            unsigned = unsigned.add_extension(names, critical=False)
        return Issued(unsigned.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), _pem(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    now: datetime,
    last_time: datetime,
    *,
    authority: bool,
) -> x509.CertificateBuilder:
    usages = {"key_cert_sign", "crl_sign"} if authority else {"digital_signature"}
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - _BACKDATED)
        .not_valid_after(last_time.astimezone(UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
        .add_extension(x509.KeyUsage(**{name: name in usages for name in _USAGES}), critical=True)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
