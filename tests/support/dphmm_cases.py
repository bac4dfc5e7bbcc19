"""The six-state example of the paper, grids, and the golden numbers, shared by the tests of this room."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from gateway.dphmm.graphs import BoolArray, IntArray, explicit, lattice

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "dphmm.json").read_text())
VALUES = lattice([(1, 0), (2, 1), (3, 0), (0, 1), (4, 2), (1, 2)])
GRAPH = explicit(6, [(1, 2), (3, 4), (3, 5), (4, 5)])


def states(count: int, *chosen: int) -> BoolArray:
    """A constraint set, from states counted from 1 as in the paper; all of them by default."""
    constraint = np.zeros(count, dtype=np.bool_)
    constraint[[state - 1 for state in chosen or range(1, count + 1)]] = True
    return constraint


def grid(side: int) -> IntArray:
    """The cells of a square grid, row by row."""
    return lattice([(index // side, index % side) for index in range(side * side)])


def exact(written: str | None) -> Fraction | float:
    """A gauge as the golden file writes it."""
    return math.inf if written in (None, "inf") else Fraction(written)
