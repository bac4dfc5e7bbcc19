"""Sums of homes with one noise for all: from how many homes on they are of use, and how often a window opens.

Usage: python benchmarks/sums.py [--json] [--seed N]

`fugu plan auto --homes 60` of the recordings: days drawn at random, an hour protected at epsilon 1, hourly shares. A
group counts on m = N/2 honest homes, a sum needs m + N/10, and a fifth of the homes is away.
"""

from __future__ import annotations

import json
import math
from typing import NamedTuple

from figures import command_line, say_machine
from groups import DATA, RECORDINGS

import fugu

AWAY = (0.1, 0.2, 0.4)


class Useful(NamedTuple):
    """A recording: the noise of a home alone in ticks, least numbers of homes, errors of 60 homes in points."""

    recording: str
    scale: float
    least: int | None
    beats_habit: int | None
    off: float
    constant: float
    habit: float


def opened(homes: int, away: float) -> float:
    """The share of windows in which enough homes are there, each of them away by itself."""
    least = homes // 2 + homes // 10
    return sum(math.comb(homes, k) * (1 - away) ** k * away ** (homes - k) for k in range(least, homes + 1))


def main() -> None:
    """Print both tables."""
    parser = command_line(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows = []
    for name, file, threshold in RECORDINGS:
        street = fugu.street(DATA / f"{file}.csv.gz", 60, protect="1h", threshold=threshold, seed=options.seed)
        plan = street.details
        points = (100 * error for error in plan.size[1:])
        least = plan.least_useful, plan.least_beating_habit
        rows.append(Useful(name, float(plan.neediest.scale), *least, *points))
    windows = {f"{away:.0%}": opened(60, away) for away in AWAY}
    if options.json:
        print(json.dumps({"recordings": [row._asdict() for row in rows], "opened of 60": windows}, indent=1))
        return
    say_machine()
    for row in rows:
        words = f"useful from {row.least}, better than habit from {row.beats_habit}"
        errors = f"60 homes: off {row.off:.2f}, constant {row.constant:.2f}, habit {row.habit:.2f}"
        print(f"{row.recording:20} scale {row.scale:6.0f}  {words:50}  {errors}")
    for away, share in windows.items():
        print(f"of 60 homes {away} away: {share:.1%} of the windows open")


if __name__ == "__main__":
    main()
