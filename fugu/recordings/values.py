"""The readings of a column: numbers if all cells are, else names; and which cells hold none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.host.codes import Codes
from fugu.recordings.clock import some_floats
from fugu.recordings.columns import is_missing
from fugu.recordings.errors import RecordingError
from fugu.recordings.table import Table

if TYPE_CHECKING:
    from fugu.chains.arrays import Floats

__all__ = ["Values", "values_of"]

_BROKEN = ("unavailable",)
"""Cells that are written while the source does not work: they begin a gap."""
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_THOUSANDS = re.compile(r"[-+]?\d{1,3},\d{3}")


class Values(NamedTuple):
    """Readings of rows.

    `readings` are (n,) numbers, NaN where there is none, or names, None where there is none; `works` (n,) says whether
    the source worked; `missing` counts the cells of each word, or code, for no reading.
    """

    readings: Floats | list[str | None]
    works: NDArray[np.bool_]
    missing: dict[str, int]


def values_of(table: Table, column: str, file: str, codes: Sequence[str]) -> Values:
    """Read a column; `codes` are further cells that are no reading.

    Raises:
        RecordingError: a cell is no number, where most are.
    """
    if not codes and np.isfinite(numbers := some_floats(table.columns[column])).all():
        return Values(numbers, np.ones(len(numbers), dtype=bool), {})
    cells = [cell.strip() for cell in table.columns[column]]
    counts = Counter(cells)
    coded = Codes(codes)
    missing = {cell for cell in counts if is_missing(cell) or cell in coded}
    words = {cell: count for cell, count in counts.items() if cell in missing}
    works = np.array([cell.lower() not in _BROKEN for cell in cells]) if words else np.ones(len(cells), dtype=bool)
    known: dict[str, float | None] = {cell: np.nan if cell in missing else _number(cell) for cell in counts}
    wrong = {cell for cell, number in known.items() if number is None}
    if wrong and all(map(_DECIMAL_COMMA.fullmatch, wrong)):
        if all(map(_THOUSANDS.fullmatch, wrong)):
            raise RecordingError(
                f"{file}: column {column} has commas before three digits, for thousands or decimals: write decimals "
                "with a point, and thousands without a sign"
            )
        known |= {cell: float(cell.replace(",", ".")) for cell in wrong}
        wrong = set()
    refused = sum(counts[cell] for cell in wrong)
    present = len(cells) - sum(words.values())
    if wrong and refused <= 0.5 * present:
        line = table.lines[next(place for place, cell in enumerate(cells) if cell in wrong)]
        raise RecordingError(
            f"{file}: {table.where} {line}, column {column} is no number: say what means no reading by --missing-values"
        )
    if wrong:
        return Values([None if cell in missing else cell for cell in cells], works, words)
    numbers = np.array([known[cell] for cell in cells], dtype=np.float64)
    if np.isinf(numbers).any():
        line = table.lines[int(np.isinf(numbers).argmax())]
        raise RecordingError(f"{file}: {table.where} {line}, column {column} is no finite number")
    return Values(numbers, works, words)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
