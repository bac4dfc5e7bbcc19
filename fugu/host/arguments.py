"""Convert the texts of options to values: a text that cannot be read is a UsageError, a value out of range is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar, get_args

from fugu.contract.errors import FuguError, UsageError
from fugu.contract.losses import Adversary
from fugu.host.clock import seconds_of
from fugu.host.csv_file import unix_seconds

if TYPE_CHECKING:
    from fugu.contract.stretches import Ceiling

__all__ = [
    "adversary",
    "ceiling_of",
    "interval",
    "moment",
    "number",
    "one_of",
    "period",
    "positive",
    "protected",
    "span",
    "split_words",
    "states",
    "stream_units",
]

_Choice = TypeVar("_Choice", bound=str)
_LATEST = 2**53
_LONGEST_STRETCH = 366 * 86_400


def number(text: str, name: str) -> float:
    """Read a finite number. `UsageError` if the text is not one."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{name} must be a number, got {_shortened(text)}")
    return value


def span(text: str, name: str) -> tuple[float, bool]:
    """Read `10m` as seconds and True, or a bare number as it is and False. `UsageError` if the text is neither."""
    try:
        return seconds_of(text), text[-1:].isalpha()
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def ceiling_of(text: str, name: str = "ceiling") -> Ceiling:
    """Read a ceiling of epsilon: `1` for any tick, `1@1h` for any hour. Errors as of `number`, `span`, Ceiling."""
    from fugu.contract.stretches import Ceiling

    epsilon_text, separator, time_text = text.partition("@")
    ceiling_value = positive(number(epsilon_text, name), name)
    return Ceiling(epsilon=ceiling_value, seconds=math.ceil(span(time_text, name)[0]) if separator else 0)


def protected(text: str | None) -> int | None:
    """Read the protected stretch, `10m`, `600` (seconds) or `tick`, as whole seconds, 0 for a tick.

    `None` stays `None`. Errors as of `span`; `FuguError` for more than 366 days.
    """
    if text is None or text == "tick":
        return None if text is None else 0
    seconds = math.ceil(span(text, "protect")[0])
    if seconds > _LONGEST_STRETCH:
        raise FuguError(f"protect must be at most {_LONGEST_STRETCH // 86_400} days, got {_shortened(text)}")
    return seconds


def positive(value: float, name: str) -> float:
    """Return a number above zero. `FuguError` if it is not above zero, or not finite."""
    if not 0.0 < value < math.inf:
        raise FuguError(f"{name} must be above 0 and finite, got {value:g}")
    return value


def period(value: float | None, default: float | None = None) -> float | None:
    """Return the seconds of a tick, which must be above 0 and finite; `default` for `None`."""
    return default if value is None else positive(value, "period")


def moment(text: str, name: str) -> int:
    """Read a time, Unix seconds or ISO 8601, as Unix seconds. `UsageError` if the text is neither."""
    try:
        seconds = int(text[:20]) if text.isdecimal() else int(unix_seconds(text))
        if not 0 <= seconds <= _LATEST:
            raise ValueError
    except (ValueError, OverflowError):
        raise UsageError(f"{name} must be Unix seconds or like 2030-01-31T12:00, got {text[:40]!r}") from None
    return seconds


def interval(text: str, name: str) -> tuple[float, float]:
    """Read `x` or `low:high`, numbers strictly inside (0, 1), as a pair; `x` becomes `(x, x)`.

    UsageError: a bound is no number. FuguError: a number is not inside (0, 1), or low is above high.
    """
    low_text, colon, high_text = text.partition(":")
    bounds = (number(low_text, name), number(high_text if colon else low_text, name))
    if not 0.0 < bounds[0] <= bounds[1] < 1.0:
        raise FuguError(f"{name} must lie strictly inside (0, 1), as NUMBER or LOW:HIGH, got {_shortened(text)}")
    return bounds


def one_of(text: str, name: str, choices: tuple[_Choice, ...]) -> _Choice:
    """Read one of several words. `UsageError` if the text is none of the choices."""
    for word in choices:
        if text == word:
            return word
    raise UsageError(f"{name} must be one of {', '.join(choices)}, got {_shortened(text)}")


def split_words(text: str) -> list[str]:
    """Split words at commas, and strip the spaces around them."""
    return [word.strip() for word in text.split(",")]


def states(text: str) -> tuple[int, ...]:
    """Read the numbers of states, with commas between them. `UsageError` if one is no number of at most 4 digits."""
    words = split_words(text)
    if not all(word.isascii() and word.isdigit() and len(word) <= 4 for word in words):
        raise UsageError(f"states are numbers from 0 on, with commas between them, got {text!r}")
    return tuple(map(int, words))


def adversary(text: str) -> Adversary:
    """Read the name of an adversary. `UsageError` if there is no such adversary."""
    words: tuple[Adversary, ...] = get_args(Adversary)
    return one_of(text, "adversary", words)


def _shortened(text: str) -> str:
    """Return a text as an error shows it: quoted, on one line, of at most 40 characters."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def stream_units(texts: Sequence[str] | None) -> dict[str, Fraction]:
    """Read each stream's unit from texts like `hr=1/10`: the value, in the policy's unit, of a reading of 1."""
    unit_values = {}
    for text in texts or ():
        stream, _, unit_text = text.partition("=")
        try:
            unit_values[stream] = Fraction(unit_text)
        except (ValueError, ZeroDivisionError):
            raise UsageError(f"--unit must be like hr=1/10, got {_shortened(text)}") from None
    return unit_values
