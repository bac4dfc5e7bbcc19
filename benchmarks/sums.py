"""Sums of homes with one noise for all: from how many homes on they are of use, and how often a window opens.

Usage: python benchmarks/sums.py [--json] [--seed N]

Homes are as in `groups.py`: days of a recording drawn at random, an hour protected at epsilon 1, hourly shares. A group
counts on m = N/2 honest homes, and a sum needs m + N/10; a fifth of the homes is away. The least N is that from which
on the error is at most half of that of the best constant. Noise is drawn by numpy from the law of
`fugu.core.shares`, by the scale that `plan auto` makes for one home.
"""

from __future__ import annotations

import argparse
import json
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from figures import say_machine
from groups import DATA, DAY, HOUR, RECORDINGS, planned

from fugu.chains.arrays import Floats, Ints

SIZES = (10, 12, 14, 17, 20, 24, 28, 34, 40, 48, 58, 68, 82, 98, 116, 140, 168, 200, 240, 290, 350, 420, 500, 700, 1000)
AWAY = (0.1, 0.2, 0.4)
TRIALS = 400


class Useful(NamedTuple):
    """A recording: the scale of its noise in ticks, the least number of homes, and errors there, in points."""

    recording: str
    scale: float
    least: int | None
    off: float
    constant: float


def hours(days: Ints) -> Floats:
    """(d, 24) the shares of each hour of days of minutes; a minute without a state counts as off."""
    return np.asarray((days == 1).reshape(len(days), DAY // HOUR, HOUR).mean(axis=2))


def errors(shares: Floats, scale: float, homes: int, chance: np.random.Generator) -> tuple[float, float]:
    """Mean absolute errors of the average of the homes that are there, by their sum and by the best constant."""
    there, honest = round(0.8 * homes), homes // 2
    p = math.exp(-1 / scale)
    truth = np.array([shares[chance.integers(len(shares), size=there)].mean(axis=0) for _ in range(TRIALS)])
    one_side = (chance.negative_binomial(there / honest, 1 - p, size=truth.shape) for _ in range(2))
    noise = np.subtract(*one_side)
    constant = np.abs(truth - np.median(truth)).mean()
    return float(np.abs(noise).mean() / (HOUR * there)), float(constant)


def opened(homes: int, away: float) -> float:
    """The share of windows in which enough homes are there, each of them away by itself."""
    least = homes // 2 + homes // 10
    return sum(math.comb(homes, k) * (1 - away) ** k * away ** (homes - k) for k in range(least, homes + 1))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = np.random.default_rng(options.seed)
    rows = []
    for name, file, threshold in RECORDINGS:
        _, policy, days = planned(DATA / f"{file}.csv.gz", threshold, 60, options.seed)
        shares, scale = hours(days), float(Fraction(policy.windows[0].scale))
        every = [(size, *errors(shares, scale, size, chance)) for size in SIZES]
        size, off, constant = next((one for one in every if 2 * one[1] <= one[2]), (None, *every[-1][1:]))
        rows.append(Useful(name, scale, size, 100 * off, 100 * constant))
    windows = {f"{away:.0%}": opened(60, away) for away in AWAY}
    if options.json:
        print(json.dumps({"recordings": [row._asdict() for row in rows], "opened of 60": windows}, indent=1))
        return
    say_machine()
    for row in rows:
        errors_there = f"off {row.off:.2f}, constant {row.constant:.2f}"
        print(f"{row.recording:20} scale {row.scale:6.0f}  least {row.least}  {errors_there}")
    for away, share in windows.items():
        print(f"of 60 homes {away} away: {share:.1%} of the windows open")


if __name__ == "__main__":
    main()
