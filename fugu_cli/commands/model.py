"""`fugu plan model`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from fugu.host.arguments import StateRules
from fugu_cli.app import JsonOption, command, command_group
from fugu_cli.commands.plan_options import RecordingOptions
from fugu_cli.errors import CommandLineError

app = command_group("Chains that describe readings.")


@command(app, "fit")
def fit(
    context: typer.Context,
    files: list[Path],
    *,
    reading: RecordingOptions,
    threshold: str | None = None,
    baseline: str | None = None,
    name: str | None = None,
    order: int = 1,
    epsilon: float | None = None,
    grid: bool = False,
    cell: float | None = None,
    output: Path | None = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a chain to a recording, and test what it assumes.

    And find the class that covers every stretch.

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

    Args:
        files (FILE...): Recording of any form that fugu read knows.
        threshold (mean|NUMBER): Make two states of a measured column: value >= NUMBER.
        baseline (TICKS): Instead: above or below the running mean of so many ticks.
        name (A,B[,C]): Streams that move together: their names (default: columns, or files).
        order (1..2): 2: the next state depends on this one and on the one before.
        epsilon: Attack the class at this epsilon, widen it as needed, compare other states and periods.
        grid: Places (columns lat, lon, and if you like trace and a time) over square cells.
        cell (METRES): Grid: side of a cell (default: 500).
        output (-o FILE): Write chain.json.
    """
    from fugu.recordings.words import read_options
    from fugu_cli.commands.model_fit import fit_places, fit_recordings

    if grid:
        of_states = ("threshold", "baseline", "name", "epsilon")
        _refuse(context, "with --grid, places make the states", of_states)
        if len(files) > 1:
            raise CommandLineError("--grid fits one file")
        fit_places(files[0], read_options(**reading.words()), cell, order, output, as_json=as_json)
        return
    _refuse(context, "only with --grid", ("cell",))
    rules = StateRules(reading.column, threshold, baseline, name, order)
    options = replace(read_options(**reading.words()), column=None)
    fit_recordings(files, options, rules, epsilon, output, as_json=as_json)


def _refuse(context: typer.Context, why: str, names: tuple[str, ...]) -> None:
    """Refuse options of the other way to fit."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise CommandLineError(f"--{name}: {why}")
