"""Each check of the machine, once where all is well and once where it is not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from fugu.host import checks
from fugu.host.checks import Finding

NOW = 1_790_000_000.0
DAY = 86_400


def verdicts(findings: Iterable[Finding]) -> list[str]:
    findings = list(findings)
    assert all("\n" not in finding.text and finding.text for finding in findings)
    return [finding.verdict for finding in findings]


def test_randomness() -> None:
    assert checks.randomness().verdict == "ok"


def waits(_count: int) -> bytes:
    raise BlockingIOError


@pytest.mark.parametrize("read", [waits, bytes, lambda count: b"\xff" * count, lambda _count: os.urandom(16)])
def test_a_kernel_that_has_no_randomness_or_gives_none(read: Callable[[int], bytes]) -> None:
    assert checks.randomness(read).verdict == "FAIL"


def test_randomness_that_repeats_itself() -> None:
    block = os.urandom(4096)
    assert checks.randomness(lambda _count: block).verdict == "FAIL"


def test_clock() -> None:
    assert checks.clock(NOW, True).verdict == "ok"
    assert checks.clock(NOW, False).verdict == "warn"
    assert checks.clock(86_400.0, True).verdict == "FAIL", "a board without a clock begins in 1970"


def test_disk(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("22 1 8:1 / / rw - ext4 /dev/sda rw\n")
    assert verdicts(checks.disk("outbox", tmp_path, mounts_file=mounts))[0] in ("ok", "warn")
    assert list(tmp_path.iterdir()) == [mounts], "nothing is left behind"


def test_a_disk_that_takes_nothing(tmp_path: Path) -> None:
    assert verdicts(checks.disk("outbox", tmp_path / "gone")) == ["FAIL"]


@pytest.mark.parametrize("name", ["outbox", "Ordner für Töne"])
def test_a_disk_that_a_restart_empties(tmp_path: Path, name: str) -> None:
    folder, mounts = tmp_path / name, tmp_path / "mounts"
    folder.mkdir()
    where = str(folder.resolve()).replace(" ", "\\040")
    mounts.write_text(f"22 1 8:1 / / rw - ext4 /dev/sda rw\n23 22 0:1 / {where} rw shared:1 - tmpfs tmpfs rw\n")
    findings = [*checks.disk("outbox", folder, mounts_file=mounts)]
    assert "FAIL" in verdicts(findings)
    assert any("tmpfs" in finding.text for finding in findings)


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A disk that says that it has little room."""
    real = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result([*real[:4], 1, *real[5:]]))
    return tmp_path


def test_a_disk_that_is_nearly_full(full: Path) -> None:
    assert verdicts(checks.disk("outbox", full))[0] == "FAIL"


def test_private_file(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    assert checks.private_file(secret).verdict == "FAIL"
    secret.write_text("x")
    for mode, verdict in ((0o600, "ok"), (0o400, "ok"), (0o640, "FAIL"), (0o604, "FAIL")):
        secret.chmod(mode)
        assert checks.private_file(secret).verdict == verdict


def test_certificate(tmp_path: Path) -> None:
    file = tmp_path / "client.pem"
    end = datetime.now(UTC) + timedelta(days=50)
    trustme.CA().issue_cert("a", not_after=end).cert_chain_pems[0].write_to_path(str(file))
    for days, verdict in ((-19, "ok"), (-21.5, "warn"), (-49.9, "warn"), (-50.1, "FAIL")):
        assert checks.certificate("x", file, end.timestamp() - (50 + days) * DAY).verdict == verdict
    assert checks.certificate("x", file, 0.0).verdict == "FAIL", "not valid yet"
    assert checks.certificate("x", tmp_path / "gone.pem", NOW).verdict == "FAIL"
    file.write_text("no certificate")
    assert checks.certificate("x", file, NOW).verdict == "FAIL"


def test_versions() -> None:
    assert set(verdicts(checks.versions())) == {"ok"}
    assert len([*checks.versions()]) > 2
    assert verdicts(checks.versions(["msgpack>=0.1,<999"])) == ["ok", "ok"]
    assert verdicts(checks.versions(["msgpack>=999"])) == ["ok", "FAIL"]
    assert verdicts(checks.versions(["msgpack>=0.1,<0.2"])) == ["ok", "FAIL"]
    assert verdicts(checks.versions(["no-such-library>=1"])) == ["ok", "FAIL"]


def test_broker() -> None:
    good = checks.broker("127.0.0.1:1883", "done", "", end_time=None, writable={"a": True}, now=NOW)
    assert verdicts(good) == ["ok", "ok"]
    assert verdicts(checks.broker("127.0.0.1:1", "done", "", end_time=None, writable=None, now=NOW)) == ["ok", "ok"]
    open_to_all = checks.broker("broker.example:1883", "done", "", end_time=None, writable={}, now=NOW)
    assert [finding.check for finding in open_to_all if finding.verdict == "warn"] == ["TLS"]
    for here in ("[::1]:1883", "localhost:1883"):
        assert verdicts(checks.broker(here, "done", "", end_time=None, writable={}, now=NOW)) == ["ok", "ok"]
    away = checks.broker("[fd00::2]:1883", "done", "", end_time=None, writable={}, now=NOW)
    assert verdicts(away) == ["ok", "warn", "ok"]
    ends = [*checks.broker("b:8883", "done", "", end_time=NOW + DAY, writable={"a": True, "b": False}, now=NOW)]
    assert verdicts(ends) == ["ok", "warn", "FAIL"]
    assert "b" in ends[2].text
    for step in ("address", "connection", "TLS", "login"):
        assert verdicts(checks.broker("b:1", step, "why", end_time=None, writable=None, now=NOW)) == ["FAIL"]


def test_unit() -> None:
    def shown(**changes: str) -> list[Finding]:
        usual = {"LoadState": "loaded", "ActiveState": "active", "NRestarts": "0", "Type": "notify"}
        lines = {**usual, "WatchdogUSec": "1min", **changes}
        return [*checks.unit("x.service", lambda _name: "\n".join(f"{key}={value}" for key, value in lines.items()))]

    assert verdicts(shown()) == ["ok"]
    assert verdicts(shown(ActiveState="failed")) == ["FAIL"]
    assert verdicts(shown(NRestarts="3")) == ["warn"]
    assert verdicts(shown(WatchdogUSec="0")) == ["ok", "warn"]
    assert shown(LoadState="not-found") == []
    assert [*checks.unit("x.service", lambda _name: "")] == []
