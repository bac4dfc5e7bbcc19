"""`fugu read` without the framework of the other commands, which takes long to load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fugu.contract.errors import UsageError, printable
from fugu.host.terminal import Parser

__all__ = ["parser", "read_file", "read_words"]

_VALUES = ("column", "time", "zone", "missing_values", "rows", "gap")
_SEVERAL = ("only", "as_it_is")


def read_words(arguments: Sequence[str]) -> bool:
    """Run `fugu read` on plain arguments. Return False, and do nothing, if only the framework can parse them."""
    try:
        options = vars(parser().parse_args(arguments))
    except UsageError:
        return False
    file, output, as_json = (options.pop(name) for name in ("file", "output", "json"))
    read_file(file, output, options, as_json=as_json)
    return True


def parser() -> Parser:
    """Make the parser of the command's options, without help."""
    parser = Parser(prog="fugu read", add_help=False)
    parser.add_argument("file", type=Path)
    parser.add_argument("--output", "-o", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--period", type=float)
    for name in _VALUES + _SEVERAL:
        parser.add_argument(f"--{name.replace('_', '-')}", action="append" if name in _SEVERAL else "store")
    return parser


def read_file(file: Path, output: Path | None, options: dict[str, Any], *, as_json: bool) -> None:
    """Print the description of a recording; write its readings as a plain CSV file to `output`, unless that is None."""
    from fugu.host.files import write_secret
    from fugu.library.recordings import read_recording
    from fugu.recordings.options import read_options

    recording = read_recording(file, read_options(**options))
    if output is not None:
        if output.exists() and output.samefile(file):
            raise UsageError(f"{output} is the recording itself: name another file")
        write_secret(output, recording.to_csv())
    if as_json:
        print(json.dumps(recording.document(), indent=2))
    else:
        file_lines = [] if output is None else [f"written: {output}"]
        print("\n".join(map(printable, [*recording.lines, *file_lines])))
