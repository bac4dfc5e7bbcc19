"""Where on the earth a stream of cells puts something, from what is published of it: what the page is told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fugu.contract.descriptions import METRES_PER_DEGREE, DescribedVersion, PlaceGrid
from fugu.contract.ellipse import ellipse

__all__ = ["placed_shares", "placed_symbols"]

_CONFIDENCE = 0.95
_DIGITS, _METRE_DIGITS = 7, 1


def placed_symbols(told: DescribedVersion | None, symbols: Sequence[int]) -> list[dict[str, Any]]:
    """The middle of the cell that each symbol names, as latitude and longitude; nothing of other streams."""
    if told is None or told.place is None or told.table is None or len(told.table[0]) + 1 != len(told.states):
        return []
    found = []
    for symbol in symbols:
        if symbol < len(told.place.cells):
            latitude, longitude = told.place.position(*told.place.cells[symbol])
            found.append({"latitude": latitude, "longitude": longitude, "state": told.states[symbol]})
    return found


def placed_shares(told: DescribedVersion | None, shares: Mapping[str, float]) -> dict[str, Any]:
    """What shares of states say of a place: how likely each cell is, and an ellipse that holds it with 95 %.

    Args:
        shares: by label, of all states; those that have no cell, such as `missing`, are left out of the ellipse.

    Returns:
        `cells`, in the order of the description's, and latitude, longitude, half-axes in metres and orientation of the
        ellipse, with the probability that there is a place at all; nothing of other streams.
    """
    if told is None or told.place is None or set(shares) != set(told.states):
        return {}
    grid = told.place
    weights = [shares[label] for label in told.states[: len(grid.cells)]]
    if not sum(weights) > 0.0 or len(weights) != len(grid.cells):
        return {}
    return {"cells": weights, "placed": sum(weights), **_outline(grid, weights)}


def _outline(grid: PlaceGrid, weights: Sequence[float]) -> dict[str, float]:
    rows = [row for _, row in grid.cells]
    middle = grid.origin[0] + (min(rows) + max(rows) + 1) / 2.0 * grid.step[0]
    width = grid.step[1] * METRES_PER_DEGREE * math.cos(math.radians(middle))
    height = grid.step[0] * METRES_PER_DEGREE
    places = [(column * width, row * height) for column, row in grid.cells]
    found = ellipse(places, weights, (width, height), _CONFIDENCE)
    latitude, longitude = grid.position(found.east / width, found.north / height)
    scale = 10.0**_METRE_DIGITS
    return {
        "latitude": round(latitude, _DIGITS),
        "longitude": round(longitude, _DIGITS),
        "semi_major": math.ceil(found.semi_major * scale) / scale,
        "semi_minor": math.ceil(found.semi_minor * scale) / scale,
        "orientation": found.orientation,
    }
