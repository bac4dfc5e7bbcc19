"""`fugu model fit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fugu.options import JsonOption

if TYPE_CHECKING:
    from gateway.privacy.chain_model import ChainModel

__all__ = ["app"]

app = typer.Typer(help="Chains that describe readings.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Chains that describe readings."""


@app.command("fit")
def fit(
    file: Annotated[Path, typer.Argument(metavar="FILE.csv[.gz]", help="Recording with a header, one row per tick.")],
    column: Annotated[
        str | None, typer.Option(help="Column to read (default: state, or value with --threshold).")
    ] = None,
    threshold: Annotated[
        str | None, typer.Option(metavar="mean|NUMBER", help="Make two states of a measured column: value >= NUMBER.")
    ] = None,
    decimate: Annotated[int, typer.Option(metavar="D", help="Use every D-th row only.")] = 1,
    confidence: Annotated[float, typer.Option(help="Level of the intervals that are shown.")] = 0.95,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write chain.json.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a chain to a recording, and test what such a chain assumes.

    \b
    examples:
      fugu model fit sleep.csv.gz --column state -o chain.json
      fugu model fit sleep.csv.gz --threshold mean --decimate 10
      fugu model fit power.csv --column watts --threshold 150 --json
    """
    from fugu.arguments import confidence as checked
    from fugu.arguments import number
    from fugu.errors import CommandError
    from fugu.recording import read_recording
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
        confidences=tuple(sorted({0.9, 0.95, 0.99, 0.999, level})),
    )
    if output is not None:
        output.write_text(model.to_json(), encoding="utf-8")
    if as_json:
        print(model.to_json(), end="")
    else:
        _show(model, level, recording.missing)
    from fugu.terminal import warn

    warn(model.warning)


def _show(model: ChainModel, confidence: float, missing: int) -> None:
    from fugu.model_view import show_model

    show_model(model, confidence, missing)
