"""The deployment's own certificate authority, for the broker's certificate and, with mutual TLS, for its clients.

No certificate holds for longer than the authority's. All keys are on the curve P-256. A client's certificate allows
client authentication only, so that a thief cannot pose as the broker.
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

__all__ = ["Authority", "CertifiedKey"]

_BACKDATED = timedelta(days=1)
"""The time by which a certificate is backdated: a clock without a battery may be some hours behind."""

_LONGEST_NAME = 64  # characters of a subject, by X.520
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True, slots=True)
class CertifiedKey:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, fleet: str, now: datetime, days: int) -> Self:
        """Make a new authority; `now` has a zone."""
        private_key = ec.generate_private_key(ec.SECP256R1())
        name = _common_name(f"Fugu Edge {fleet} authority"[:_LONGEST_NAME])
        builder = _builder(name, name, private_key.public_key(), now, now + timedelta(days), authority=True)
        return cls(builder.sign(private_key, hashes.SHA256()), private_key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """Read an authority from two PEM files. FuguError if they are not PEM, or do not belong together."""
        try:
            ca = x509.load_pem_x509_certificate(certificate)
            private_key, public_key = serialization.load_pem_private_key(key, password=None), ca.public_key()
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise FuguError("the authority's certificate or key is not PEM") from None
        if not isinstance(private_key, ec.EllipticCurvePrivateKey) or private_key.public_key() != public_key:
            raise FuguError("the authority's key is not that of its certificate")
        return cls(ca, private_key)

    def pem(self) -> CertifiedKey:
        """Return the authority's certificate and key as PEM."""
        return CertifiedKey(self.certificate.public_bytes(serialization.Encoding.PEM), _pem(self.key))

    def issue_server(self, hosts: Sequence[str], now: datetime, days: int) -> CertifiedKey:
        """Make the broker's certificate for its hosts, and a new key. FuguError if the authority's has ended."""
        host_names = x509.SubjectAlternativeName(map(_general_name, hosts))
        return self._issue(hosts[0][:_LONGEST_NAME], now, days, ExtendedKeyUsageOID.SERVER_AUTH, host_names)

    def issue_client(self, name: str, now: datetime, days: int) -> CertifiedKey:
        """Make the certificate of an account, which names the account, and a new key. Raises as `issue_server`."""
        return self._issue(name, now, days, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue(
        self, name: str, now: datetime, days: int, purpose: x509.ObjectIdentifier, *extensions: x509.ExtensionType
    ) -> CertifiedKey:
        last_time = self.certificate.not_valid_after_utc
        if last_time <= now:
            raise FuguError(f"the authority's certificate ended on {last_time:%Y-%m-%d}: make a new broker's folder")
        key = ec.generate_private_key(ec.SECP256R1())
        end = min(now + timedelta(days), last_time)
        builder = _builder(_common_name(name), self.certificate.subject, key.public_key(), now, end, authority=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        for extension in (x509.ExtendedKeyUsage([purpose]), issuer, *extensions):
            builder = builder.add_extension(extension, critical=False)
        return CertifiedKey(builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), _pem(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
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
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - _BACKDATED)
        .not_valid_after(last_time.astimezone(UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
        .add_extension(x509.KeyUsage(**{name: name in usages for name in _USAGES}), critical=True)
    )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
