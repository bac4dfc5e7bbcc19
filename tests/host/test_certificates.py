"""When certificates end, from the files of a folder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from gateway.deployment.certificates import Authority
from host.certificates import Certificate, certificate, certificates

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_the_certificates_of_a_folder_are_told_by_their_end(tmp_path: Path) -> None:
    authority = Authority.create("home", NOW, 3650)
    client = authority.issue_client("watch", NOW, 9)
    files = {"ca.pem": authority.pem().certificate, "client.pem": client.certificate, "client.key": client.key}
    for name, content in {**files, "both.pem": client.key + client.certificate, "notes.pem": b"-----BEGIN"}.items():
        (tmp_path / name).write_bytes(content)
    watch = Certificate(tmp_path / "client.pem", "watch", NOW + timedelta(days=9))
    found = certificates([tmp_path, tmp_path / "client.pem"])
    assert found[:2] == [watch._replace(file=tmp_path / "both.pem"), watch]
    assert found[2:] == [Certificate(tmp_path / "ca.pem", "Fugu Edge home authority", NOW + timedelta(days=3650))]
    assert watch.days_left(NOW + timedelta(days=8, hours=12)) == 0.5
    assert watch.days_left(NOW + timedelta(days=10)) == -1.0


def test_a_certificate_from_a_connection_is_read_too_and_what_is_none_is_none(tmp_path: Path) -> None:
    made = Authority.create("home", NOW, 1).issue_server(["gw.example"], NOW, 1)
    der = x509.load_pem_x509_certificate(made.certificate).public_bytes(Encoding.DER)
    assert certificate(der, tmp_path) == Certificate(tmp_path, "gw.example", NOW + timedelta(days=1))
    for data in (b"", b"\x30\x82", made.key, b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"):
        assert certificate(data, tmp_path) is None
    with pytest.raises(OSError, match="missing"):
        certificates([tmp_path / "missing.pem"])
