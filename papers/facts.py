"""Printed figures, statements and claims of the papers, by key: taken from their full texts, never from memory."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TypeAlias

__all__ = ["Key", "printed", "printed_number"]

_FILE = Path(__file__).parents[1] / "tests" / "golden" / "papers" / "facts.json"
Key: TypeAlias = tuple[str, str, str]
"""Paper, item and quantity, as the file has them."""


@cache
def _facts() -> dict[Key, tuple[str | float, str]]:
    rows = json.loads(_FILE.read_text(encoding="utf-8"))
    facts = {(row["paper"], row["item"], row["quantity"]): (row["value"], row["context"]) for row in rows}
    if len(facts) != len(rows):
        raise ValueError(f"{_FILE.name}: two facts have one key")
    return facts


def printed(key: Key) -> str:
    """Words or digits that the paper prints, with their context.

    Raises:
        KeyError: the file has no such fact.
    """
    value, context = _facts()[key]
    return f"{value} ({context})" if context else f"{value}"


def printed_number(key: Key) -> float:
    """The only number of a fact, such as 91.0962 of "log 91.0962".

    Raises:
        KeyError: the file has no such fact.
        ValueError: the fact is no number.
    """
    return float(str(_facts()[key][0]).removeprefix("log "))
