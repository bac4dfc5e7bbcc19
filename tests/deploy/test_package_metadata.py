"""The words for an index about the package, and that it asks for no version with a known fault."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = CONFIG["project"]


def asked_for() -> list[Requirement]:
    """Every requirement, of all extras and of building."""
    optional = [text for extra in PROJECT["optional-dependencies"].values() for text in extra]
    every = map(Requirement, [*PROJECT["dependencies"], *optional, *CONFIG["build-system"]["requires"]])
    return [requirement for requirement in every if requirement.name != PROJECT["name"]]


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("amqtt", "0.12.0", "0.12.1"),  # GHSA-wcqj-wx85-c75p
        ("gpiozero", "2.0.1", "2.0.1.post3"),  # Raspberry Pi 5
        ("setuptools", "76.1.0", "77.0.0"),  # a licence as an SPDX expression
    ],
)
def test_no_version_with_a_known_fault_is_allowed(name: str, bad: str, good: str) -> None:
    requirements = [requirement.specifier for requirement in asked_for() if requirement.name == name]
    assert requirements
    for specifier in requirements:
        assert not specifier.contains(bad)
        assert specifier.contains(good)


def test_the_licence_is_an_expression() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert not any(classifier.startswith("License ::") for classifier in PROJECT["classifiers"])


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_no_page_installs_a_name_from_an_index_that_has_no_release(page: Path) -> None:
    assert re.findall(r"pipx? install [\"']?fugu-edge\b[^\n`]*", page.read_text()) == []
