"""How private a promise is, in the same words wherever one is shown: private, weakly private or not private.

An epsilon is said in chances: an attacker who thought two courses of a stretch equally likely becomes at most so sure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from fugu.contract.rounding import SIXTEEN_ROUNDINGS
from fugu.contract.sentences import epsilon_to_odds
from fugu.contract.stretches import LARGEST_PROTECTED, Stretch

__all__ = ["LARGEST_PRIVATE", "Privacy", "most_sure", "privacy_of", "privacy_sentence", "promised_words", "sure_words"]

LARGEST_PRIVATE = 3.0
"""Above this epsilon a promise is weak: from 50 % an attacker becomes more than 95 % sure."""
Privacy = Literal["private", "weak", "none"]
_BEGINNINGS = {"private": "Private", "weak": "Weakly private"}
_MOST_FACTOR = 10_000
"""Factors on odds above it have digits that mean nothing."""
_SPOKEN = {60.0: "a minute", 3_600.0: "an hour", 86_400.0: "a day"}


def privacy_of(epsilon: float | None) -> Privacy:
    """Class of an epsilon; `None` has no bound."""
    if epsilon is None or not epsilon <= LARGEST_PROTECTED:
        return "none"
    return "private" if epsilon <= LARGEST_PRIVATE else "weak"


def most_sure(epsilon: float) -> float:
    """Largest posterior probability of a secret that was as likely as not, rounded up; 1 without a bound."""
    sure = 1.0 / (1.0 + math.exp(-min(epsilon, 700.0)))
    return min(1.0, sure * (1.0 + SIXTEEN_ROUNDINGS))


def sure_words(epsilon: float) -> str:
    """The same in words: whole per cent up to 95, then tenths."""
    sure = 100.0 * most_sure(epsilon)
    return f"from 50 % to at most {sure:.0f} % sure" if sure < 95.0 else f"from 50 % to at most {sure:.1f} % sure"


def privacy_sentence(epsilon: float | None, stretch: str, rows: Sequence[Stretch] = ()) -> str:
    """The verdict on privacy.

    Args:
        epsilon: the most that is lost about the stretch, in nats.
        stretch: the stretch that is promised, as it is said after "any".
        rows: what other stretches lose, the shortest first.
    """
    level = privacy_of(epsilon)
    if epsilon is None or not math.isfinite(epsilon):
        return "Not private: nothing bounds how far odds may change."
    if level == "none":
        odds = epsilon_to_odds(epsilon)
        times = f"{odds:,.0f}" if odds <= _MOST_FACTOR else f"more than {_MOST_FACTOR:,}"
        return f"Not private: odds may change {times} times."
    sentences = [f"{_BEGINNINGS[level]}: about any {stretch}, {sure_words(epsilon)}."]
    others = [row for row in rows if row.seconds is not None]
    weak = [row for row in others if privacy_of(row.epsilon) == "weak"]
    bare = [row for row in others if privacy_of(row.epsilon) == "none"]
    if level == "private" and weak:
        sentences.append(f"Weakly private: {_spoken(weak[0])}{' or longer' if not bare else ''}.")
    if bare:
        sentences.append(f"Not private: {_spoken(bare[0])} or longer.")
    return " ".join(sentences)


def promised_words(epsilon: float | None, ticks: int, rows: Sequence[Stretch]) -> str:
    """The verdict on the privacy of a policy that promises an epsilon about so many ticks in a row."""
    times = [row.name for row in rows if row.ticks == ticks and row.seconds]
    return privacy_sentence(epsilon, "single tick" if ticks == 1 else [*times, f"{ticks} ticks in a row"][0], rows)


def _spoken(row: Stretch) -> str:
    """Name of a stretch of a round time, as people say it."""
    return _SPOKEN.get(row.seconds or 0.0, row.name)
