"""Parts of a deployed install: every package, by version and hash, and from nowhere in particular."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE = re.compile(r"([a-z0-9-]+)==([0-9][0-9a-z.]*)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")
EXTRAS: dict[str, tuple[str, ...]] = {
    **{"edge": (), "gateway": ("gateway", "metrics", "postgres")},
    "demo": ("gateway", "demo"),
}
"""Packages that run; those that build are in `build.txt`."""


def pinned(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes of every package in a file, by name; fails if there is anything else in it."""
    text = (ROOT / "deploy" / "constraints" / f"{name}.txt").read_text()
    body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    assert PACKAGE.sub("", body) == "", "nothing but names, versions and hashes: no address, no option"
    assert "://" not in text
    matches = PACKAGE.findall(body)
    assert len(matches) == len({match[0] for match in matches})
    return {package: (version, re.findall("[0-9a-f]{64}", hashes)) for package, version, hashes in matches}


def needed(name: str, extra: str) -> Iterator[str]:
    """The names of everything that a package and what it needs need, as it is installed here."""
    for text in requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield canonicalize_name(requirement.name)
            for more in requirement.extras or {""}:
                yield from needed(requirement.name, more)


@pytest.mark.parametrize("name", EXTRAS)
def test_every_package_of_an_install_has_its_version_and_its_hashes(name: str) -> None:
    packages = pinned(name)
    tree = {package for extra in ("", *EXTRAS[name]) for package in needed("fugu-edge", extra)} - {"fugu-edge"}
    assert tree - packages.keys() == set()
    assert all(len(set(hashes)) == len(hashes) >= 1 for _, hashes in packages.values())
    for compiled in {"msgpack", "pydantic-core", "cryptography"} & packages.keys():
        assert len(packages[compiled][1]) > 2, "there is a file for each machine"


@pytest.mark.parametrize("name", EXTRAS)
def test_the_versions_are_those_that_the_project_asks_for(name: str) -> None:
    packages = pinned(name) | pinned("build")
    asked = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
    for extra in EXTRAS[name]:
        asked += PROJECT["project"]["optional-dependencies"][extra]
    for requirement in (requirement for requirement in map(Requirement, asked) if requirement.name != "fugu-edge"):
        version, _ = packages[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_an_edge_has_what_the_gateway_has_and_nothing_heavy() -> None:
    edge, gateway = pinned("edge"), pinned("gateway")
    assert {name: version for name, (version, _) in edge.items()}.items() <= {
        name: version for name, (version, _) in gateway.items()
    }.items()
    assert not edge.keys() & {"numpy", "numba", "scipy", "llvmlite", "typer", "rich"}


def test_what_sensors_need_besides_is_pinned_and_at_the_edge_s_versions() -> None:
    packages, edge = pinned("sensors"), pinned("edge")
    extras = PROJECT["project"]["optional-dependencies"]
    for requirement in map(Requirement, extras["gpio"] + extras["bluetooth"]):
        version, hashes = packages[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement
        assert hashes
        assert set(needed(requirement.name, "")) - packages.keys() == set()
    assert all(packages[name][0] == edge[name][0] for name in packages.keys() & edge.keys())
