"""Grafana's CSV: numbers with their units, as a panel shows them."""

from __future__ import annotations

import csv
import re

from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.forms.delimited import read_delimited
from fugu.recordings.table import Form, Only, Table

__all__ = ["GRAFANA"]

_AMOUNT = re.compile(r"\s*(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*([^\d\s.,:/-][^\d,:]{0,11})\s*", re.IGNORECASE)
_PREFIXES = {"p": 1e-12, "n": 1e-9, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SCALES = {"Mil": 1e6, "Bil": 1e9, "Tri": 1e12, "K": 1e3}
"""How it shortens numbers without a unit."""
_PREFIXED = re.compile(r"[^\W\d](W|Wh|V|A|VA|VAR|Hz|B|b|bit|bytes|g|m|s|J|Pa|Ω|l|L|lx|eV|N)(/\w+)?")
"""Units that take prefixes, with one."""


def _is_grafana(file: File) -> bool:
    """Tell whether the first column is Time, and a number has a unit."""
    lines = [line for line in file.first_lines if not re.fullmatch(r'"?sep=.?"?', line.strip(), re.IGNORECASE)]
    sign = next((sign for sign in "\t;" if lines and sign in lines[0]), ",")
    head, *rows = [*csv.reader(lines, delimiter=sign)] or [[]]
    return head[:1] in (["Time"], ["time"]) and any(_AMOUNT.fullmatch(cell) for row in rows for cell in row[1:])


def _read(file: File, only: Only) -> Table:
    """Read the rows; numbers of a column are in one unit, without its prefix."""
    table = read_delimited(file)
    time, *names = table.columns
    columns, notes = {time: table.columns[time]}, table.notes
    for name in names:
        units = set[str]()
        columns[name] = [_number(cell, units) for cell in table.columns[name]]
        if len(units - {""}) > 1:
            raise RecordingError(
                f"{file.name}: column {name} has numbers in {len(units)} units: choose one unit in the panel, or "
                "download the data without formatting"
            )
        notes += tuple(f"column {name} is in {unit}" for unit in units if unit)
    return table._replace(form="Grafana's CSV", columns=columns, time=time, plain=False, notes=notes)


GRAFANA = Form(_is_grafana, _read)
"""A table whose first column is Time, with numbers such as 21.5 °C, 1.2 kW or 45%."""


def _number(cell: str, units: set[str]) -> str:
    """A number without its unit, which is noted; other cells as they are."""
    match = _AMOUNT.fullmatch(cell)
    if match is None:
        return cell.strip()
    number, unit = match[1], match[2].strip()
    scale = _SCALES.get(unit)
    if scale is not None:
        unit = ""
    elif unit[0] in _PREFIXES and _PREFIXED.fullmatch(unit):
        scale, unit = _PREFIXES[unit[0]], unit[1:]
    units.add(unit)
    return number if scale is None else f"{float(number) * scale:.12g}"
