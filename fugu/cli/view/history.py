"""What was written of a history, and what was learned from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fugu.cli.view.terminal import say, show_table, warn
from fugu.planning.chain_source import learned_words
from fugu.privacy.learned_model import LearnedModel

__all__ = ["show_learned", "show_rows"]


def show_rows(folder: Path, rows: Mapping[str, int]) -> None:
    """Print how many rows each table of a folder has."""
    show_table(f"Written to {folder}", ("table", "rows"), [(name, f"{count:,}") for name, count in rows.items()])


def show_learned(model: LearnedModel) -> None:
    """Print a learned class: its chain, and what makes it wide."""
    labels, k = model.discretiser.states, range(model.states)
    rows = [
        (
            f"{labels[x]} to {labels[y]}",
            f"{model.transition[x][y]:.6g}",
            f"{model.low[x][y]:.6g} to {model.high[x][y]:.6g}",
        )
        for x in k
        for y in k
        if x != y
    ]
    say(f"Learned from {learned_words(model)}.")
    show_table("The chain of all symbols", ("step", "probability", "each end with 90 %"), rows)
    scales = [
        (f"{one.ticks}", f"{one.stretches}", f"{one.odds_ratio:.4g}", f"{one.p_value:.2g}") for one in model.scales
    ]
    columns = ("ticks", "stretches", "odds ratio of all but 2 %", "p if the chain does not change")
    show_table(f"Stretches (the chain itself has the odds ratio {model.known:.4g})", columns, scales)
    if model.refused is not None:
        warn(f"no class: {model.refused}")
