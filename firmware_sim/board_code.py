"""The board's own modules, for those parts of the build that decide what the board will decide."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

__all__ = ["BOARD", "board_module", "check_on_board", "modules"]

BOARD = Path(__file__).parent / "micropython"
"""What is copied onto a board, as its import path sees it."""


def modules() -> tuple[Path, ...]:
    """The files of the sanitiser."""
    return tuple(sorted((BOARD / "sanitiser").glob("*.py")))


def board_module(name: str) -> Any:
    """A module of the sanitiser, run by this interpreter."""
    sys.path.insert(0, str(BOARD))
    try:
        return importlib.import_module(f"sanitiser.{name}")
    finally:
        sys.path.remove(str(BOARD))


def check_on_board(compiled: bytes, ceiling: int) -> int:
    """Do with a compiled policy what a board does before it runs one.

    Args:
        ceiling: the largest likelihood ratio that the board accepts, over 2^128.

    Returns:
        The bound that it derives, over 2^128.

    Raises:
        Exception: the board's `PolicyError` or `GuaranteeError`.
    """
    return int(board_module("guarantee").check(board_module("compiled").read_policy(compiled), ceiling))
