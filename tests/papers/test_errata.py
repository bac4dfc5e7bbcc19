"""Errata stand on the papers' own words and assumptions; every number of their page and every row has its source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fugu_cli.demo.evaluation import RECORDINGS
from papers.__main__ import main as papers
from papers.errata import Erratum
from papers.facts import printed
from papers.rows import Row, Setting
from papers.table import VERDICTS, published_rows
from papers.targets import TARGETS
from tests.support.command import runner
from tests.support.proofs import CAUTIONS, ERRATA, last_digit, shown_items

SETTING = Setting(RECORDINGS, quick=True)
THEOREM_2 = ("BDP", "theorem 2", "statement")
CHAIN = ("BDP", "section 3, model", "chain")


def names(kind: str) -> list[str]:
    return [name for name in TARGETS if name.startswith(f"{kind}-")]


@pytest.mark.long
@pytest.mark.parametrize("name", names("erratum"))
def test_an_erratum_meets_what_its_paper_assumes_and_violates_what_it_prints(name: str) -> None:
    outcome = TARGETS[name].find(SETTING)
    assert any(row.status == "differs" for row in outcome.rows)
    assert outcome.notes[0].startswith("Printed, ")


def test_a_counterexample_outside_the_papers_assumptions_is_no_erratum() -> None:
    wrong = Erratum((THEOREM_2,), {CHAIN: lambda: False}, lambda setting: [Row("", 2.0, 1.0, "claim")])
    with pytest.raises(ValueError, match=r"does not meet BDP, section 3, model, chain: .*STATIONARY"):
        wrong.find(SETTING)


def test_a_claim_that_holds_is_no_erratum() -> None:
    wrong = Erratum((THEOREM_2,), {CHAIN: lambda: True}, lambda setting: [Row("", 1.0, 1.0, "claim")])
    with pytest.raises(ValueError, match="does not violate"):
        wrong.find(SETTING)


def test_what_is_not_printed_has_no_key() -> None:
    with pytest.raises(KeyError):
        printed(("BDP", "theorem 3", "statement"))


@pytest.mark.long
@pytest.mark.parametrize(("page", "kind"), [(ERRATA, "erratum"), (CAUTIONS, "caution")], ids=["errata", "cautions"])
def test_a_page_names_every_target_and_every_number_is_one_of_its_rows(page: Path, kind: str) -> None:
    items = list(shown_items(page, kind))
    assert sorted(name for name, _ in items) == sorted(names(kind))
    for name, text in items:
        rows = TARGETS[name].find(SETTING).rows
        words = " ".join(row.quantity + " " + row.why for row in rows)
        values = [abs(value) for row in rows for value in (row.ours, row.paper) if isinstance(value, float | int)]
        for number in re.findall(r"(?<![\w/])(\d*\.\d+|\d{4,})(?![\w/])", re.sub(r"\*\*.*?\*\*|`.*?`", "", text)):
            if len(number.replace(".", "").lstrip("0")) >= 3 and number.removeprefix("0") not in words:
                assert any(abs(float(number) - value) <= last_digit(number) for value in values), (name, number)


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
