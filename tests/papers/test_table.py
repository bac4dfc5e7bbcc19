"""The table of docs/rows.md: what shows a row is there, and every target and erratum is named by a row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from papers.__main__ import main as papers
from papers.table import VERDICTS, published_rows
from papers.targets import TARGETS
from tests.support.command import runner

ROOT = Path(__file__).parents[2]
ROWS = published_rows()


def test_every_line_of_the_page_is_a_row() -> None:
    lines = [line for line in (ROOT / "docs" / "rows.md").read_text().splitlines() if line.startswith("|")]
    assert len(lines) - 2 * 4 == len(ROWS)
    assert len(ROWS) >= 180
    assert len({(row.paper, row.name) for row in ROWS}) == len(ROWS)


def test_what_shows_a_row_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    for shown_by in sorted({row.shown_by for row in ROWS}):
        if shown_by.startswith("tests/"):
            file, _, name = shown_by.partition("::")
            assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), shown_by
        elif shown_by.startswith("fugu "):
            assert runner(capsys)(*shown_by.split()[1:], "--help").code == 0, shown_by
        else:
            assert shown_by in TARGETS, shown_by


def test_a_row_is_wrong_where_an_erratum_shows_it_and_nowhere_else() -> None:
    for row in ROWS:
        assert row.verdict.startswith(VERDICTS), row
        assert (row.kind == "wrong") == row.shown_by.startswith("erratum-"), row
        assert row.kind not in ("not here", "partly") or row.verdict.startswith(f"{row.kind}: "), row
    others = ("ours-", "newest-", "caution-")
    assert {name for name in TARGETS if not name.startswith(others)} - {row.shown_by for row in ROWS} <= {
        "comp-sums",  # what COMP does not claim
        "dphmm-traces",  # figures 11 to 13 on a user's own traces
    }


def test_rows_of_targets_that_ran_say_how_many_values_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = runner(capsys, papers)("--rows", "erratum-bdp-equation-6", "dphmm-beliefs", "-o", tmp_path).out
    assert "0 agree, 3 differ" in shown
    assert "4 agree, 0 differ" in shown
    assert "mqm-examples" not in shown


def test_rows_are_shown_with_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    shown = runner(capsys, papers)("--rows").out
    assert f"{len(ROWS)} rows: " in shown
    assert all(f"{sum(row.kind == kind for row in ROWS)} {kind}" in shown for kind in VERDICTS)
