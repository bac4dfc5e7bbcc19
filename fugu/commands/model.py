"""`fugu model fit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fugu.commands.arguments import confidence as checked
from fugu.commands.arguments import number, positive
from fugu.commands.options import JsonOption
from fugu.errors import CommandError, CommandLineError
from fugu.view.terminal import say, warn

if TYPE_CHECKING:
    from gateway.privacy.chain_model import ChainModel

__all__ = ["app"]

_METRES = 500.0

app = typer.Typer(
    help="Chains that describe readings.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@app.callback()
def _group() -> None:
    """Chains that describe readings."""


@app.command("fit")
def fit(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.csv[.gz]", help="Recording with a header, one row per tick.")],
    column: Annotated[
        str | None, typer.Option(help="Column to read (default: state, or value with --threshold).")
    ] = None,
    threshold: Annotated[
        str | None, typer.Option(metavar="mean|NUMBER", help="Make two states of a measured column: value >= NUMBER.")
    ] = None,
    decimate: Annotated[int, typer.Option(metavar="D", help="Use every D-th row only.")] = 1,
    confidence: Annotated[float, typer.Option(help="Level of the intervals that are shown.")] = 0.95,
    grid: Annotated[
        bool, typer.Option("--grid", help="Places (columns lat, lon, and if you like trace and t) over square cells.")
    ] = False,
    cell: Annotated[float | None, typer.Option(metavar="METRES", help="Grid: side of a cell (default: 500).")] = None,
    cells: Annotated[
        int | None, typer.Option(metavar="N", min=2, help="Grid: the smallest cells that leave at most N of them.")
    ] = None,
    period: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Grid: one place every so long, by column t.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write chain.json.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a chain to a recording, and test what such a chain assumes.

    \b
    examples:
      fugu model fit sleep.csv.gz --column state -o chain.json
      fugu model fit sleep.csv.gz --threshold mean --decimate 10
      fugu model fit power.csv --column watts --threshold 150 --json
      fugu model fit walks.csv --grid --cell 500 --period 60 -o model.json
    """
    if grid:
        _refuse(context, "with --grid, places make the states", ("column", "threshold", "decimate", "confidence"))
        _fit_grid(file, cell, cells, period, output, as_json=as_json)
        return
    _refuse(context, "only with --grid", ("cell", "cells", "period"))
    from gateway.planning.recording import read_recording
    from gateway.privacy.chain_fit import fit as fit_chain

    level = checked(confidence)
    if decimate < 1:
        raise CommandError(f"decimate must be at least 1, got {decimate}")
    edge = threshold if threshold in (None, "mean") else number(str(threshold), "threshold")
    recording = read_recording(file, column, edge)
    model = fit_chain(
        recording.states,
        recording.segments,
        decimate=decimate,
        period_seconds=recording.period_seconds,
        source=file.name,
        column=recording.column,
        threshold=recording.threshold,
        missing_state=recording.missing_state,
        missing_share=recording.missing_share,
        confidences=tuple(sorted({0.9, 0.95, 0.99, 0.999, level})),
    )
    if output is not None:
        output.write_text(model.to_json(), encoding="utf-8")
    if as_json:
        print(model.to_json(), end="")
    else:
        _show(model, level, recording.missing)

    warn(model.warning)


def _refuse(context: typer.Context, why: str, names: tuple[str, ...]) -> None:
    """Refuse options of the other way to fit."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise CommandLineError(f"--{name}: {why}")


def _fit_grid(
    file: Path, cell: float | None, cells: int | None, period: float | None, output: Path | None, *, as_json: bool
) -> None:
    from fugu.view.grid import show_grid
    from gateway.planning.grid_model import WARNING, fit_cells, fit_grid, grid_document
    from gateway.planning.traces import read_traces, resampled

    if cell is not None and cells is not None:
        raise CommandLineError("give either --cell or --cells, not both")
    metres = _METRES if cell is None else positive(cell, "cell")
    traces = read_traces(file)
    if period is not None:
        traces = resampled(traces, positive(period, "period"))
    if cells is None:
        model = fit_grid(traces, metres, period_seconds=period)
    else:
        model = fit_cells(traces, cells, period_seconds=period)
    document = grid_document(model, traces)
    if output is not None:
        output.write_text(json.dumps(document) + "\n", encoding="utf-8")
    if as_json:
        print(json.dumps(document))
    else:
        show_grid(model, traces)
        if output is not None:
            say(f'chain written to {output}; plan with it by: transition = "{output.name}"')
    warn(WARNING)


def _show(model: ChainModel, confidence: float, missing: int) -> None:
    from fugu.view.model import show_model

    show_model(model, confidence, missing)
