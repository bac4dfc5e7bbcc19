"""The agent's Debian package in a copy of this system that nobody sees; and the setting up of a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import policy

ROOT = Path(__file__).parents[2]
INSIDE = """
set -e
export DEBIAN_FRONTEND=noninteractive
rm -rf /run/systemd/system
dpkg -i {made} > /dev/null
install -m 600 {policy} /etc/fugu-agent/policy.json
install -m 600 /usr/share/doc/fugu-edge-agent/examples/agent.toml /etc/fugu-agent/agent.toml
mkdir -p /var/lib/fugu-agent
fugu-agent --help | head -1
echo 70 | fugu-agent --check /etc/fugu-agent/agent.toml
{python} -I -c '
import sys
sys.path.insert(0, "/usr/lib/fugu-edge")
import edge_agent.agent
files = [getattr(one, "__file__", "") or "" for one in sys.modules.values()]
print("foreign:", [file for file in files if "/site-packages/" in file or "/numpy/" in file])'
systemd-analyze verify /usr/lib/systemd/system/fugu-agent.service 2>&1 | grep fugu || true
lintian --allow-root --fail-on error {made} 2>&1 | grep ^E: || true
(cd / && md5sum --quiet -c /var/lib/dpkg/info/fugu-edge-agent.md5sums)
dpkg -i {made} > /dev/null
dpkg -r fugu-edge-agent > /dev/null
ls /usr/lib /usr/bin | grep fugu || echo removed
ls /etc/fugu-agent
for answer in false true; do
    dpkg -i {made} > /dev/null
    echo "fugu-edge-agent fugu-edge-agent/purge boolean $answer" | debconf-set-selections
    dpkg -P fugu-edge-agent > /dev/null
    [ -e /etc/fugu-agent/agent.toml ] && [ -d /var/lib/fugu-agent ] && echo kept || echo gone
done
"""


@pytest.mark.soak
def test_the_agent_s_package_is_installed_and_removed(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("dpkg-deb", "unshare", "chroot"))):
        pytest.skip("needs Debian, and root for a chroot")
    mount = "mount -t tmpfs none {0} && mkdir {0}/upper {0}/work {0}/all && "
    mount += "mount -t overlay none -o lowerdir=/,upperdir={0}/upper,workdir={0}/work {0}/all"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount.format(tmp_path)], capture_output=True).returncode != 0:
        pytest.skip("needs a system that may mount an overlay")
    built = subprocess.run(
        [sys.executable, ROOT / "deploy/debian/build.py", tmp_path / "out"], check=True, capture_output=True, text=True
    )
    path = Path(built.stdout.strip())
    (tmp_path / "policy.json").write_text(policy(device="device-1", epoch_us=0, period_us=60_000_000).model_dump_json())
    (tmp_path / "inside").write_text(
        INSIDE.format(made=path, policy=tmp_path / "policy.json", python="/usr/bin/python3")
    )
    done = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            f"{mount.format('/mnt')} && mount --rbind /dev /mnt/all/dev && "
            f"mkdir -p /mnt/all{tmp_path} && mount --bind {tmp_path} /mnt/all{tmp_path} && "
            f"mount -t proc none /mnt/all/proc && chroot /mnt/all sh {tmp_path}/inside",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, present, gone = done.stdout.splitlines()
    first, *checked, foreign, removed, config, pinned = lines
    answers = [present, gone]
    assert first.startswith("usage: fugu-agent")
    assert "/etc/fugu-agent/agent.toml: 1 stream(s), every guarantee holds" in checked
    assert not any("fugu-agent.service" in line or line.startswith("E:") for line in checked)
    assert (foreign, removed) == ("foreign: []", "removed")
    assert (config, pinned) == ("agent.toml", "policy.json"), "what its owner wrote stays at a removal"
    assert answers == ["kept", "gone"], "and goes at a purge unless its owner says no"


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
