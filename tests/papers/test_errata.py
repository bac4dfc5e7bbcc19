"""Errata stand on the papers' own words and assumptions, and every number on their page is one of their rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fugu_cli.demo.evaluation import RECORDINGS
from papers.errata import Erratum
from papers.facts import printed
from papers.rows import Row, Setting
from papers.targets import TARGETS
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
