"""Verdicts on privacy: the boundaries from both sides, and chances that no posterior exceeds."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest

from fugu.contract.losses import exp_up
from fugu.contract.sentences import LARGEST_PRIVATE, most_sure, privacy_of, privacy_sentence, promised_words, sure_words
from fugu.contract.stretches import LARGEST_PROTECTED, Stretch

DOM = Path(__file__).parents[2] / "gateway" / "page" / "assets" / "dom.js"


@pytest.mark.parametrize(
    ("epsilon", "level"),
    [
        (1e-9, "private"),
        (3.0, "private"),
        (math.nextafter(3.0, 4.0), "weak"),
        (6.0, "weak"),
        (math.nextafter(6.0, 7.0), "none"),
        (math.inf, "none"),
        (math.nan, "none"),
        (None, "none"),
    ],
)
def test_an_epsilon_is_private_up_to_three_and_weakly_up_to_six(epsilon: float | None, level: str) -> None:
    assert (LARGEST_PRIVATE, LARGEST_PROTECTED) == (3.0, 6.0)
    assert privacy_of(epsilon) == level
    assert Stretch("an hour", 60, epsilon or math.inf, 0.0).protected == (level != "none")


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 3.0, 5.5, 6.0, 30.0])
def test_the_chance_is_the_largest_posterior_of_a_fair_coin_rounded_up(epsilon: float) -> None:
    odds = exp_up(Fraction(epsilon))  # an attacker thought both equally likely: his odds were 1
    exact = odds / (1 + odds)
    assert exact * (1 - Fraction(1, 10**12)) <= Fraction(most_sure(epsilon)) <= 1
    assert Fraction(most_sure(epsilon)) >= exact - Fraction(1, 10**30)
    assert most_sure(epsilon) == pytest.approx(float(exact), rel=1e-14)


def test_an_infinite_epsilon_makes_anybody_sure() -> None:
    assert most_sure(math.inf) == most_sure(1e300) == 1.0


def test_chances_are_said_in_words() -> None:
    assert sure_words(1.0) == "from 50 % to at most 73 % sure"
    assert sure_words(6.0) == "from 50 % to at most 99.8 % sure"


def test_the_verdict_names_the_shortest_stretch_that_is_not_private() -> None:
    rows = [
        Stretch("a single tick", 1, 0.2, 0.1, 0),
        Stretch("10 minutes", 10, 1.0, 0.5, 600),
        Stretch("a window 'day'", 1440, 7.0, 3.0),
        Stretch("1 hour", 60, 6.5, 3.0, 3600),
        Stretch("8 hours", 480, 50.0, 30.0, 28_800),
    ]
    private = "Private: about any 10 minutes, from 50 % to at most 73 % sure."
    assert privacy_sentence(1.0, "10 minutes", rows) == f"{private} Not private: an hour or longer."
    assert privacy_sentence(1.0, "10 minutes", rows[:2]) == private
    weak = [*rows[:2], rows[3]._replace(epsilon=6.0), rows[4]]
    assert (
        privacy_sentence(1.0, "10 minutes", weak)
        == f"{private} Weakly private: an hour. Not private: 8 hours or longer."
    )
    assert promised_words(1.0, 10, rows) == f"{private} Not private: an hour or longer."
    assert promised_words(1.0, 7, ()) == "Private: about any 7 ticks in a row, from 50 % to at most 73 % sure."
    assert promised_words(4.0, 1, ()) == "Weakly private: about any single tick, from 50 % to at most 98.2 % sure."


def test_what_is_not_private_is_said_in_odds_without_digits_that_mean_nothing() -> None:
    assert privacy_sentence(8.0, "hour") == "Not private: odds may change 2,981 times."
    assert privacy_sentence(40.0, "hour") == "Not private: odds may change more than 10,000 times."
    assert privacy_sentence(None, "hour") == privacy_sentence(math.inf, "hour")
    assert privacy_sentence(None, "hour") == "Not private: nothing bounds how far odds may change."


def test_the_page_has_the_same_boundary() -> None:
    match = re.search(r"export const LARGEST_PROTECTED = (\d+);", DOM.read_text())
    assert match
    assert float(match[1]) == LARGEST_PROTECTED
