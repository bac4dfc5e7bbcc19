"""Attack stretches of recordings, at noise for the promise and at noise for its floor alone.

Usage: python benchmarks/stretch_attacks.py [--json]

Each row is a recording whose class covers it, daily counts, epsilon 1. The noise of the promise is for any side
information; that of the floor is w / epsilon, for whatever class. Attackers know the recording's mean chain and the
true states of all other days.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
from figures import command_line, say_machine

from fugu.attackers.outputs import release_counts
from fugu.attackers.stretches import attack_stretches
from fugu.chains.arrays import Ints
from fugu.contract.discretisers import Thresholds
from fugu.planning.states import states_of
from fugu.privacy.covering_class import covering_class
from fugu.privacy.randomised_response import allowed_ratios
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import read_readings

DATA = Path(__file__).resolve().parent.parent / "fugu" / "data"
RECORDINGS = (("office", "occupancy"), ("a room's motion", "motion"), ("water", "water"))
STRETCHES = ((10, "10 minutes"), (60, "1 hour"))
WINDOW = 1440
EPSILON = 1.0


def main() -> None:
    """Attack, and print a row for each recording and stretch."""
    options = command_line(__doc__).parse_args()
    say_machine()
    rows = [row for name, file in RECORDINGS for row in attacked(name, DATA / f"{file}_states.csv.gz")]
    if options.json:
        print(json.dumps(rows))
        return
    print("recording | stretch | noise for | scale | right | guess | odds moved by, at most | allowed")
    for row in rows:
        print(" | ".join(str(value) for value in row.values()))


def attacked(name: str, file: Path) -> list[dict[str, object]]:
    """Rows of one recording, whose first state is "off" and whose ticks are minutes."""
    states = minutes(file)
    segments = np.zeros_like(states)
    chains = covering_class(states, segments, 2).chains
    rows: list[dict[str, object]] = []
    for ticks, words in STRETCHES:
        promise = 1.0 / math.log(min(allowed_ratios(chains, EPSILON, "universal", ticks)))
        for what, scale in (("the promise", promise), ("the floor", ticks / EPSILON)):
            noisy = release_counts(*(states, segments, WINDOW, Fraction(scale), ((1,),), np.random.default_rng(1)), k=2)
            attacks = attack_stretches(states, segments, noisy, (1,), ticks, WINDOW, EPSILON)
            best = max(attacks, key=lambda attack: attack.furthest)
            rows.append(
                {
                    "recording": name,
                    "stretch": words,
                    "noise for": what,
                    "scale": f"{scale:.0f}",
                    "right": f"{100 * best.success:.0f} %",
                    "guess": f"{100 * best.guess:.0f} %",
                    "odds moved by": f"{best.furthest:.2f}",
                    "allowed": f"{math.exp(EPSILON):.2f}",
                }
            )
    return rows


def minutes(file: Path) -> Ints:
    """The states of a recording, minute by minute."""
    readings = read_readings(file, ReadOptions(column="state"))
    return states_of(Thresholds(edges=(0.5,), states=("off", "on")), readings.values, readings.segments)


if __name__ == "__main__":
    main()
