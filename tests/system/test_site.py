"""The manual as a site, strict about links and without a network; its pictures and its notebook are up to date."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

import fugu
from fugu_cli.app import COMMANDS
from tests.support.brokers import wait_until
from tests.support.browser import Browser
from tests.support.documents import ROOT, Page
from tests.support.forks import shell_words
from tests.support.histories import fill_store

pytestmark = pytest.mark.long


def module(name: str) -> ModuleType:
    """A module of the site, which is in no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/site/{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


class Loaded(HTMLParser):
    """Addresses that a browser would fetch to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in ("script", "img", "iframe") and attributes.get("src"):
            self.found.append(str(attributes["src"]))
        if tag == "link" and attributes.get("rel") in ("stylesheet", "icon", "preload"):
            self.found.append(str(attributes["href"]))


@pytest.mark.long
def test_it_builds_strictly_and_needs_no_network_nor_a_server(tmp_path: Path, browser: Browser) -> None:
    pytest.importorskip("material")
    command = [*shell_words(), "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NO_MKDOCS_2_WARNING": "1",
        "https_proxy": "http://127.0.0.1:9",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert {page.stem for page in pages} >= {path.stem for path in (ROOT / "docs").glob("*.md")}
    for page in pages:
        parser = Loaded()
        parser.feed(page.read_text())
        assert [link for link in parser.found if re.match(r"(https?:)?//", link)] == [], page
    names = (tmp_path / "site/names.html").read_text()
    assert [name for name in fugu.__all__ if not re.search(rf'id="fugu\.(\w+\.)*{name}"', names)] == []
    commands = (tmp_path / "site/commands.html").read_text()
    assert [name for name in COMMANDS if f"fugu {name}" not in commands] == []
    for page, word in (("plan", "epsilon"), ("proofs/stretches", "ledger")):
        browser.open((tmp_path / f"site/{page}.html").as_uri())
        browser.click("input.md-search__input")
        browser.type("input.md-search__input", word)
        wait_until(lambda: browser.count(".md-search-result__item") > 3, "what a search has found")
        assert browser.complaints() == []
    assert browser.violations(".md-content__inner a:not(.headerlink)", "color-contrast") == []


def test_the_pictures_are_those_that_the_code_draws_and_the_page_says_their_numbers() -> None:
    drawn = module("pictures").drawn()
    page = " ".join((ROOT / "docs/guarantee.md").read_text().split())
    for name, picture in drawn.items():
        assert (ROOT / "docs/pictures" / name).read_text() == picture
        assert f"](pictures/{name})" in page
    losses = re.findall(r"class='words point'[^>]*>([\d.]+)<", drawn["stretches.svg"])
    assert f"About 30 ticks in a row it loses {losses[3]}, and about 300 it loses {losses[5]}," in page
    noise = re.search(r"noise of (\d+)", drawn["windows.svg"])
    assert f"has noise of {noise[1]} ticks at epsilon 1" in page


def test_the_notebook_runs_and_stores_no_output(tmp_path: Path) -> None:
    """A reader who runs all of it at first has no gateway's store, and may run a cell again."""
    pytest.importorskip("matplotlib")
    text = (ROOT / "docs/notebooks/home.ipynb").read_text()
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["outputs"] for cell in cells] == [[]] * len(cells)
    assert {cell["execution_count"] for cell in cells} == {None}
    assert "truth=True" not in "".join("".join(cell["source"]) for cell in cells)
    fill_store(tmp_path / "filled.db", ("watch",), ticks=3_000)
    *_, saves, reads = sources = ["".join(cell["source"]) for cell in cells]
    again = [saves, 'Path("filled.db").rename("home.db")', reads, "print(plan.verdict[0])"]  # which a notebook shows
    program = "\n".join([*sources, *again]).replace("10 * 1440", "6 * 1440")
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [*shell_words(), "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "\nUseful: the share of 'on' over 8 h, " in f"\n{done.stdout}"
    assert done.stdout.index("home.db is not here") < done.stdout.index("Name: probability")
    assert {path.name for path in (tmp_path / "plan").iterdir()} == {"policy.json", "agent.toml", "plan.html"}


@pytest.mark.parametrize(("name", "count"), [("python", 2), ("own-topic", 3)])
def test_a_tutorial_runs(name: str, count: int, tmp_path: Path) -> None:
    less = {"10 * 1440": "6 * 1440"}
    with Page(f"docs/{name}.md", tmp_path, less) as page:
        assert page.run() == count
