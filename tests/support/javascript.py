"""Packages of npm for Node, installed once into the tests' own environment; where that fails, a test is skipped."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(sys.prefix) / "javascript"
PACKAGES = ("mqtt@5", "@msgpack/msgpack@3", "@asyncapi/specs@6", "axe-core@4")


def node() -> str:
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed (Debian: nodejs)")
    return program


def installed() -> Path:
    node()
    npm = shutil.which("npm")
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = FOLDER / "done"
        if not done.exists() or done.read_text().split() != list(PACKAGES):
            if npm is None:
                pytest.skip("npm is not installed (Debian: npm)")
            options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock", "--loglevel=error"]
            tried = subprocess.run(
                [npm, "install", *options, "--prefix", str(FOLDER), *PACKAGES], capture_output=True, text=True
            )
            if tried.returncode != 0:
                pytest.skip(f"npm cannot install {', '.join(PACKAGES)}: {tried.stderr.strip().splitlines()[-1:]}")
            done.write_text(" ".join(PACKAGES))
    return FOLDER
