"""The Debian package of the agent: built, installed, used and removed in a copy of this system that nobody sees."""

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
dpkg -i {made} > /dev/null
install -m 600 {policy} /etc/fugu-agent/policy.json
install -m 600 /usr/share/doc/fugu-edge-agent/agent.toml /etc/fugu-agent/agent.toml
mkdir -p /var/lib/fugu-agent
fugu-agent --help | head -1
echo 70 | fugu-agent --check /etc/fugu-agent/agent.toml
{python} -I -c '
import sys
sys.path.insert(0, "/opt/fugu-edge/lib")
import edge_agent.agent
files = [getattr(one, "__file__", "") or "" for one in sys.modules.values()]
print("foreign:", [file for file in files if "/site-packages/" in file or "/numpy/" in file])'
systemd-analyze verify /lib/systemd/system/fugu-agent.service 2>&1 | grep fugu || true
dpkg -r fugu-edge-agent > /dev/null
ls /opt /usr/bin | grep fugu || echo removed
ls /etc/fugu-agent
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
        [sys.executable, ROOT / "deploy/debian.py", tmp_path / "out"], check=True, capture_output=True, text=True
    )
    made = Path(built.stdout.strip())
    (tmp_path / "policy.json").write_text(policy(device="device-1", epoch_us=0, period_us=60_000_000).model_dump_json())
    (tmp_path / "inside").write_text(
        INSIDE.format(made=made, policy=tmp_path / "policy.json", python="/usr/bin/python3")
    )
    done = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            f"{mount.format('/mnt')} && mount --bind {tmp_path} /mnt/all{tmp_path} && "
            f"mount -t proc none /mnt/all/proc && chroot /mnt/all sh {tmp_path}/inside",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, *checked, foreign, removed, config, pinned = done.stdout.splitlines()
    assert first.startswith("usage: fugu-agent")
    assert "/etc/fugu-agent/agent.toml: 1 stream(s), every guarantee holds" in checked
    assert not any("fugu-agent.service" in line for line in checked)
    assert (foreign, removed) == ("foreign: []", "removed")
    assert (config, pinned) == ("agent.toml", "policy.json"), "what its owner wrote stays"
