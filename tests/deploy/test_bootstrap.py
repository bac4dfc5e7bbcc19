"""Setting up a checkout: nothing that it installs is started, and the demo is the pinned one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
APT = """#!/bin/sh
[ "$1" = install ] || exit 0
/usr/sbin/policy-rc.d mosquitto start
echo "$? $*" > "$RECORD"
"""
PYTHON = """#!/bin/sh
echo "$*" >> "$RECORD"
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.long
def test_what_apt_installs_is_not_started(tmp_path: Path) -> None:
    """In a mount of its own, where the folder of the policy is an empty one."""
    space = ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*space, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system has no user namespaces")
    program(tmp_path / "bin/apt-get", APT)
    (tmp_path / "sbin").mkdir()
    (tmp_path / ".venv/bin").mkdir(parents=True)
    program(tmp_path / ".venv/bin/python", PYTHON)
    (tmp_path / ".venv/dev.done").touch()
    (tmp_path / "pyproject.toml").touch()
    os.utime(tmp_path / "pyproject.toml", (0, 0))
    record = tmp_path / "record"
    script = (
        f"mount --bind {tmp_path}/sbin /usr/sbin && exec sh {ROOT}/deploy/bootstrap.sh dev no-such-command=mosquitto"
    )
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "RECORD": str(record)}
    done = subprocess.run([*space, "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert record.read_text() == "101 install -y -qq --no-install-recommends mosquitto\n", "the policy forbids to start"
    assert [*(tmp_path / "sbin").iterdir()] == [], "it is for this installation only"


@pytest.mark.long
def test_the_demo_is_installed_by_version_and_hash(tmp_path: Path) -> None:
    record = tmp_path / "record"
    program(tmp_path / ".venv/bin/python", PYTHON)
    shutil.copytree(ROOT / "deploy/constraints", tmp_path / "deploy/constraints")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    environment = {**os.environ, "RECORD": str(record)}
    for _ in range(2):
        subprocess.run(["sh", ROOT / "deploy/bootstrap.sh", "demo"], cwd=tmp_path, check=True, env=environment)
    pinned, own = record.read_text().splitlines()  # once: nothing has changed since
    assert "--no-deps --require-hashes -r deploy/constraints/build.txt -r deploy/constraints/demo.txt" in pinned
    assert own.endswith("--no-deps --no-build-isolation --editable .")
