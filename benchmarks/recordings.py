"""Answers of `fugu plan auto` to recordings: a row for each, of one command.

Usage: python benchmarks/recordings.py [ "FILE [OPTION...]" ... ]      (default: the repository's)

Where nothing is recommended, the answer that came nearest is told. Errors are those on rows that chose nothing where
something is recommended, else expected ones. Attackers are right of so many ticks: with what is released, the best of
them, and without. Seconds are of processor time. A plan that cannot be made is told in its own words. An option
`--without SHARE` takes out so many readings of a column `value`, by lot; `--without COLUMN` those with a 1 there.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from classes import FILES
from figures import say_machine, table_head, table_row
from processes import children_seconds

from fugu.library.auto_words import percent
from fugu.recordings.summary import time_text

COLUMNS = ("recording", "question", "promise", "verdict", "off by", "guessing", "attackers", "without", "s")
_FIRST = slice(0, 90)


def thinned(file: Path, gone: str, folder: Path) -> Path:
    """A recording without some of its readings: a share of them, by lot, or those with a 1 in a column."""
    chance, path = random.Random(1), folder / file.name.removesuffix(".gz")
    with gzip.open(file, "rt") as text, path.open("w") as out:
        rows = csv.DictReader(text)
        written = csv.DictWriter(out, rows.fieldnames or ())
        written.writeheader()
        for row in rows:
            out_of_it = row[gone] == "1" if gone in row else chance.random() < float(gone)
            written.writerow(row | {"value": ""} if out_of_it else row)
    return path


def planned(words: list[str]) -> tuple[dict[str, Any], int, float]:
    """Output of a command, its exit code, and seconds of processor time."""
    before = children_seconds()
    command = [sys.executable, "-m", "fugu", "plan", "auto", *words, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    document = json.loads(ended.stdout) if ended.stdout.startswith("{") else {"error": ended.stderr.strip()}
    return document, ended.returncode, children_seconds() - before


def asked(document: dict[str, Any], options: list[str]) -> str:
    """The question, in words."""
    discretiser = document["discretiser"] or {"kind": "cells", "states": []}
    states = discretiser["states"]
    kinds = {"cells": "place", "baseline": "above its mean"}
    words = kinds.get(discretiser["kind"], states[-1] if len(states) == 2 else f"{len(states)} states")
    return " ".join([words if words == document["answers"] else f"{document['answers']} of {words}", *options])


def length(document: dict[str, Any], period: float | None) -> str:
    """Over which time an answer is."""
    if document["kind"] == "points":
        return f"cells of {111.32 * document['discretiser']['step'][0]:.2g} km"
    if document["window_ticks"] is None:
        return document["kind"] if document["answers"] == "now" else str(document["answers"])
    ticks = document["window_ticks"]
    return time_text(ticks * period) if period else f"{ticks} ticks"


def row(words: list[str]) -> list[str]:
    """The cells of a recording."""
    name = Path(words[0]).name.split(".")[0]
    document, code, seconds = planned(words)
    if "error" in document or code not in (0, 3):
        problem = f"exit {code}: {document.get('error', '')[_FIRST]}"
        return [name, " ".join(words[1:]), "-", problem, *["-"] * 4, f"{seconds:.0f}"]
    period, best = document["readings"].get("period_seconds"), document["recommended"]
    yes = best["kind"] != "none"
    judged = [
        candidate
        for candidate in document["candidates"]
        if candidate["guess_error"] and not math.isnan(candidate["expected_error"])
    ]
    promise = document["promise"].partition(".")[0]
    if not yes and not judged:
        why = document["verdict"][-1].partition(":")[0]
        return [name, asked(best, words[1:]), promise, f"no: {why}", *["-"] * 4, f"{seconds:.0f}"]
    if not yes:
        best = min(judged, key=lambda candidate: candidate["expected_error"] / candidate["guess_error"])
    error = best["held_back_error"] if yes else best["expected_error"]
    shown = [f"{each:.0f} m" if best["unit"] == "metres" else percent(each) for each in (error, best["guess_error"])]
    attack = best["attack"]
    right = ["-", "-"] if attack is None else [percent(attack["success"]), percent(attack["guess"])]
    verdict = f"{'**yes**' if yes else 'no'}, {length(best, period)}"
    return [name, asked(best, words[1:]), promise, verdict, *shown, *right, f"{seconds:.0f}"]


def main() -> None:
    """Print the table, a row at a time."""
    say_machine()
    print(table_head(COLUMNS), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for words in [shlex.split(each) for each in sys.argv[1:]] or [[str(file)] for file in FILES]:
            if "--without" in words:
                place = words.index("--without")
                file = thinned(Path(words[0]), words[place + 1], Path(folder))
                words = [str(file), *words[1:place], *words[place + 2 :]]
            print(table_row(row(words)), flush=True)


if __name__ == "__main__":
    main()
