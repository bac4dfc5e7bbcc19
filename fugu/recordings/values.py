"""Read the cells of a column as readings: numbers or names, and cells without a reading."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.contract.errors import FuguError
from fugu.host.codes import Codes
from fugu.recordings.clock import floats_if_any, number_of
from fugu.recordings.columns import AMOUNT, is_missing
from fugu.recordings.errors import Option, QuestionError
from fugu.recordings.table import Table

if TYPE_CHECKING:
    from fugu.chains.arrays import Bools, Floats

__all__ = ["Cells", "Values", "are_names", "present_in", "values_of"]

Cells = NDArray[Any]
"""Readings (n,): numbers with NaN for missing ones, or names with None for missing ones."""

_LARGEST = 1e100
"""The largest size of a reading: no sensor has a larger one, and sums of squares stay finite."""
_BROKEN = "unavailable"
"""The cell that is written while the source is down; it begins a gap."""
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_SPACES = " '\u2019\u00a0\u202f"
_GROUPED = re.compile(
    rf"[-+]?\d{{1,3}}(([{_SPACES}]\d{{3}})+([.,]\d+)?|(\.\d{{3}})+,\d+|(,\d{{3}})+\.\d+|(\.\d{{3}}){{2,}}|(,\d{{3}}){{2,}})"
)
"""Numbers with separators between thousands that can be read in one way only."""
_WITH_DECIMALS = re.compile(rf"[{_SPACES}]\d{{3}}[.,]|\A(?=[^.]*+\.)[^,]*+,")
_THREE = re.compile(r"\d{1,3}(\.\d{3})?")
_MOST_WORDS, _AGAIN, _LOOKED_AT, _FEWEST, _FEWEST_AMOUNTS = 8, 3, 200, 10, 0.1
_THOUSANDS, _POINT_THREE = re.compile(r"[-+]?\d{1,3},\d{3}"), re.compile(r"[-+]?\d{1,3}\.\d{3}")
_DECIMALS = re.compile(r"[-+]?(\d*[.,](?!\d{3}$)|\d{4,}[.,])\d*(e[-+]?\d+)?", re.IGNORECASE)
"""Numbers whose only separator can be no other than that of decimals."""


_PREFIXES = {"p": 1e-12, "n": 1e-9, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SCALES = {"Mil": 1e6, "Bil": 1e9, "Tri": 1e12, "K": 1e3}
"""How Grafana shortens numbers without a unit."""
_PREFIXED = re.compile(r"[^\W\d](W|Wh|V|A|VA|VAR|Hz|B|b|bit|bytes|g|m|s|J|Pa|Ω|l|L|lx|eV|N)(/\w+)?")
"""A unit with a prefix of one letter."""


class Values(NamedTuple):
    """Readings of rows.

    `is_up` (n,) says whether the source worked. `missing` has the number of cells of each word or code for no reading.
    `unit` is the unit written in the cells, or ''. `plain` says whether an agent can read the cells without conversion.
    """

    readings: Cells
    is_up: Bools
    missing: dict[str, int]
    unit: str = ""
    plain: bool = True


def are_names(readings: Cells) -> bool:
    """Return whether readings are names."""
    return readings.dtype == object


def present_in(readings: Cells) -> Bools:
    """(n,) whether a row has a reading."""
    if are_names(readings):
        return np.array([name is not None for name in readings], dtype=bool)
    return ~np.isnan(readings)


def values_of(table: Table, column: str, codes: Sequence[str]) -> Values:
    """Read the readings of a column. Cells in `codes` and usual words for no reading count as missing.

    Raises:
        FuguError: a cell is no number though most are, or it is not clear which number a cell is.
        QuestionError: few words, each several times, stand among numbers.
    """
    cells = table.columns[column]
    if not codes and (np.abs(numbers := floats_if_any(cells)) <= _LARGEST).all():
        if _may_be_thousands(cells):
            raise _thousands_error(table, column)
        _refuse_rounded(cells, numbers, table, column)
        return Values(numbers, np.ones(len(numbers), dtype=bool), {})
    cells, missing_codes = [*map(str.strip, cells)], Codes(codes)
    counts = Counter(cells)
    absences = {cell: count for cell, count in counts.items() if is_missing(cell) or cell in missing_codes}
    is_up = np.array([cell.lower() != _BROKEN for cell in cells])
    cell_numbers = {cell: number_of(cell) for cell in counts if cell not in absences}
    texts = {cell for cell, number in cell_numbers.items() if number is None}
    is_plain = not texts
    grouped_texts = {*filter(_GROUPED.fullmatch, texts)}
    if grouped_texts and 2 * len(grouped_texts | {*filter(_DECIMAL_COMMA.fullmatch, texts)}) >= len(texts):
        if not (grouped_numbers := _ungrouped_numbers(cell_numbers)):
            raise _thousands_error(table, column)
        cell_numbers |= grouped_numbers
        texts = {cell for cell, number in cell_numbers.items() if number is None}
    if texts and all(map(_DECIMAL_COMMA.fullmatch, texts)):
        if all(map(_THOUSANDS.fullmatch, texts)) or any(map(_POINT_THREE.fullmatch, cell_numbers)):
            raise _thousands_error(table, column)
        cell_numbers |= {cell: float(cell.replace(",", ".")) for cell in texts}
        texts = set()
    amounts = {cell: match for cell in texts if (match := AMOUNT.fullmatch(cell))}
    unit = ""
    filled = len(cells) - sum(absences.values())
    if amounts and sum(counts[cell] for cell in amounts) >= max(_FEWEST_AMOUNTS * filled, min(_AGAIN, filled)):
        scaled_numbers = {cell: _scaled_number(match) for cell, match in amounts.items()}
        units = {unit for _, unit in scaled_numbers.values()}
        if any(number is not None for number in cell_numbers.values()):
            units.add("")
        if len(units) == 1:
            cell_numbers |= {cell: number for cell, (number, _) in scaled_numbers.items()}
            texts, unit = texts - amounts.keys(), units.pop()
        elif len(amounts) > _MOST_WORDS or len(units - {""}) == 1:  # few may be names, as 1st and 2nd
            raise FuguError(
                f"{table.file}: column {column} has numbers in {len(units)} units, where none counts as one: write all "
                "of them in one unit"
            )
    text_count = sum(counts[cell] for cell in texts)
    if 2 * text_count > filled:
        return Values(np.array([None if cell in absences else cell for cell in cells], dtype=object), is_up, absences)
    numbers = np.array([cell_numbers.get(cell) for cell in cells], dtype=np.float64)  # NaN for None
    bad_rows = np.flatnonzero([cell in texts for cell in cells] if texts else np.abs(numbers) > _LARGEST).tolist()
    if bad_rows:
        bound = "" if texts else f" up to {_LARGEST:g}"
        problem = f"{table.place(bad_rows[0], column)} is no number{bound}"
        if texts and len(texts) <= _MOST_WORDS and all("," not in cell and counts[cell] >= _AGAIN for cell in texts):
            option = Option(("--missing-values", ",".join(sorted(texts))), f"{text_count} cells that are no readings")
            raise QuestionError("words", problem, [option])
        raise FuguError(f"{problem}: say what means no reading by --missing-values" if texts else problem)
    _refuse_rounded(cells, numbers, table, column)
    return Values(numbers, is_up, absences, unit, is_plain)


def _scaled_number(match: re.Match[str]) -> tuple[float, str]:
    """Return an amount's number, scaled by the prefix of its unit, and the unit without the prefix."""
    number, unit = float(match[1].replace(",", ".")), (match[2] or "").strip()
    if unit in _SCALES:
        return float(f"{number * _SCALES[unit]:.12g}"), ""
    if unit[:1] in _PREFIXES and _PREFIXED.fullmatch(unit):
        return float(f"{number * _PREFIXES[unit[0]]:.12g}"), unit[1:]
    return number, unit


def _refuse_rounded(cells: Sequence[str], numbers: Floats, table: Table, column: str) -> None:
    """Raise FuguError if different numbers from 2^53 on were rounded to one number."""
    large_cells = {cells[row].strip() for row in np.flatnonzero(np.abs(numbers) >= 2**53).tolist()}
    numbers_read = {Decimal(cell): float(cell) for cell in large_cells if number_of(cell) is not None}
    if len({*numbers_read.values()}) < len(numbers_read):
        raise FuguError(
            f"{table.file}: column {column} has numbers beyond 2^53 that cannot be told apart: write them with fewer "
            "digits"
        )


def _may_be_thousands(cells: Sequence[str]) -> bool:
    """Return whether all cells are integers below 1000 or have three digits after a point, and both kinds occur."""
    if not all(map(_THREE.fullmatch, cells[:_LOOKED_AT])) or not all(map(_THREE.fullmatch, cells)):
        return False
    cells_with_point = {cell for cell in cells if "." in cell}
    return len(cells_with_point) >= _FEWEST and any("." not in cell for cell in cells)


def _thousands_error(table: Table, column: str) -> FuguError:
    """Return the error for a column whose separators may be of thousands or of decimals."""
    return FuguError(
        f"{table.file}: column {column} has a separator before three digits, of thousands or decimals: write decimals "
        "with a point, and thousands without a separator"
    )


def _ungrouped_numbers(cells: Collection[str]) -> dict[str, float | None]:
    """Read numbers with separators between thousands. Return {} if the decimal marks of cells differ."""
    grouped_cells = [cell for cell in cells if _GROUPED.fullmatch(cell)]
    decimal_cells = [*filter(_WITH_DECIMALS.search, grouped_cells), *filter(_DECIMALS.fullmatch, cells)]
    decimal_marks = {cell[max(cell.rfind(","), cell.rfind("."))] for cell in decimal_cells}
    if len(decimal_marks) > 1:
        return {}
    decimal_mark = decimal_marks.pop() if decimal_marks else "," if any("." in cell for cell in grouped_cells) else "."
    translation = str.maketrans({sign: None for sign in f"{_SPACES},." if sign != decimal_mark} | {decimal_mark: "."})
    return {cell: number_of(cell.translate(translation)) for cell in cells}
