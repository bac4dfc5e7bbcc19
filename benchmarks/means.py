"""Worth of releasing the mean of a reading: simulated on recordings, a table for docs/recordings.md.

Usage: python benchmarks/means.py [--column NAME] [--epsilon 1] [--seed N] FILE...      (default: those of tests/data)

A reading is cut to a range and rounded to one of a few levels, the states. One tick changes the sum of levels over a
window by at most the range. So a mean over n ticks needs Laplace noise of range / n times the scale of a count. The
class covers the whole recording. As in `plan auto`, a third set of blocks is held back for the error. Range, levels and
window (up to a week) do best on the other two, against always guessing the median of the first. Errors are in the
readings' unit, clipping and rounding with them. The range would be public, and how many readings were cut to it is
never published. Useful is half of guessing or less.
"""

from __future__ import annotations

import argparse
import math
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from figures import say_machine, table_head, table_row

from fugu.chains.arrays import Floats, Ints
from fugu.contract.errors import FuguError
from fugu.planning.candidates import window_lengths
from fugu.planning.question import Part, Question, protected_seconds, protected_ticks, three_sets
from fugu.privacy.covering_class import covering_class
from fugu.privacy.randomised_response import allowed_ratios
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import read_readings

DATA = Path(__file__).parents[1] / "tests" / "data"
LEVELS, CUT = (2, 3, 4, 6), (0.001, 0.01, 0.05)  # the share of readings beyond each end of the range
LEAST, RUNS, WEEK = 4, 200, 7 * 86_400.0


class Mean(NamedTuple):
    """A mean over `length` ticks: its error by that of guessing where it was chosen, and both where it is judged."""

    levels: int
    span: float
    length: int
    chosen: float
    error: float
    guess: float


def means(values: Floats, part: Part, length: int) -> Floats:
    """(w,) the means of a set's windows, which tile each stretch without gaps."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(part.segments)) + 1, [len(part.rows)]])
    first = np.concatenate([np.arange(a, b - length + 1, length) for a, b in pairwise(edges.tolist())]).astype(np.int64)
    sums = np.concatenate([[0.0], np.cumsum(values[part.rows])])
    return np.asarray((sums[first + length] - sums[first]) / length)


def planned(values: Floats, segments: Ints, ticks: int, lengths: list[int], epsilon: float, seed: int) -> list[Mean]:
    """Every range, number of levels and length for which there is a class and enough windows."""
    sets = three_sets(segments, 0)
    planned_means = []
    for cut, levels in product(CUT, LEVELS):
        low, high = np.quantile(values[sets.fit.rows], (cut, 1.0 - cut))
        if not high > low:
            continue
        states = np.rint((np.clip(values, low, high) - low) / (high - low) * (levels - 1)).astype(np.int64)
        try:
            chains = covering_class(states, segments, levels).chains
            count = 1.0 / math.log(min(allowed_ratios(chains, epsilon, "universal", ticks)))
        except FuguError:
            continue  # a level is hardly ever left, or no noise is enough
        rounded = low + states * (high - low) / (levels - 1)
        for length in lengths:
            truth = [means(values, part, length) for part in sets[:3]]
            if min(map(len, truth)) < LEAST:
                continue
            rng, errors, guesses = np.random.default_rng(seed), [], []
            for true, part in zip(truth, sets[:3], strict=True):
                noise = rng.laplace(0.0, float(high - low) * count / length, (RUNS, len(true)))
                errors.append(float(np.abs(np.clip(means(rounded, part, length) + noise, low, high) - true).mean()))
                guesses.append(float(np.abs(true - np.median(truth[0])).mean()))
            chosen = (errors[0] + errors[1]) / max(guesses[0] + guesses[1], 1e-9)
            planned_means.append(Mean(levels, float(high - low), length, chosen, errors[2], guesses[2]))
    return planned_means


def row(file: Path, column: str | None, epsilon: float, seed: int) -> str:
    """The row of a recording."""
    readings = read_readings(file, ReadOptions(column=column))
    assert not readings.has_names
    inside = readings.present
    values, segments, period = readings.values[inside], readings.segments[inside], readings.period
    ticks = protected_ticks(protected_seconds(None, period), period)
    lengths = [n for n in window_lengths(period, readings.steady, Question()) if n * period <= WEEK]
    means = planned(values, segments, ticks, lengths, epsilon, seed)
    name = f"`{file.name}`" + (f" {column}" if column else "")
    if not means:
        return f"| {name} | none: no class of any levels | | | | | |"
    best = min(means, key=lambda mean: mean.chosen)
    verdict = "**yes**" if 2.0 * best.error <= best.guess else "no"
    cells = [name, str(best.levels), f"{best.span:.3g}", f"{best.length * period / 3600:.3g} h"]
    return table_row([*cells, f"{best.error:.3g}", f"{best.guess:.3g}", verdict])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--column")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    say_machine()
    print(table_head(["recording", "levels", "range", "window", "off by", "guessing", "useful"]))
    for file in options.files or sorted(DATA.glob("*.csv.gz")):
        print(row(file, options.column, options.epsilon, options.seed), flush=True)


if __name__ == "__main__":
    main()
