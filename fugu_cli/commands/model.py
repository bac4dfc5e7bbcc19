"""`fugu plan model`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fugu.contract.errors import UsageError
from fugu.library.report import Result
from fugu_cli.app import check_commands, output_option
from fugu_cli.commands.plan_options import RecordingOptions


def fit(
    context: typer.Context,
    files: Annotated[list[Path], Argument(metavar="FILE...", help="Recording of any form that fugu read knows.")],
    *,
    reading: RecordingOptions,
    threshold: Annotated[
        str | None, Option(metavar="mean|NUMBER", help="Make two states of a measured column: value >= NUMBER.")
    ] = None,
    baseline: Annotated[
        str | None, Option(metavar="TICKS", help="Instead: above or below the running mean of so many ticks.")
    ] = None,
    name: Annotated[
        str | None, Option(metavar="A,B[,C]", help="Names of the streams (default: columns, or files).")
    ] = None,
    order: Annotated[
        int, Option(min=1, max=2, help="2: the next state depends on this one and on the one before.")
    ] = 1,
    epsilon: Annotated[
        float | None,
        Option(help="Attack the class at this epsilon, widen it as needed, compare other states and periods."),
    ] = None,
    grid: Annotated[
        bool, Option("--grid", help="Places (columns lat, lon, and if you like trace and a time) over square cells.")
    ] = False,
    cell: Annotated[float | None, Option(metavar="METRES", help="Grid: side of a cell (default: 500).")] = None,
    output: Annotated[Path | None, output_option("FILE", "Write chain.json.")] = None,
) -> Result:
    """Fit a chain to a recording, and test what it assumes.

    It also finds the class that covers at least 98 % of its stretches, at every length.

    Two or three files with times, or --column A,B of one, are streams that move together, with one chain of their
    joint states. Options of each stream then stand in its order, with commas between them and - where one has none.

    \b
    examples:
      fugu plan model sleep.csv.gz --column state -o chain.json
      fugu plan model sleep.csv.gz --threshold mean
      fugu plan model sleep.csv.gz --baseline 300 --epsilon 1 -o chain.json
      fugu plan model power.csv --column watts --threshold 150 --json
      fugu plan model heart.csv steps.csv --threshold 61.5,- --baseline -,300 -o both.json
      fugu plan model room.csv --column occupied,light --threshold -,400 -o room.json
      fugu plan model motion.csv --column state --order 2 -o pairs.json
      fugu plan model walks.csv --grid --cell 500 --period 60 -o model.json
      fugu plan model walks.csv --grid --order 2 -o pairs.json
    """
    from fugu.recordings.options import read_options
    from fugu_cli.commands.model_fit import fit_places, fit_recordings

    if grid:
        _refuse_options(context, "with --grid, places make the states", ("threshold", "baseline", "name", "epsilon"))
        if len(files) > 1:
            raise UsageError("--grid fits one file")
        return fit_places(files[0], read_options(**reading.texts()), cell, order, output)
    _refuse_options(context, "only with --grid", ("cell",))
    option_texts = {"column": reading.column, "threshold": threshold, "baseline": baseline}
    reading_options = replace(read_options(**reading.texts()), column=None)
    return fit_recordings(files, reading_options, option_texts, name, 2 if order == 2 else 1, epsilon, output)


def _refuse_options(context: typer.Context, reason: str, option_names: tuple[str, ...]) -> None:
    """Raise UsageError if one of these options was given."""
    for name in option_names:
        value_source = context.get_parameter_source(name)
        if value_source is not None and value_source.name == "COMMANDLINE":
            raise UsageError(f"--{name}: {reason}")


check_commands(__name__)
