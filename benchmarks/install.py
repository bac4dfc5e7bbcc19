"""Cost of an install by the lists of deploy/constraints: a device's and a gateway's, in processor time and on the disk.

Packages come from the configured index, or from pip's cache. Processor time is that of pip, with the bytecode that it
compiles; the disk is the folder of packages beyond an empty environment, bytecode included.

Usage: python benchmarks/install.py [--json]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import command_line, show
from processes import children_seconds

ROOT = Path(__file__).resolve().parent.parent
CASES = {"device": "edge", "gateway": "gateway"}


def main() -> None:
    """Install and print."""
    options = command_line(__doc__).parse_args()
    shown: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, packages in CASES.items():
            seconds, processor, size = _installed(Path(folder) / name, packages)
            shown |= {
                f"{name}: s": round(seconds),
                f"{name}: processor s": round(processor),
                f"{name}: MB": round(size),
            }
    show(shown, as_json=options.json)


def _installed(folder: Path, packages: str) -> tuple[float, float, float]:
    """Seconds by the clock and of the processor, and MB, of one install, of which building tools are no part."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = (folder / "bin/python", "-m", "pip", "-q", "install", "--disable-pip-version-check", "--no-deps")
    subprocess.run([*pip, "--require-hashes", "-r", ROOT / "deploy/constraints/build.txt"], check=True)
    subprocess.run([*pip[:4], "wheel", *pip[5:], "--no-build-isolation", "-w", folder / "wheel", ROOT], check=True)
    (wheel,) = (folder / "wheel").glob("*.whl")
    before, began, used = _megabytes(folder / "lib"), time.monotonic(), children_seconds()
    subprocess.run([*pip, "--require-hashes", "-r", ROOT / f"deploy/constraints/{packages}.txt"], check=True)
    subprocess.run([*pip, wheel], check=True)
    return time.monotonic() - began, children_seconds() - used, _megabytes(folder / "lib") - before


def _megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


if __name__ == "__main__":
    main()
