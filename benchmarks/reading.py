"""How long `fugu read` takes for 10 MB of each form, beside pandas and the standard library.

The whole command in a process of its own, with its imports: processor time, the median of some runs. The peer only
parses: pandas reads tables and lines of JSON with their times, the standard library reads the database.

Usage: python benchmarks/reading.py [--megabytes N] [--runs N] [--json]
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # before packages that install a `tests` of their own

from figures import command_line, show
from processes import children_seconds

from tests.support.recording_forms import FORMS

_START, _STEP, _PROBE = 1_772_323_200, 5, 2_000
_PANDAS = "import pandas; frame = pandas.{}; pandas.to_datetime(frame[frame.columns[{}]]{})"
_SQLITE = "import sqlite3; sqlite3.connect('{}').execute('SELECT * FROM states').fetchall()"
_TABLES = {
    "history.csv": ([], _PANDAS.format("read_csv('{}')", 2, "")),
    "epochs.csv": ([], _PANDAS.format("read_csv('{}')", 0, ", unit='s'")),
    "german.csv": (
        [],
        _PANDAS.format("read_csv('{}', sep=';', decimal=',')", 0, " + ' ' + frame['Zeit'], dayfirst=True"),
    ),
    "mosquitto.log": (["--column", "device.power"], None),
    "lines.jsonl": (["--column", "power"], _PANDAS.format("read_json('{}', lines=True)", 0, ", unit='s'")),
    "influx.line": (["--column", "power"], None),
    "home-assistant_v2.db": ([], _SQLITE),
}
"""Options of the form, and what its peer does."""


def _write(path: Path, rows: int) -> None:
    """Write a recording: a reading every five seconds."""
    rng = random.Random(1)
    times = [_START + _STEP * row for row in range(rows)]
    values = [f"{rng.uniform(50.0, 100.0):.2f}" for _ in range(rows)]
    if path.name == "epochs.csv":
        path.write_text("time,value\n" + "".join(f"{t},{v}\n" for t, v in zip(times, values, strict=True)))
    elif path.name == "lines.jsonl":
        lines = (f'{{"time": {t}, "power": {v}, "state": "on"}}\n' for t, v in zip(times, values, strict=True))
        path.write_text("".join(lines))
    elif path.name == "german.csv":
        from datetime import UTC, datetime

        clocks = [datetime.fromtimestamp(time, UTC).strftime("%d.%m.%Y;%H:%M:%S") for time in times]
        rows_of = (f"{clock};{value.replace('.', ',')}\n" for clock, value in zip(clocks, values, strict=True))
        path.write_text("Datum;Zeit;Wert\n" + "".join(rows_of))
    else:
        FORMS[path.name](path, times, values)


def _processor_seconds(command: Sequence[str], runs: int) -> float:
    """The median processor time of a command."""
    seconds = []
    for _ in range(runs):
        before = children_seconds()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(children_seconds() - before)
    return statistics.median(seconds)


def main() -> None:
    """Print the processor time of the command for each form, and how many times its peer's that is."""
    parser = command_line(__doc__)
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (words, peer) in _TABLES.items():
            path = Path(folder) / name
            _write(path, _PROBE)
            rows = int(_PROBE * options.megabytes * 1e6 / path.stat().st_size)
            path.unlink()
            _write(path, rows)
            command = [sys.executable, "-m", "fugu", "read", str(path), "--rows", "samples", *words]
            seconds = _processor_seconds(command, options.runs)
            figures[f"{name}, {rows} rows: fugu read, s"] = round(seconds, 2)
            if peer is not None:
                beside = _processor_seconds([sys.executable, "-c", peer.replace("{}", str(path))], options.runs)
                figures[f"{name}: times its peer's {beside:.2f} s"] = round(seconds / beside, 2)
    show(figures, as_json=options.json)


if __name__ == "__main__":
    main()
