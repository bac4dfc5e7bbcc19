"""Every mutant can be planted: its text is in one function of the product, and what it becomes is Python."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.planted import KINDS, Mutant, Place, changed, find, functions, mutants, text

ROOT = Path(__file__).parents[2]
ALL = mutants()


@pytest.fixture(scope="module")
def places() -> dict[str, list[Place]]:
    """Where every function of the product is."""
    return functions(ROOT)


@pytest.mark.parametrize("subject", sorted({mutant.subject for mutant in ALL}))
def test_a_mutant_is_planted_in_one_place_and_compiles(subject: str, places: dict[str, list[Place]]) -> None:
    for mutant in (mutant for mutant in ALL if mutant.subject == subject):
        place = find(mutant, places)
        assert mutant.kind in KINDS, mutant
        now, before = (ast.parse(dedent(source)) for source in (changed(mutant, place), text(place)))
        assert ast.dump(now) != ast.dump(before), mutant


def test_no_mutant_is_there_twice_and_all_name_tests_that_exist() -> None:
    assert len({mutant.name for mutant in ALL}) == len(ALL)
    assert all((ROOT / file).is_file() for mutant in ALL for file in mutant.tests)


@pytest.mark.parametrize("before", ["not there", "return"])
def test_a_text_that_is_not_there_once_is_refused(before: str, places: dict[str, list[Place]]) -> None:
    mutant = Mutant("contract", "other", "odds_ratio", before, "", ())
    with pytest.raises(ValueError, match="times, not once"):
        find(mutant, {"odds_ratio": places["odds_ratio"] * 2})
