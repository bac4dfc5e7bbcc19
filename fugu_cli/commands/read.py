"""`fugu read`: what a file of readings is, and how it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from fugu_cli.app import JsonOption, check_commands, output_option
from fugu_cli.commands.plan_options import RecordingOptions
from fugu_cli.reading import read_file


def read(
    file: Annotated[Path, Argument(metavar="FILE", help="A recording of any form, also gzipped.")],
    *,
    reading: RecordingOptions,
    output: Annotated[
        Path | None,
        output_option("FILE", "Write it as a plain CSV file, which only its owner may read: an agent can replay that."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a recording is: its columns, times and gaps.

    Where it can be read in more than one way, the options that settle it are printed, and the exit code is 2. Plans,
    checks and attacks take the same options.

    \b
    examples:
      fugu read history.csv
      fugu read house.csv --only sensor=hall
      fugu read bath.csv --missing-values -127,85 -o plain.csv
      fugu read motion.csv.gz --json
    """
    read_file(file, output, reading.texts(), as_json=as_json)


check_commands(__name__)
