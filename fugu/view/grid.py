"""A chain over cells as a table and sentences."""

from __future__ import annotations

import numpy as np

from fugu.view.terminal import say, show_table
from gateway.planning.grid_model import GridModel
from gateway.planning.traces import Traces

__all__ = ["show_grid"]


def show_grid(model: GridModel, traces: Traces) -> None:
    """Print a chain over cells."""
    size = len(model.cells)
    columns, rows = (model.cells.max(axis=0) + 1).tolist()
    period = "" if model.period_seconds is None else f", one place every {model.period_seconds:g} s"
    found, apart = traces.rows - traces.missing, len(set(traces.trace.tolist()))
    say(f"{traces.source}: {traces.rows} rows, {found} places of {apart} traces")
    if traces.missing:
        if model.missing is None:
            say(f"{traces.missing} rows without a place were left out; no transition is counted across them")
        else:
            x, y = model.cells[model.missing].tolist()
            say(
                f"{traces.missing} rows ({traces.missing / traces.rows:.1%}) have no place, which is more than 1 %: "
                f"the most visited cell, x{x}y{y}, stands in for them, here and on a device with a policy made of this"
            )
    if traces.silences:
        say(f"{traces.silences} silences of more than two periods count as one step each; --period cuts there")
    moves = model.counts.sum() - np.trace(model.counts)
    show_table(
        f"Cells of {model.metres:g} m{period}",
        ("", ""),
        [
            ("cells of the chain", f"{size}, within {columns} columns and {rows} rows"),
            ("cells visited in all", f"{model.visited} ({model.outside} places lie outside the chain)"),
            ("transitions counted", f"{model.counts.sum()}, {moves / model.counts.sum():.1%} of them to another cell"),
            ("different transitions", f"{np.count_nonzero(model.counts)} of {size * size}"),
            ("south-west corner", f"{model.origin[0]:.6f}, {model.origin[1]:.6f}"),
            ("a cell in degrees", f"{model.step[0]:.6g} high, {model.step[1]:.6g} wide"),
        ],
    )
    say("The chain lives on the largest set of cells that can all be reached from one another.")
    say("Transitions that were not seen count as impossible; the adversary is taken to know that.")
