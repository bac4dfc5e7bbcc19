"""Guarantees and times in the same words everywhere: how private a promise is, and under which conditions.

An epsilon is said as a chance: how sure an attacker can become who thought two courses of a stretch equally likely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Context, Decimal
from typing import Literal

from fugu.contract.chains import ChainClass
from fugu.contract.discretisers import Baseline, Discretiser, Thresholds
from fugu.contract.errors import FrameError, Reason, range_error
from fugu.contract.losses import SIXTEEN_ROUNDINGS
from fugu.contract.stretches import LARGEST_PROTECTED, Stretch

__all__ = [
    "LARGEST_PRIVATE",
    "LAST_US",
    "Privacy",
    "class_sentence",
    "epsilon_to_odds",
    "instant",
    "instant_text",
    "largest_posterior",
    "loss_words",
    "privacy_of",
    "privacy_sentence",
    "promised_words",
    "protected_sentence",
    "read_instant",
    "sum_condition",
    "sure_words",
    "unix_us",
]


_DIGITS = Context(prec=6, rounding=ROUND_CEILING)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The end of the year 9999 in microseconds of Unix time: RFC 3339 has no later time."""


def sum_condition(name: str, helper: str, honest: int) -> str:
    """State when the epsilon of a sum of homes is true; `helper` are the digits of the helper's key."""
    return (
        f"for sum {name} the promise holds only if its helper ({helper}) keeps its word and {honest} of its homes are "
        "real and honest. Otherwise the exact count can be seen"
    )


def instant(unix_us: int) -> datetime:
    """Convert microseconds of Unix time to a time; FrameError before 1970 or after 9999."""
    if not 0 <= unix_us <= LAST_US:
        raise range_error(f"{unix_us} microseconds of Unix time is before 1970 or after the year 9999")
    return _EPOCH + timedelta(microseconds=unix_us)


def unix_us(time: datetime) -> int:
    """Convert a time to microseconds of Unix time; FrameError if it has no time zone, or is before 1970."""
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise FrameError("a time is no datetime with a time zone", Reason.WRONG_TYPE)
    if time < _EPOCH:
        raise range_error("a time is before 1970")
    return (time - _EPOCH) // _MICROSECOND


def instant_text(time: datetime) -> str:
    """Write a time as `2026-03-01T07:30:00.25Z`; errors as for `unix_us`."""
    utc = instant(unix_us(time))
    fraction = f".{utc.microsecond:06}".rstrip("0").rstrip(".")
    return f"{utc.replace(microsecond=0, tzinfo=None).isoformat()}{fraction}Z"


def read_instant(text: object) -> datetime:
    """Parse a time as `instant_text` writes it; FrameError for other values, and outside 1970 to 9999."""
    if not isinstance(text, str):
        raise FrameError(f"a time is {type(text).__name__}, not a string", Reason.WRONG_TYPE)
    try:
        time = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError:
        raise range_error("a time does not exist, or is not of the form 2026-03-01T07:30:00.25Z") from None
    if instant_text(time) != text:
        raise range_error("a time is not of the form 2026-03-01T07:30:00.25Z")
    return time


_MAX_NAMES = 6


def protected_sentence(discretiser: Discretiser | None) -> str:
    """Say what is protected: the state of a tick, not the reading; with `None` only the chains are known."""
    if discretiser is None:
        return "Protected: the state of a tick"
    names, detail = discretiser.states, ""
    subject = f"which of {len(names)} states a tick is in"
    if len(names) <= _MAX_NAMES:
        quoted = [f"'{name}'" for name in names]
        subject = f"whether a tick is {' or '.join(filter(None, (', '.join(quoted[:-1]), quoted[-1])))}"
    if isinstance(discretiser, Thresholds):
        detail = f" ({_edge_words(discretiser.edges)})"
    if isinstance(discretiser, Baseline):
        mean = f"its own running mean of {discretiser.baseline_ticks} ticks"
        start = f"; the first {discretiser.baseline_ticks} ticks after every start have no state"
        if discretiser.edges == (0.0,) and discretiser.compare == "difference":
            return f"Protected: whether a tick is above {mean}, not the reading{start}"
        detail = f" ({discretiser.compare} of {mean}: {_edge_words(discretiser.edges)}), not the reading{start}"
        detail = detail.replace("difference of", "difference from")
    return f"Protected: {subject}{detail}"


def loss_words(epsilon: float | None, prefix: str = "epsilon ") -> str:
    """Write an epsilon for people, rounded up, or "not protected" if it is too large or `None`, which has no bound."""
    if epsilon is None or not epsilon <= LARGEST_PROTECTED:
        return "not protected"
    return f"{prefix}{_DIGITS.create_decimal(Decimal(epsilon)).normalize():f}"


def epsilon_to_odds(epsilon: float) -> float:
    """Return the largest factor on an attacker's odds, about 2.72 for epsilon 1, or infinity beyond every float."""
    try:
        return math.exp(epsilon)
    except OverflowError:
        return math.inf


def class_sentence(chains: ChainClass | None) -> str:
    """Say for which chains a promise holds; `None` stands for points, whose promise depends on possible steps only."""
    if chains is None:
        return "any chain that starts and steps as the policy allows, however likely each step is"
    return chains.words


def _edge_words(edges: tuple[float, ...]) -> str:
    if len(edges) > _MAX_NAMES:
        return f"{len(edges)} edges from {edges[0]:g} to {edges[-1]:g}"
    return ("edge " if len(edges) == 1 else "edges ") + ", ".join(f"{edge:g}" for edge in edges)


LARGEST_PRIVATE = 3.0
"""Above this epsilon a promise is weak: an attacker can go from 50 % to more than 95 % sure."""
Privacy = Literal["private", "weak", "none"]
_BEGINNINGS = {"private": "Private", "weak": "Weakly private"}
_MAX_FACTOR = 10_000
"""Larger factors on odds are not written out: their digits mean nothing."""
_SPOKEN = {60.0: "a minute", 3_600.0: "an hour", 86_400.0: "a day"}


def privacy_of(epsilon: float | None) -> Privacy:
    """Return the verdict on an epsilon; `None` stands for no bound."""
    if epsilon is None or not epsilon <= LARGEST_PROTECTED:
        return "none"
    return "private" if epsilon <= LARGEST_PRIVATE else "weak"


def largest_posterior(epsilon: float) -> float:
    """Return the largest posterior probability of a secret of prior probability 1/2, rounded up."""
    posterior = 1.0 / (1.0 + math.exp(-min(epsilon, 700.0)))
    return min(1.0, posterior * (1.0 + SIXTEEN_ROUNDINGS))


def sure_words(epsilon: float) -> str:
    """Say how sure an attacker can become: whole per cent up to 95, then tenths."""
    share = 100.0 * largest_posterior(epsilon)
    return f"from 50 % to at most {share:.0f} % sure" if share < 95.0 else f"from 50 % to at most {share:.1f} % sure"


def privacy_sentence(epsilon: float | None, stretch: str, stretches: Sequence[Stretch] = ()) -> str:
    """Write the verdict on privacy.

    Args:
        epsilon: the largest loss about the promised stretch, in nats; `None` without a bound.
        stretch: the promised stretch, as it is said after "any".
        stretches: other stretches and their losses, the shortest first.
    """
    level = privacy_of(epsilon)
    if epsilon is None or not math.isfinite(epsilon):
        return "Not private: nothing bounds how far odds may change."
    if level == "none":
        odds = epsilon_to_odds(epsilon)
        factor_words = f"{odds:,.0f}" if odds <= _MAX_FACTOR else f"more than {_MAX_FACTOR:,}"
        return f"Not private: odds may change {factor_words} times."
    sentences = [f"{_BEGINNINGS[level]}: about any {stretch}, {sure_words(epsilon)}."]
    timed_rows = [row for row in stretches if row.seconds is not None]
    weak_rows = [row for row in timed_rows if privacy_of(row.epsilon) == "weak"]
    unprotected_rows = [row for row in timed_rows if privacy_of(row.epsilon) == "none"]
    if level == "private" and weak_rows:
        sentences.append(f"Weakly private: {_spoken_name(weak_rows[0])}{' or longer' if not unprotected_rows else ''}.")
    if unprotected_rows:
        sentences.append(f"Not private: {_spoken_name(unprotected_rows[0])} or longer.")
    return " ".join(sentences)


def promised_words(epsilon: float | None, ticks: int, stretches: Sequence[Stretch]) -> str:
    """Write the verdict on the privacy of a policy that promises an epsilon about `ticks` ticks in a row."""
    names = [stretch.name for stretch in stretches if stretch.ticks == ticks and stretch.seconds]
    return privacy_sentence(epsilon, "single tick" if ticks == 1 else [*names, f"{ticks} ticks in a row"][0], stretches)


def _spoken_name(stretch: Stretch) -> str:
    """Return the name of a stretch, as people say it if its time is round."""
    return _SPOKEN.get(stretch.seconds or 0.0, stretch.name)
