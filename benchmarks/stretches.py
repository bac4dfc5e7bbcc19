"""How far off shares are of recordings in the repository, by the stretch that is promised: a table for docs/plan.md.

Usage: python benchmarks/stretches.py [FILE...]      (default: tests/data)

For each the window, of up to a day, that beats guessing by most at a single tick and epsilon 1, as `fugu plan auto`
compares them before attackers widen a class. Bold is half of guessing or less. Below it is what the check of a
guarantee about an hour takes, as a device does it.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from figures import say_machine, table_head, table_row

from fugu.contract.chains import BoundedChains
from fugu.contract.errors import FuguError
from fugu.contract.guarantee import Guarantee, StreamOutputs, check_outputs
from fugu.contract.windows import Window
from fugu.library.auto_words import percent
from fugu.planning.candidates import Candidate, Problem, window_candidates, window_lengths
from fugu.planning.question import Question, choose_states
from fugu.recordings.readings import read_readings
from fugu.recordings.summary import time_text

DATA = Path(__file__).parents[1] / "tests" / "data"
STRETCHES = (0, 600, 3600, 28_800)
EPSILONS = (1.0, 2.0)
DAY = 86_400.0


def row(file: Path) -> str:
    """The row of a recording."""
    readings = read_readings(file)
    problem = Problem(readings, Question(), choose_states(readings, Question()), np.random.default_rng(1))
    chains = problem.chains()
    period = readings.period
    lengths = [length for length in window_lengths(period, readings.steady, Question()) if length * period <= DAY]

    def planned(epsilon: float, protect: int) -> list[Candidate]:
        try:
            question = Question(epsilon=epsilon, protect=protect)
            return window_candidates(replace(problem, question=question), chains, lengths)
        except FuguError:
            return []  # no noise is enough

    best = min(planned(1.0, 0), key=lambda candidate: candidate.expected_error / max(candidate.guess_error, 1e-9))
    lengths = [best.window_ticks or 1]
    cells = []
    for epsilon in EPSILONS:
        for protect in STRETCHES:
            candidates = planned(epsilon, protect)
            error = candidates[0].expected_error if candidates else np.nan
            bold = "**" if 2.0 * error <= best.guess_error else ""
            cells.append(f"{bold}{percent(error)}{bold}" if candidates else "-")
    name = file.name if file.parent == DATA else str(file)
    window = time_text(lengths[0] * period)
    return table_row([f"`{name}`", window, percent(best.guess_error), *cells])


def certificate(ticks: int, times: int = 500) -> float:
    """Milliseconds of processor time for the guarantee of a window of a day, about so many ticks in a row."""
    chains = BoundedChains(states=2, odds_ratio=40_000.0)
    outputs = StreamOutputs(None, (Window(name="day", length=1440, stride=1440, states=(1,), scale="300"),))
    promise = Guarantee(epsilon=1.0, adversary="universal", stretch_ticks=ticks)
    begin = time.process_time()
    for _ in range(times):
        check_outputs(chains, outputs, promise)
    return 1e3 * (time.process_time() - begin) / times


def main() -> None:
    """Print the table."""
    say_machine()
    titles = [f"epsilon {epsilon:g}: {name}" for epsilon in EPSILONS for name in ("a tick", "10 min", "1 h", "8 h")]
    print(table_head(["recording", "window", "guessing", *titles]))
    for file in [Path(name) for name in sys.argv[1:]] or sorted(DATA.glob("*.csv.gz")):
        try:
            print(row(file), flush=True)
        except FuguError as error:
            print(f"{file.name}: {error}", file=sys.stderr)
    print(f"\na certificate takes {certificate(61):.2f} ms, for a single tick {certificate(1):.2f}")


if __name__ == "__main__":
    main()
