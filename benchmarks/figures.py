"""Showing what a benchmark has measured."""

from __future__ import annotations

import json
from collections.abc import Mapping

__all__ = ["show"]


def show(figures: Mapping[str, object], *, as_json: bool) -> None:
    """Print figures by name, a line each, or one JSON object."""
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:70} {value!s:>10}")
