"""Modules that a board has around the core, run by this interpreter."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from firmware_sim.build import BOARD

__all__ = ["board_module", "verified"]


def board_module(name: str) -> Any:
    sys.path.insert(0, str(BOARD))
    try:
        return importlib.import_module(f"sanitiser.{name}")
    finally:
        sys.path.remove(str(BOARD))


def verified(checks: list[tuple[bytes, tuple[bytes, ...], bytes]]) -> bool:
    """Verify signatures as a board does."""
    return bool(board_module("signatures").all_match(checks, lambda: None))
