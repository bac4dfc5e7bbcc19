"""Grafana's CSV: numbers with their units, as a panel shows them."""

from __future__ import annotations

import csv
import re

from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.forms.delimited import DELIMITED
from fugu.recordings.table import Only, Table

__all__ = ["Grafana"]

_AMOUNT = re.compile(r"\s*(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*([^\d\s.,:/-][^\d,:]{0,11})\s*", re.IGNORECASE)
_PREFIXES = {"p": 1e-12, "n": 1e-9, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SCALES = {"Mil": 1e6, "Bil": 1e9, "Tri": 1e12, "K": 1e3}
"""How it shortens numbers without a unit."""
_LOOKED_AT = 60


class Grafana:
    """A table whose first column is Time, with numbers such as 21.5 °C, 1.2 kW or 45%."""

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether its first column is Time, and a number has a unit."""
        lines = head.decode(errors="replace").splitlines()
        lines = [line for line in lines[:_LOOKED_AT] if not re.fullmatch(r'"?sep=.?"?', line.strip(), re.IGNORECASE)]
        rows = [*csv.reader(lines[:-1] if len(lines) == _LOOKED_AT else lines, delimiter=_sign(lines))]
        if not rows or rows[0][:1] not in (["Time"], ["time"]):
            return False
        return any(_AMOUNT.fullmatch(cell) for row in rows[1:] for cell in row[1:])

    def read(self, file: File, only: Only) -> Table:
        """Read the rows; numbers of a column are in one unit, without its prefix."""
        table = DELIMITED.read(file, only)
        units: dict[str, set[str]] = {name: set() for name in table.columns}
        time = next(iter(table.columns))
        columns = {
            name: cells if name == time else [_number(cell, units[name]) for cell in cells]
            for name, cells in table.columns.items()
        }
        for name, some in units.items():
            if len(some - {""}) > 1:
                raise RecordingError(
                    f"{file.name}: column {name} has numbers in {len(some)} units: choose one unit in the panel, or "
                    "download the data without formatting"
                )
        shown = [f"column {name} is in {unit}" for name, some in units.items() for unit in some if unit]
        notes = (*table.notes, *shown)
        return table._replace(form="Grafana's CSV", columns=columns, time=time, plain=False, notes=notes)


def _sign(lines: list[str]) -> str:
    return next((sign for sign in "\t;" if lines and sign in lines[0]), ",")


def _number(cell: str, units: set[str]) -> str:
    """A number without its unit, which is noted; other cells as they are."""
    match = _AMOUNT.fullmatch(cell)
    if match is None:
        return cell.strip()
    number, unit = match[1], match[2].strip()
    scale = _SCALES.get(unit)
    if scale is None and len(unit) > 1 and unit[0] in _PREFIXES and _is_unit(unit[1:]):
        scale, unit = _PREFIXES[unit[0]], unit[1:]
    elif scale is not None:
        unit = ""
    units.add(unit)
    return number if scale is None else f"{float(number) * scale:.12g}"


def _is_unit(unit: str) -> bool:
    """True of units that take prefixes."""
    return re.fullmatch(r"(W|Wh|V|A|VA|VAR|Hz|B|b|bit|bytes|g|m|s|J|Pa|Ω|l|L|lx|eV|N)(/\w+)?", unit) is not None
