"""The container files: they parse, nothing runs as root, and what they name exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gateway.deployment.units import AGENT, BROKER, GATEWAY

ROOT = Path(__file__).parents[2]
CONTAINER = ROOT / "deploy" / "container"
PLACES = {"broker": BROKER, "gateway": GATEWAY, "device": AGENT}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")  # comes with the embedded broker of the demo
    return yaml.safe_load((CONTAINER / "compose.yaml").read_text())


def test_the_compose_file_parses_and_confines_every_service(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == set(PLACES)
    for name, service in compose["services"].items():
        assert service["user"].startswith("${FUGU_USER:?")
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
        config, state = (volume.split("/", 1)[1] for volume in service["volumes"])
        folder = "state/" + ("device" if name == "device" else name)
        assert config == f"{name}:{PLACES[name].config}:ro"
        assert state == f"{folder}:{PLACES[name].state}"


def test_only_the_broker_can_be_reached_and_only_over_tls(compose: dict[str, Any]) -> None:
    assert [name for name, service in compose["services"].items() if "ports" in service] == ["broker"]
    assert compose["services"]["broker"]["ports"] == ["8883:8883"]


def test_the_builds_are_the_container_files_beside_it(compose: dict[str, Any]) -> None:
    for name, file in (("gateway", "Containerfile.gateway"), ("device", "Containerfile.edge")):
        build = compose["services"][name]["build"]
        assert (CONTAINER / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).resolve() == CONTAINER / file


@pytest.mark.parametrize(
    ("file", "images"),
    [
        (CONTAINER / "compose.yaml", ("PYTHON_DIGEST", "MOSQUITTO_DIGEST")),
        (ROOT / "deploy" / "cluster" / "compose.yaml", ("PYTHON_DIGEST", "MOSQUITTO_DIGEST", "POSTGRES_DIGEST")),
    ],
)
def test_docker_accepts_a_compose_file(tmp_path: Path, file: Path, images: tuple[str, ...]) -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode != 0:
        pytest.skip("docker compose is missing")
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "gateway.toml").touch()
    command = [docker, "compose", "-f", file, "config", "--quiet"]
    environment = {"FUGU_FOLDER": str(tmp_path), "FUGU_USER": "1000:1000", "PATH": "/usr/bin:/usr/local/bin"}
    digests = dict.fromkeys(images, f"sha256:{'0' * 64}")
    done = subprocess.run(command, capture_output=True, text=True, env=environment | digests)
    assert done.returncode == 0, done.stderr
    for missing in digests:
        some_digests = {name: digest for name, digest in digests.items() if name != missing}
        assert subprocess.run(command, capture_output=True, env=environment | some_digests).returncode != 0


def test_what_runs_for_good_names_no_image_by_a_tag_that_may_be_another_one_tomorrow(compose: dict[str, Any]) -> None:
    assert re.fullmatch(
        r"docker\.io/library/[a-z-]+@\$\{MOSQUITTO_DIGEST:\?.+\}", compose["services"]["broker"]["image"]
    )
    for name, file in (("gateway", "Containerfile.gateway"), ("device", "Containerfile.edge")):
        assert compose["services"][name]["build"]["args"]["PYTHON_DIGEST"].startswith("${PYTHON_DIGEST:?")
        assert_builds_on_a_digest((CONTAINER / file).read_text())
    assert_builds_on_a_digest((ROOT / "deploy/home-assistant/Dockerfile").read_text())


def assert_builds_on_a_digest(text: str) -> None:
    """Nothing is the usual image; and where none is given, `python@` is the name of none."""
    arguments = re.findall(r"^ARG (.*)$", text, re.MULTILINE)
    assert "PYTHON_DIGEST" in arguments
    assert not any("=" in argument for argument in arguments)
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert bases
    assert set(bases) == {"docker.io/library/python@${PYTHON_DIGEST}"}


@pytest.mark.parametrize("name", ["edge", "gateway"])
def test_images_hold_only_packages_whose_hashes_are_known(name: str) -> None:
    installs = re.findall(r"^RUN \S+/pip (.*)$", (CONTAINER / f"Containerfile.{name}").read_text(), re.MULTILINE)
    assert installs == [
        f"install --no-cache-dir --no-deps --require-hashes -r /src/build.txt -r /src/{name}.txt",
        "install --no-cache-dir --no-deps --no-build-isolation /src",
    ]
    for file in ("build", name):
        assert (ROOT / "deploy" / "constraints" / f"{file}.txt").exists()


@pytest.mark.parametrize("name", ["Containerfile.edge", "Containerfile.gateway"])
def test_container_files_end_as_an_ordinary_user_without_build_tools(name: str) -> None:
    stages = re.split(r"^FROM ", (CONTAINER / name).read_text(), flags=re.MULTILINE)[1:]
    assert len(stages) == 2
    user = re.search(r"^USER (\d+):\d+$", stages[-1], re.MULTILINE)
    assert user[1] != "0"
    assert not re.search(r"apt|gcc|build-essential|pip", stages[-1])
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", "".join(stages), re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists()


def test_the_edge_image_holds_neither_the_gateway_nor_its_numbers() -> None:
    text = (CONTAINER / "Containerfile.edge").read_text()
    assert not re.search(r"COPY (gateway|fugu )|fugu/(?!contract|core|host|mqtt|__init__)|\[gateway\]", text)


def test_the_gateway_image_holds_every_package_and_the_units(tmp_path: Path) -> None:
    text = (CONTAINER / "Containerfile.gateway").read_text()
    copied = set(re.findall(r"^COPY (\S+) /src/", text, re.MULTILINE))
    assert copied >= {"edge_agent", "firmware_sim", "gateway", "fugu", "fugu_cli", "fugu_helper", "deploy/systemd"}


@pytest.mark.long
@pytest.mark.parametrize(("name", "words"), [("edge", ["-m", "edge_agent"]), ("gateway", ["-m", "fugu"])])
def test_what_a_container_file_copies_is_all_that_it_runs(name: str, words: list[str], tmp_path: Path) -> None:
    """Its COPY steps, without an image; then the program that its entry point names, from what was copied alone."""
    text = (CONTAINER / f"Containerfile.{name}").read_text()
    for *sources, target in (line.split() for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)):
        place = tmp_path / target.lstrip("/")
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
    project = tomllib.loads((tmp_path / "src" / "pyproject.toml").read_text())["project"]
    assert (tmp_path / "src" / project["readme"]).exists()
    [program] = re.findall(r'^ENTRYPOINT \["/opt/fugu-edge/bin/([^"]+)"\]$', text, re.MULTILINE)
    assert project["scripts"][program].startswith(words[1])
    dangling = [file for file in tmp_path.rglob("*") if file.is_symlink() and not file.exists()]
    assert dangling == []
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    where = f"import {words[1]}; print({words[1]}.__file__)"
    for options in (["-c", where], [*words, "--help"]):
        done = subprocess.run([sys.executable, *options], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "sage: " in done.stdout or str(tmp_path) in done.stdout
