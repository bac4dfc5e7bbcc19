#!/usr/bin/env python3
"""Build a Debian package of the agent: program, unit and an example of its configuration; no numpy, no compiler.

Usage: deploy/debian/build.py OUT      (as the machine is that it is for: its architecture, and its system's Python)

It lies in /usr/lib/fugu-edge. All that it brings is named by version and hash in deploy/constraints. The scripts beside
this one stop the agent at a removal, start it anew at an upgrade, and ask at a purge.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from email.parser import HeaderParser
from email.utils import formatdate
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
from manual import page  # noqa: E402

PYTHON = "/usr/bin/python3"
PLACE = "usr/lib/fugu-edge"
DOC = "usr/share/doc/fugu-edge-agent"
PARTS = ("fugu/__init__.py", "fugu/py.typed", "fugu/contract", "fugu/core", "fugu/host", "fugu/mqtt", "edge_agent")
MAINTAINER = "Fugu Edge <maintainers@fugu-edge.invalid>"
PROGRAM = f"""#!{PYTHON} -I
import sys

sys.path.insert(0, "/{PLACE}")
from edge_agent.__main__ import main

sys.exit(main())
"""
CHANGELOG = """fugu-edge-agent ({version}) unstable; urgency=medium

  * The agent of Fugu Edge {upstream}; changelog.gz has what changed.

 -- {maintainer}  {date}
"""
COPYRIGHT = """Fugu Edge is under the Apache License 2.0: /usr/share/common-licenses/Apache-2.0.

Copyright 2025-2026 the authors of Fugu Edge

What it brings lies beside it in /{place}, under licences of its own, whose texts lie there too:

{others}
"""


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
    upstream = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    minor = int(output_of(PYTHON, "-c", "import sys; print(sys.version_info.minor)"))
    fields = {"version": f"{upstream}-1", "upstream": upstream, "maintainer": MAINTAINER, "place": PLACE}
    fields |= {"python": f"3.{minor}", "next": f"3.{minor + 1}"}
    fields["architecture"] = output_of("dpkg", "--print-architecture")
    fields["date"] = formatdate(float(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    tree = work / "tree"
    install(work, tree / PLACE)
    fields["others"] = "\n".join(licences(tree / PLACE))
    write(tree / "usr/bin/fugu-agent", PROGRAM, 0o755)
    write(tree / "usr/lib/systemd/system/fugu-agent.service", unit())
    write(tree / DOC / "examples/agent.toml", (HERE / "agent.toml").read_text())
    write(tree / DOC / "copyright", COPYRIGHT.format(**fields))
    write(tree / "usr/share/man/man8/fugu-agent.8.gz", packed(manual(tree / PLACE)))
    write(tree / DOC / "changelog.Debian.gz", packed(CHANGELOG.format(**fields)))
    write(tree / DOC / "changelog.gz", packed((ROOT / "CHANGELOG.md").read_text()))
    (tree / "etc/fugu-agent").mkdir(parents=True, mode=0o700)
    files = sorted(file for file in tree.rglob("*") if file.is_file())
    fields["kilobytes"] = str(sum(file.stat().st_size for file in files) // 1024)
    sums = (f"{hashlib.md5(file.read_bytes()).hexdigest()}  {file.relative_to(tree)}\n" for file in files)
    write(tree / "DEBIAN/md5sums", "".join(sums))
    write(tree / "DEBIAN/control", (HERE / "control").read_text().format(**fields))
    write(tree / "DEBIAN/templates", (HERE / "templates").read_text())
    for script in ("config", "postinst", "prerm", "postrm"):
        write(tree / "DEBIAN" / script, (HERE / script).read_text(), 0o755)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"fugu-edge-agent_{fields['version']}_{fields['architecture']}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, path], check=True, stdout=subprocess.DEVNULL)
    return path


def install(work: Path, lib: Path) -> None:
    """Install the agent and what it needs, for the system's Python, as docs/deploy.md does; without symbols."""
    output_of(PYTHON, "-m", "venv", str(work / "venv"))
    pip = (str(work / "venv/bin/python"), "-m", "pip", "-q", "install", "--disable-pip-version-check", "--no-deps")
    hashed = (*pip, "--require-hashes", "-r")
    output_of(*hashed, str(ROOT / "deploy/constraints/build.txt"))
    output_of(*hashed, str(ROOT / "deploy/constraints/edge.txt"), "--no-compile", "--target", str(lib))
    source = work / "source"
    for name in (*PARTS, "pyproject.toml", "README.md", "LICENSE"):
        there = source / name
        there.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, there, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).is_file():
            shutil.copy(ROOT / name, there)
    shutil.rmtree(lib / "bin", ignore_errors=True)
    output_of(*pip, "--no-build-isolation", "--no-compile", "--target", str(lib), str(source))
    shutil.rmtree(lib / "bin", ignore_errors=True)
    for file in lib.rglob("*"):
        if file.is_file():
            file.chmod(0o644)
        if file.suffix == ".so":
            output_of("strip", "--strip-unneeded", str(file))


def licences(lib: Path) -> list[str]:
    """A line for each distribution in a folder, but for ours."""
    heads = [HeaderParser().parsestr(file.read_text()) for file in sorted(lib.glob("*.dist-info/METADATA"))]
    return [
        f"  {head['Name']} {head['Version']}: {head['License-Expression'] or head['License'] or 'see its folder'}"
        for head in heads
        if head["Name"] != "fugu-edge"
    ]


def manual(lib: Path) -> str:
    """The page of the manual: what the program says of itself."""
    words = (PYTHON, "-B", "-c", "import sys; from edge_agent.__main__ import main; sys.exit(main())", "--help")
    done = subprocess.run(
        words, check=True, capture_output=True, text=True, env={"PYTHONPATH": str(lib), "COLUMNS": "78"}
    )
    text = done.stdout.replace("-c [", "fugu-agent [")
    return page("fugu-agent", 8, "randomise readings on a device before they leave it", text)


def unit() -> str:
    """The unit, with the two files that its example of a configuration names."""
    template = (ROOT / "gateway/deployment/systemd/fugu-agent.service").read_text()
    files = "\n".join(f"LoadCredential={name}:/etc/fugu-agent/{name}" for name in ("agent.toml", "policy.json"))
    return template.replace("@CREDENTIALS@", files).replace("@PROGRAM@", "/usr/bin/fugu-agent")


def packed(text: str) -> bytes:
    """A text that is compressed, without a time."""
    return gzip.compress(text.encode(), mtime=0)


def write(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """A file, and the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)


def output_of(*words: str) -> str:
    """Run a command; returns its output. Raises CalledProcessError if it fails."""
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
