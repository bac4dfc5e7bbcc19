"""Write deploy/constraints/*.txt: every package of a deployed install, its version, and the hashes of its files.

`build.txt` is what builds the others where they have to be built, `edge.txt` and `gateway.txt` what runs, `sensors.txt`
what an edge needs besides for pins and Bluetooth, `demo.txt` what `make demo` installs.

Usage: make constraints      (asks the package index that pip is configured for; nothing else of it is written down)

It takes minutes: pip fetches each file to know its hash.

Versions are what pip resolves for the oldest Python; hashes are those of the files that pip would install on each of
the machines below. A new version of anything comes in with a run of this, and is looked at in the difference.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections import ChainMap, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "constraints"
MACHINES = {
    "build": ("x86_64", "aarch64", "armv7l"),
    "edge": ("x86_64", "aarch64", "armv7l"),
    "gateway": ("x86_64", "aarch64"),
    "sensors": ("x86_64", "aarch64"),
    "demo": ("x86_64", "aarch64"),
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
GLIBC = (31, 41)
"""Minor versions of glibc 2: what an old and a new system may choose differs."""
BUILT = {"armv7l": {"cffi", "msgpack"}}
"""Packages that have no wheel for a machine, and are built there from their source."""


def main() -> int:
    """Ask and write."""
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())
    build, edge = project["build-system"]["requires"], project["project"]["dependencies"]
    extras = project["project"]["optional-dependencies"]
    gateway = edge + extras["gateway"] + extras["metrics"] + extras["postgres"]
    sensors = extras["gpio"] + extras["bluetooth"]
    demo = edge + extras["gateway"] + [line for line in extras["demo"] if not line.startswith("fugu-edge")]
    needed = {"build": build, "edge": edge, "gateway": gateway, "sensors": sensors, "demo": demo}
    pins = [f"{package}=={version}" for package, version in resolved(build + gateway + sensors + demo).items()]
    wanted = {name: resolved(needed[name], pins) for name in MACHINES}
    digests: dict[str, dict[str, set[str]]] = {}
    for machine in dict.fromkeys(chain(*MACHINES.values())):
        names = [name for name, machines in MACHINES.items() if machine in machines]
        digests[machine] = hashes(dict(ChainMap(*(wanted[name] for name in names))), machine)
    FOLDER.mkdir(exist_ok=True)
    for name, machines in MACHINES.items():
        write(FOLDER / f"{name}.txt", wanted[name], [digests[machine] for machine in machines])
    return 0


def resolved(requirements: Sequence[str], constraints: Sequence[str] = ()) -> dict[str, str]:
    """The version of everything that some requirements need, by name."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(constraints))
        file.flush()
        installed = report(*for_machine("x86_64", PYTHONS[0], GLIBC[-1]), "--constraint", file.name, *requirements)
    return {normal(package["metadata"]["name"]): package["metadata"]["version"] for package in installed}


def hashes(versions: dict[str, str], machine: str) -> dict[str, set[str]]:
    """The SHA-256 of every file that may be installed on a machine, by name."""
    digests: dict[str, set[str]] = defaultdict(set)

    def add(*options: str, names: Iterable[str]) -> None:
        for package in report(*options, "--no-deps", *(f"{name}=={versions[name]}" for name in names)):
            digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
            digests[normal(package["metadata"]["name"])].add(digest)

    built = BUILT.get(machine, set()) & versions.keys()
    for python, minor in product(PYTHONS, GLIBC):
        print(f"asking for {machine}, Python {python}, glibc 2.{minor}", file=sys.stderr)
        add(*for_machine(machine, python, minor), names=sorted(versions.keys() - built))
    for name in sorted(built):
        add("--no-binary", name, names=[name])
    return digests


def for_machine(machine: str, python: str, glibc_minor: int) -> list[str]:
    """Options by which pip chooses wheels for another machine."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(glibc_minor, 4, -1)]
    tags += [f"manylinux2014_{machine}", f"linux_{machine}"]
    options = ["--only-binary", ":all:", "--python-version", python, "--target", "nowhere"]
    return options + [word for tag in tags for word in ("--platform", tag)]


def report(*words: str) -> list[dict[str, Any]]:
    """List the packages that pip would install; it installs nothing."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    done = subprocess.run([*command, *words], stdout=subprocess.PIPE, text=True, check=True)
    installed: list[dict[str, Any]] = json.loads(done.stdout)["install"]
    return installed


def normal(name: str) -> str:
    """A package's name in its one form."""
    return name.lower().replace("_", "-").replace(".", "-")


def write(path: Path, versions: dict[str, str], digests: Sequence[dict[str, set[str]]]) -> None:
    """Write names, versions and hashes, in their order."""
    lines = ["# Written by `make constraints`: names, versions and hashes of what a deployed install consists of."]
    for name in sorted(versions):
        lines.append(f"{name}=={versions[name]} \\")
        lines += [f"    --hash=sha256:{digest} \\" for digest in sorted(set().union(*(each[name] for each in digests)))]
        lines[-1] = lines[-1].removesuffix(" \\")
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
