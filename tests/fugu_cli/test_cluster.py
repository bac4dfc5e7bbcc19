"""`fugu gateway cluster` that cannot start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.command import Fugu
from tests.support.gateway_files import gateway_file
from tests.support.scenes import policy, write_policies


def run(fugu: Fugu, folder: Path, **values: str) -> str:
    write_policies(folder / "policies", [policy(1)])
    file = gateway_file(folder / "gateway.toml", 1, policies="policies", **values)
    return fugu("gateway", "cluster", file, "--shards", 2).refusal()


def test_what_is_on_one_machine_is_refused(fugu: Fugu, tmp_path: Path) -> None:
    assert "the store home.db is a file" in run(fugu, tmp_path, store="home.db")
    server = "postgresql://fugu@127.0.0.1/home"
    assert "a ledger in a file is on one machine" in run(fugu, tmp_path, store=server, ledger="ledger.db")


def test_without_ray_one_line_says_what_to_install(fugu: Fugu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    line = run(fugu, tmp_path, store="postgresql://fugu@127.0.0.1/home")
    assert line == "fugu: this command needs ray: pip install 'fugu-edge[cluster]'\n"
