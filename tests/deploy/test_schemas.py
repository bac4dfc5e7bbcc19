"""An editor that has our schemas accepts the files of the pages, and marks a key that is wrong; pages for `man`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fugu_cli.commands.schemas import FILES, write

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```toml file=(\w+)\.toml\n(.+?)```", re.DOTALL)
FILES_OF_PAGES = [
    (page.name, name, text)
    for page in sorted((ROOT / "docs").glob("*.md"))
    for name, text in BLOCK.findall(page.read_text())
    if name in FILES
]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    files = write(tmp_path_factory.mktemp("schemas"))
    return {file.name.partition(".")[0]: json.loads(file.read_text()) for file in files}


@pytest.mark.parametrize(
    ("page", "name", "text"), FILES_OF_PAGES, ids=[f"{page}-{name}" for page, name, _ in FILES_OF_PAGES]
)
def test_the_files_of_the_pages_are_valid_and_a_wrong_key_is_not(
    schemas: dict[str, Any], page: str, name: str, text: str
) -> None:
    validator = jsonschema.Draft202012Validator(schemas[name])
    document = tomllib.loads(text)
    assert [error.message for error in validator.iter_errors(document)] == []
    assert list(validator.iter_errors({**document, "flet": "home"}))


def test_a_key_says_what_it_is_for(schemas: dict[str, Any]) -> None:
    assert "has accepted" in schemas["agent"]["properties"]["trust"]["description"]


@pytest.mark.long
def test_man_has_a_page_of_every_command(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "deploy/manual.py", tmp_path], check=True)
    text = (tmp_path / "fugu-plan-auto.1").read_text()
    assert text.startswith(".TH FUGU\\-PLAN\\-AUTO 1\n.SH NAME\nfugu\\-plan\\-auto \\- Plan from")
    assert "\n  \\-\\-epsilon" in text
    assert (tmp_path / "fugu-subscribe.1").stat().st_size > 500
