#!/usr/bin/env python3
"""Build a Debian package of the agent: program, unit and an example of its configuration; no numpy, no compiler.

Usage: deploy/debian.py OUT      (as the machine is that it is for: its architecture, and its system's Python)

It lies in /opt/fugu-edge, where the units of `fugu deploy device` look for it. All that it brings is named by version
and hash in deploy/constraints.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = "/usr/bin/python3"
PLACE = "opt/fugu-edge"
PARTS = ("fugu/__init__.py", "fugu/py.typed", "fugu/contract", "fugu/core", "fugu/host", "fugu/mqtt", "edge_agent")
PROGRAM = f"""#!{PYTHON} -I
import sys

sys.path.insert(0, "/{PLACE}/lib")
from edge_agent.__main__ import main

sys.exit(main())
"""
EXAMPLE = """# Copy to /etc/fugu-agent/agent.toml, with the policy beside it; then: systemctl enable --now fugu-agent
# Or copy a folder of `fugu deploy device` to /etc/fugu-agent, and its unit to /etc/systemd/system.
fleet = "home"
device = "device-1"
outbox = "/var/lib/fugu-agent/outbox.sqlite"
ceiling = 1.0                 # the largest epsilon that the owner of this device accepts

[broker]
host = "127.0.0.1"

[[streams]]
policy = "policy.json"
sensor = { kind = "stdin" }   # docs/deploy.md has the others
"""
CONTROL = """Package: fugu-edge-agent
Version: {version}
Architecture: {architecture}
Maintainer: Fugu Edge <fugu-edge@example.org>
Depends: libc6, python3 (>= {python}), python3 (<< {next})
Section: net
Priority: optional
Installed-Size: {kilobytes}
Description: private sensor streams: the agent of a device
 Readings are randomised on the device, under a guarantee that it has checked
 itself; MQTT carries noisy counts, random symbols or noisy points.
"""
RELOAD = "#!/bin/sh\nset -e\n[ ! -d /run/systemd/system ] || systemctl daemon-reload\n"


def main() -> int:
    """Build it, and print its name."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        print(package(Path(folder), Path(sys.argv[1])))
    return 0


def package(work: Path, out: Path) -> Path:
    """Lay the files out in a folder, and pack them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    minor = int(said(PYTHON, "-c", "import sys; print(sys.version_info.minor)"))
    tree = work / "tree"
    install(work, tree / PLACE / "lib")
    write(tree / PLACE / "bin/fugu-agent", PROGRAM, 0o755)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/fugu-agent").symlink_to(f"/{PLACE}/bin/fugu-agent")
    write(tree / "lib/systemd/system/fugu-agent.service", unit())
    write(tree / "usr/share/doc/fugu-edge-agent/agent.toml", EXAMPLE)
    write(tree / "usr/share/doc/fugu-edge-agent/copyright", (ROOT / "LICENSE").read_text())
    (tree / "etc/fugu-agent").mkdir(parents=True, mode=0o700)
    size = sum(file.lstat().st_size for file in tree.rglob("*")) // 1024
    fields = {"version": project["version"], "architecture": said("dpkg", "--print-architecture")}
    fields |= {"python": f"3.{minor}", "next": f"3.{minor + 1}", "kilobytes": str(size)}
    write(tree / "DEBIAN/control", CONTROL.format(**fields))
    for script in ("postinst", "postrm"):
        write(tree / "DEBIAN" / script, RELOAD, 0o755)
    out.mkdir(parents=True, exist_ok=True)
    made = out / f"fugu-edge-agent_{fields['version']}_{fields['architecture']}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, made], check=True, stdout=subprocess.DEVNULL)
    return made


def install(work: Path, lib: Path) -> None:
    """Install the agent and what it needs, for the system's Python, as docs/deploy.md does."""
    said(PYTHON, "-m", "venv", str(work / "venv"))
    pip = (str(work / "venv/bin/python"), "-m", "pip", "-q", "install", "--disable-pip-version-check", "--no-deps")
    hashed = (*pip, "--require-hashes", "-r")
    said(*hashed, str(ROOT / "deploy/constraints/build.txt"))
    said(*hashed, str(ROOT / "deploy/constraints/edge.txt"), "--target", str(lib))
    source = work / "source"
    for name in (*PARTS, "pyproject.toml", "README.md"):
        there = source / name
        there.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, there, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).is_file():
            shutil.copy(ROOT / name, there)
    said(*pip, "--no-build-isolation", "--target", str(lib), str(source))
    shutil.rmtree(lib / "bin", ignore_errors=True)


def unit() -> str:
    """The unit, with the two files that its example of a configuration names."""
    template = (ROOT / "gateway/deployment/systemd/fugu-agent.service").read_text()
    files = "\n".join(f"LoadCredential={name}:/etc/fugu-agent/{name}" for name in ("agent.toml", "policy.json"))
    return template.replace("@CREDENTIALS@", files).replace("@PROGRAM@", f"/{PLACE}/bin/fugu-agent")


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """A file, and the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def said(*words: str) -> str:
    """Run a command; returns its output. Raises CalledProcessError if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
