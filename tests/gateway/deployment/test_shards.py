"""Shards at the shipped broker, which gives every account one connection: each has an account of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fugu.contract.errors import UsageError
from fugu.mqtt import Broker
from gateway.cluster.duties import shard_account
from gateway.deployment.broker_files import BrokerFolder
from gateway.deployment.doctor import examine, read_installation
from tests.support.brokers import wait_until
from tests.support.command import Fugu
from tests.support.shipped import Shipped


def test_a_gateway_that_is_there_gets_accounts_for_more_shards(fugu: Fugu, tmp_path: Path) -> None:
    broker = tmp_path / "broker"
    assert fugu("deploy", "broker", broker, "--fleet", "home", "--host", "h").code == 0
    added = ("deploy", "gateway", "--broker", broker)
    assert fugu(*added, tmp_path / "one").code == 0
    assert not list((tmp_path / "one").glob("password-*"))
    assert fugu(*added, tmp_path / "four", "--renew", "--shards", 4).code == 0
    assert [account.name for account in BrokerFolder.open(broker).settings.accounts] == [
        "gateway",
        *(f"gateway-{n}" for n in range(4)),
    ]
    unit = (tmp_path / "four" / "fugu-gateway.service").read_text()
    assert "password-3" not in unit, "a gateway that is no shard has its own account alone"
    assert (tmp_path / "four" / "password-3").stat().st_mode & 0o077 == 0
    taken = ("deploy", "operator", "--broker", broker, tmp_path / "o", "--name", "gateway-4")
    assert fugu(*taken).code == 0
    before = (broker / "passwords").read_bytes()
    refused = fugu(*added, tmp_path / "five", "--renew", "--shards", 5)
    assert refused.err == "fugu: the account gateway-4 exists, as operator\n"
    assert (broker / "passwords").read_bytes() == before, "nothing is done by halves"


def test_one_shard_without_an_account_is_refused_and_all_without_share_the_gateway_s(tmp_path: Path) -> None:
    certificate, key = str(tmp_path / "client.pem"), str(tmp_path / "client.key")
    both = Broker(username="gw", password_file=str(tmp_path / "secret.txt"), cert_file=certificate, key_file=key)
    for plain in (Broker(), both):
        assert shard_account(plain, 1, 2) == plain
    for name in ("secret-1.txt", "client-1.pem", "client-1.key"):
        assert shard_account(both, 1, 2) == both, f"{name} is missing"
        (tmp_path / name).touch()
    own = shard_account(both, 1, 2)
    assert (own.username, Path(own.password_file or "").name) == ("gw-1", "secret-1.txt")
    assert [Path(file or "").name for file in (own.cert_file, own.key_file)] == ["client-1.pem", "client-1.key"]
    with pytest.raises(UsageError, match="shard 0 has no account, and others have"):
        shard_account(both, 0, 2)


def test_the_doctor_knows_the_accounts_of_shards(fleet: Shipped, tmp_path: Path) -> None:
    folder = tmp_path / "gateway"
    shutil.copytree(fleet.root / "gateway", folder)

    with fleet.client("watch") as device:  # the doctor listens until it has heard of one
        assert device.publish("fugu/2/home/watch/status", retain=True) == 0

    def findings() -> dict[str, str]:
        return {finding.check: finding.verdict for finding in examine(read_installation(folder / "gateway.toml"))}

    verdicts = findings()
    assert [verdicts["shard 0"], verdicts["shard 1"], verdicts["access list"]] == ["ok"] * 3
    secret = "client-1.key" if fleet.mutual else "password-1"
    assert verdicts[f"file {secret}"] == "ok"
    assert not fleet.mutual or verdicts["certificate of shard 1"] == "ok"
    if not fleet.mutual:
        password = (folder / "password-0").read_text()
        (folder / "password-0").write_text("wrong\n")
        assert findings()["shard 0"] == "FAIL"
        (folder / "password-0").write_text(password)
        assert findings()["shard 0"] == "ok"
    access = fleet.folder / "access.acl"
    before = access.read_text()
    access.write_text(before.replace("user gateway-0\n", "user somebody\n"))
    fleet.reload()
    wait_until(lambda: findings()["shard 0"] == "FAIL", "the broker's new access list")
    access.write_text(before)
    (folder / secret).chmod(0o644)
    assert findings()[f"file {secret}"] == "FAIL"
    (folder / secret).unlink()
    assert findings()["shard 1"] == "FAIL"
