"""Margins for the roundings of floats, outward: each named, with the errors that it is for."""

from __future__ import annotations

__all__ = ["UNIT"]

UNIT = 2.0**-53
"""The relative error of one operation on floats."""
