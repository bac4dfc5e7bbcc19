"""The list of what ran last of `make soak` names tests that there are, and a run renews its rows."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from tests.support.soak import LAST, LEFT_OUT, ROOT, list_all, listed, note


def report(name: str, outcome: str = "passed", **keywords: bool) -> pytest.TestReport:
    report = pytest.TestReport(name, ("f", 1, name), keywords, "passed", None, "call", duration=61.4)
    report.outcome = outcome
    return report


def test_every_row_names_a_test() -> None:
    for row in LAST.read_text().splitlines()[1:]:
        file, _, name = row.partition("\t")[0].partition("::")
        assert re.search(rf"^def {name.partition('[')[0]}\b", (ROOT / file).read_text(), re.M), row


def test_every_test_of_the_soak_has_a_row(request: pytest.FixtureRequest) -> None:
    """Of the files that were collected; `pytest -m soak --collect-only` gives a new one its row."""
    assert request.config.stash.get(LEFT_OUT, set()) - listed().keys() == set()


def test_the_list_has_every_test_and_says_what_has_not_run(tmp_path: Path) -> None:
    file = tmp_path / "soak.tsv"
    note(report("b", soak=True), file)
    note(report("gone", soak=True), file)
    list_all(["b", "a"], file)
    rows = listed(file)
    assert [*rows] == ["a", "b"]
    assert rows["a"] == "a\t-\t-\t-\tnot run\t-\n"
    assert "passed" in rows["b"]
    note(report("a", soak=True), file)
    assert "passed" in listed(file)["a"]


def test_a_run_renews_its_row_and_leaves_the_others(tmp_path: Path) -> None:
    file = tmp_path / "soak.tsv"
    for outcome in (report("b", soak=True), report("a", "failed", soak=True), report("a", soak=True)):
        note(outcome, file)
    note(report("c"), file)
    note(report("d", "skipped", soak=True), file)
    header, *rows = [line.split("\t") for line in file.read_text().splitlines()]
    assert header == ["test", "ended", "commit", "python", "result", "seconds"]
    version = platform.python_version()
    assert [(row[0], *row[3:]) for row in rows] == [("a", version, "passed", "61"), ("b", version, "passed", "61")]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", row[1]) and row[2] for row in rows)
