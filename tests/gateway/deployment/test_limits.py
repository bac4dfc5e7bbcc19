"""Limits that follow from the number of accounts, in configuration, unit and firewall."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.deployment.mosquitto import Account, Role, firewall, limits
from tests.support.command import Fugu


def accounts(devices: int, *others: Role) -> list[Account]:
    """So many devices, and accounts of other roles."""
    crowd = [Account(name=f"device-{number}", role="device") for number in range(devices)]
    return [*crowd, *(Account(name=f"{role}-{place}", role=role) for place, role in enumerate(others))]


def test_every_limit_grows_with_the_accounts_and_not_with_those_that_were_removed() -> None:
    few, many = limits(accounts(10, "gateway")), limits(accounts(11, "gateway"))
    assert all(more > less for more, less in zip(many, few, strict=True))
    assert limits(accounts(10, "gateway", "removed")) == few
    assert limits(accounts(10, "gateway", "site")).heap - many.heap > 32 << 20  # one queue more
    assert limits(accounts(10, "gateway", "shard", "shard")).heap - few.heap > 2 * (32 << 20)  # and one of each shard
    assert few.memory > few.heap + few.connections * 57_000


@pytest.mark.parametrize("devices", [0, 1, 1000])
def test_one_address_leaves_connections_for_others_and_has_enough_for_all_accounts_twice(devices: int) -> None:
    bounds = limits(accounts(devices, "gateway"))
    assert 2 * (devices + 1) < bounds.per_source < bounds.connections - 100
    assert bounds.files > bounds.connections


def test_the_files_of_the_broker_follow_its_accounts(fugu: Fugu, tmp_path: Path) -> None:
    broker = tmp_path / "broker"
    assert fugu("deploy", "broker", broker, "--fleet", "home", "--host", "h").code == 0
    seen = set()
    for number in range(3):
        bounds = limits(accounts(number))
        configuration = (broker / "mosquitto.conf").read_text()
        for line in (f"max_connections {bounds.connections}", f"memory_limit {bounds.heap}", "max_qos 1"):
            assert f"\n{line}\n" in configuration
        assert f"{bounds.files} (ulimit -n)" in configuration
        unit = (broker / "fugu-broker.service").read_text()
        for line in (f"MemoryMax={bounds.memory}", f"LimitNOFILE={bounds.files}", "Restart=always"):
            assert f"\n{line}\n" in unit
        assert f"ct count over {bounds.per_source} " in (broker / "fugu-broker.nft").read_text()
        seen.add(configuration)
        words = (tmp_path / str(number), "--broker", broker, "--name", f"watch-{number}", "--stream", "hr")
        assert fugu("deploy", "device", *words).code == 0
    assert fugu("deploy", "remove", "--broker", broker, "watch-2").code == 0
    assert (broker / "mosquitto.conf").read_text() == configuration
    assert len(seen) == 3


def test_a_container_has_the_limits_of_as_many_accounts_as_it_says() -> None:
    text = (Path(__file__).parents[3] / "deploy/container/compose.yaml").read_text()
    assert "for up to 700 accounts and 4 shards" in text
    bounds = limits(accounts(699, "gateway", *["shard"] * 4))
    assert f"nofile: {bounds.files}" in text


def test_the_rules_of_the_firewall_are_those_of_nftables(tmp_path: Path) -> None:
    if shutil.which("nft") is None:
        pytest.skip("needs nft (Debian package nftables)")
    (tmp_path / "rules").write_text(firewall("home", 8883, 20))
    done = subprocess.run(["unshare", "-n", "nft", "-c", "-f", tmp_path / "rules"], capture_output=True, text=True)
    if re.search("not permitted", done.stderr):
        pytest.skip("networks of one's own are not permitted here")
    assert (done.returncode, done.stderr) == (0, "")
