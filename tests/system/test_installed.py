"""A user who never sees the repository: the package, installed by pip, in an environment of its own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, distribution
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from build import ProjectBuilder
from build.env import DefaultIsolatedEnv
from packaging.requirements import Requirement

from fugu_cli import edge
from fugu_cli.app import COMMANDS, load
from tests.support.brokers import free_port, wait_until
from tests.support.pages import Site

ROOT = Path(__file__).parents[2]
PROGRAM = """
import contextlib, importlib.resources, io, json, sys
import edge_agent, fugu, gateway
from fugu_cli.main import main

def said(*words):
    code = 0
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            code = main([*words])
        except SystemExit as end:  # argparse ends with its help
            code = end.code
    assert code == 0, words
    return out.getvalue()

for words in json.loads(sys.argv[1]):
    assert "sage: " in said(*words, "--help"), words
assert said("gateway", "asyncapi") == importlib.resources.files("fugu.contract").joinpath("asyncapi.json").read_text()
import fugu_cli.demo.session, fugu_cli.demo.walk
print(fugu.__file__)
"""
"""One start of an interpreter: every command has help, and the files of the package are there."""


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and group below one."""
    yield words
    for name, below in getattr(group, "commands", {}).items():
        yield from commands(below, (*words, name))


def holds_all_files(wheel: Path, archive: Path) -> None:
    """Fail unless both have every file of the packages, above all those that are no modules."""
    packages = ("edge_agent", "gateway", "firmware_sim", "fugu", "fugu_cli", "fugu_helper")
    tracked = subprocess.run(["git", "ls-files", *packages], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in tracked.stdout.splitlines()]
    files = [file for path in paths for file in (path.iterdir() if path.is_dir() else [path])]  # units are linked to
    wanted = {str(file.relative_to(ROOT)) for file in files if file.is_file()}
    assert {"gateway/page/assets/lanes.js", "fugu_cli/demo/assets/page.html"} <= wanted
    assert wanted - set(zipfile.ZipFile(wheel).namelist()) == set()
    with tarfile.open(archive) as source:
        held = {name.partition("/")[2] for name in source.getnames()}
    assert (wanted | {"CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml"}) - held == set()


def built(source: Path, dist: Path) -> tuple[Path, Path]:
    """The wheel and the archive that it is made from, as `python -m build` makes them, in one environment for both."""
    with DefaultIsolatedEnv() as clean:
        at_hand = ProjectBuilder.from_isolated_env(clean, source)
        clean.install(at_hand.build_system_requires)
        archive = Path(at_hand.build("sdist", dist))
        shutil.unpack_archive(archive, dist / "unpacked", filter="data")
        [unpacked] = (dist / "unpacked").iterdir()
        wheel = Path(ProjectBuilder.from_isolated_env(clean, unpacked).build("wheel", dist))
    return wheel, archive


def released() -> str:
    versions = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    return str(versions[0])


def first_extras() -> str:
    """The extras that the first page installs from a checkout, in brackets."""
    match = re.search(r"^pipx install '\.(\[.+\])'$", (ROOT / "README.md").read_text(), re.MULTILINE)
    return match[1]


def shows_its_page(fugu: Path) -> None:
    """Fail unless an installed command serves every file of the page as it is here."""
    page, nobody = Site(free_port()), free_port()
    words = ("--fleet", "home", "--broker", f"127.0.0.1:{nobody}", "--listen", f"127.0.0.1:{page.port}", "--no-login")
    with subprocess.Popen([fugu, "gateway", "dashboard", *words], stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(page.answers, "the page")
            for file in (ROOT / "gateway/page/assets").iterdir():
                assert page.ask(f"/assets/{file.name}") == (200, file.read_bytes())
        finally:
            process.terminate()
    assert process.returncode == 0


def downloaded(home: Path, wanted: str) -> None:
    """Install as pipx does, with all that it requires from where packages are."""
    words = ("install", "--quiet", "--disable-pip-version-check", wanted)
    subprocess.run([home / "bin/python", "-m", "pip", *words], check=True, capture_output=True)


def linked(home: Path, wanted: str) -> None:
    """Install the wheel, and link what it requires to what is installed here, and nothing else."""
    wheel, _, extras = wanted.partition("[")
    [site] = home.glob("lib/python*/site-packages")
    if not any(site.glob("fugu_edge-*")):
        words = ("--python", home / "bin/python", "install", "--quiet", "--no-deps", "--no-index", wheel)
        subprocess.run([sys.executable, "-m", "pip", *words], check=True, capture_output=True)
    [metadata] = site.glob("fugu_edge-*.dist-info")
    asked, here = [(Distribution.at(metadata), extras.rstrip("]"))], Path(str(distribution("pip").locate_file("")))
    seen = set[tuple[str, str]]()
    while asked:
        package, extra = asked.pop()
        for needed in map(Requirement, package.requires or ()):
            if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
                continue
            installed = Distribution.at(metadata) if needed.name == "fugu-edge" else distribution(needed.name)
            assert needed.specifier.contains(installed.version), (
                f"{needed} of {package.name}, and there is {installed.version}"
            )
            for file in installed.files or () if needed.name != "fugu-edge" else ():
                top = site / file.parts[0]
                if file.parts[0] not in ("..", "__pycache__") and not top.exists():
                    top.symlink_to(here / file.parts[0])
            more = [(installed, extra) for extra in ("", *needed.extras)]
            asked += [pair for pair in more if (pair[0].name, pair[1]) not in seen]
            seen |= {(pair[0].name, pair[1]) for pair in more}


@pytest.mark.parametrize("install", [linked, pytest.param(downloaded, marks=pytest.mark.soak)])
def test_the_package_works_without_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install: Callable[[Path, str], None]
) -> None:
    """As the first line of the manual installs it; that demos run is shown elsewhere, where kernels are compiled."""
    monkeypatch.setenv("PIP_COMPILE", "no")  # most of what is installed is never imported

    def run(*words: str | Path) -> str:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    source, dist = tmp_path / "source", tmp_path / "dist"
    # A copy: a build would leave things in the tree, and take what an earlier one has left there as well.
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "tests"))
    wheel, archive = built(source, dist)
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, archive)
    holds_all_files(wheel, archive)
    home = tmp_path / "environment"  # as pipx makes one
    run(sys.executable, "-m", "venv", *(["--without-pip"] if install is linked else []), home)
    install(home, f"{wheel}{first_extras()}")
    fugu = home / "bin" / "fugu"
    assert run(fugu, "--version").split()[1] == wheel.name.split("-")[1] == released()
    assert "sage: " in run(fugu, "--help")
    below = [[(name,)] if name in edge.COMMANDS else commands(load(name), tuple(name.split())) for name in COMMANDS]
    where = run(home / "bin" / "python", "-c", PROGRAM, json.dumps([*chain.from_iterable(below)]))
    assert Path(where.strip()).is_relative_to(home)
    shows_its_page(fugu)
    install(home, f"{wheel}[demo]")
    run(home / "bin" / "python", "-c", "import amqtt.broker")
