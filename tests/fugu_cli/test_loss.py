"""`fugu check windows`: what releases lose together, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import Fugu


@pytest.mark.long
def test_releases_about_windows(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "chain.json"
    file.write_text(json.dumps({"transition": [[0.99, 0.01], [0.65, 0.35]], "initial": [0.01, 0.99]}))
    words = ("check", "windows", "--model", file, "--release", "2:1:.125", "--release", "3:1:.142857142857143:count")
    document = fugu(*words, "--json").json()
    assert document["start"] == "as given"
    assert [release["scale"] for release in document["releases"]] == [0.125, 0.142857142857143]
    rows = {row["name"]: row["epsilon"] for row in document["bounds"]}
    really_lost = 11.470608960483183  # every path added up: tests/privacy/test_composition_theorems.py
    assert rows["chain accountant, ignorant"] >= really_lost * (1.0 - 1e-9)
    assert min(epsilon for epsilon in rows.values() if epsilon is not None) == rows["chain accountant, ignorant"]
    table = fugu(*words).out
    assert "every tick in full" in table
    assert "as given start" in table
    anyhow = fugu(*words, "--start", "any", "--json").json()
    assert anyhow["start"] == "any"


def test_releases_that_are_none(fugu: Fugu) -> None:
    chain = ("check", "windows", "--q", 0.1, "--r", 0.4)
    for release, reason in (
        ("1:6", "a release is FIRST:LENGTH:SCALE[:QUERY], got '1:6'"),
        ("0:6:1", "the first tick and the length of a release are whole numbers from 1 to 999,999, got '0:6:1'"),
        ("1:6:1:mean", "query must be one of "),
        ("1:6:x", "scale must be a number, got 'x'"),
    ):
        done = fugu(*chain, "--release", release)
        assert done.code == 2
        assert done.err.startswith(f"fugu: {reason}")
    assert fugu(*chain, "--release", "1:6:-1").code == 1
    assert fugu(*chain).code == 2
    assert fugu(*chain, "--release", "20000:6:1", "--start", "any").code == 1
