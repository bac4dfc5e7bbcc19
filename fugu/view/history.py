"""What was written of a history."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fugu.view.terminal import show_table

__all__ = ["show_rows"]


def show_rows(folder: Path, rows: Mapping[str, int]) -> None:
    """Print how many rows each table of a folder has."""
    show_table(f"Written to {folder}", ("table", "rows"), [(name, f"{count:,}") for name, count in rows.items()])
