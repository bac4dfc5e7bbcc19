"""Codes that sensors and programs write when they have no reading: -127, 65535, "error"."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

__all__ = ["Codes"]


class Codes:
    """Words and numbers that stand for no reading.

    Numbers are compared by value: -127 is also "-127.00" and "-127,0". Words are compared in lower case. A reading of
    several cells, joined by commas, is a code if a cell is one.
    """

    def __init__(self, codes: Iterable[str]) -> None:
        self._words = frozenset(code.strip().casefold() for code in codes)
        self._numbers = frozenset(number for word in self._words if not math.isnan(number := _to_number(word)))

    def __bool__(self) -> bool:
        return bool(self._words)

    def __contains__(self, reading: Any) -> bool:
        if not isinstance(reading, str):
            return type(reading) in (int, float) and reading in self._numbers
        word = reading.strip().casefold()
        if word in self._words:
            return True
        if math.isnan(number := _to_number(word)):
            return "," in word and any(cell in self for cell in word.split(","))
        return number in self._numbers


def _to_number(word: str) -> float:
    """Read a number, also with a decimal comma; NaN if the word is no number."""
    try:
        return float(word.replace(",", "."))
    except ValueError:
        return math.nan
