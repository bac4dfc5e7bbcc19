"""`fugu plan network`: the shipped example, as people and programs see it, and bad files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu_cli.demo.evaluation import RECORDINGS
from tests.support.command import Fugu

FLU = RECORDINGS / "flu.toml"


def test_the_shipped_example(fugu: Fugu) -> None:
    table = fugu("plan", "network", FLU)
    assert table.code == 0, table.err
    rows = [line.split() for line in table.out.splitlines() if line.startswith(" ")]
    order = [row[0] for row in rows if row and row[0] in ("entry", "exact", "wasserstein", "mqm", "group")]
    assert order == ["entry", "exact", "wasserstein", "mqm", "group"]
    assert "exact (least) 1.15453" in " ".join(table.out.split())
    document = fugu("plan", "network", FLU, "--json").json()
    scales = {each["mechanism"]: each["scale"] for each in document["mechanisms"]}
    assert (document["least"], document["epsilon"]) == ("exact", 1)
    assert scales["wasserstein"] == pytest.approx(2.0)
    assert document["secrets"]["joe"] == [["well", "ill"]]


def test_bad_files_get_one_line(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    for text, reason in (
        ("epsilon = ", "is not TOML"),
        ("epsilon = 1\nvariables = 3\n", "variables must be a list"),
        (FLU.read_text().replace("31/60", "3/60"), "'bob': the row 3/60, 29/60 must be probabilities that sum to 1"),
        (FLU.read_text().replace("[0, 1]", "[1e400, 1]"), "must be a number"),
    ):
        file.write_text(text)
        done = fugu("plan", "network", file)
        assert reason in done.refusal()
