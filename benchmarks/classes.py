"""How often the class that is found holds the truth, and what others would cost: tables for docs/recordings.md.

Usage: python benchmarks/classes.py [FILE...]      (default: tests/data and the sleepers)
       python benchmarks/classes.py --truths 25 [--seed N]

*Simulated*: truths are drawn, a recording is simulated of each, and a class fitted. The real epsilon of a plan for
epsilon 1 is that of its noise for the truth. *Later* is the second half of a recording, planned by the first. *Others*
are pairs of donors with one question, *all but one* a donor planned by all others. Nobody knows their truth. They are
judged by the class that covers their own recording (`by its class`), and by its mean chain, the least that can be said
of it (`by its mean`).

States are two: on and off, above the running mean of 300 ticks, or other than the first of several. The promise is ten
minutes where ticks are 30 s or more, else a tick. All noise is by the closed form for changing chains: w + sqrt(alpha)
- 1 ticks, or with an alpha for each tick the sum of weights of all ticks (docs/proofs/stretches.md).
"""

from __future__ import annotations

import argparse
import gzip
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from figures import say_machine, table_head, table_row
from numpy.typing import NDArray
from scipy import special

from fugu.chains.arrays import Floats, Ints
from fugu.contract.errors import FuguError
from fugu.planning.question import Question, choose_states, protected_seconds, protected_ticks
from fugu.planning.states import states_of
from fugu.privacy.covering_class import (
    SHORTEST,
    covering_class,
    fit_regimes,
    largest_log_odds,
    local_transitions,
    stretch_lengths,
)
from fugu.privacy.transitions import count_transitions, share_bounds
from fugu.recordings.readings import read_readings

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "tests/data").glob("*.gz")) + sorted((ROOT / "fugu/data").glob("hr_*.gz"))
BLOCKS = 6  # of a day
SHARE, TAIL = 0.02, 0.1  # of stretches that a class may leave out; of an interval, at its upper end
TICKS, DWELL, DRIFT = 20_000, 1000.0, 4000.0  # of a simulated recording of minutes, of a regime, until a drift forgets


@dataclass(frozen=True, eq=False)
class Data:
    """Two states (n,), -1 where there is none, their segments, the block of the day of each (-1: unknown), and w."""

    states: Ints
    segments: Ints
    blocks: Ints
    ticks: int

    def part(self, rows: slice | NDArray[np.bool_]) -> Data:
        """Some of it."""
        return Data(self.states[rows], self.segments[rows], self.blocks[rows], self.ticks)


def noise(odds: Floats, ticks: int) -> float:
    """The scale for epsilon 1, with the odds ratio (n,) of each step of a course, which is repeated, or (1,) of all."""
    if odds.size == 1:
        return ticks + math.sqrt(float(odds[0])) - 1.0
    kappa = np.tanh(np.abs(np.log(odds)) / 4.0)
    weights = []
    for course in (kappa, kappa[::-1]):
        outside, chances_outside = 0.0, []
        for step in np.tile(course, 2).tolist():  # the first time round is the past
            outside = step * (1.0 + outside)
            chances_outside.append(outside)
        weights.append(np.array(chances_outside[len(course) :]))
    left, right = weights[0], weights[1][::-1]
    return ticks + float((left + np.roll(right, -ticks)).max())


@cache
def covering(data: Data) -> Floats:
    """The method of the product: all but 2 % of the stretches of each length, and slow regimes."""
    return np.array([covering_class(data.states, data.segments, 2).chains.odds_bound])


def mean_chain(data: Data) -> Floats:
    """The chain of the whole recording alone."""
    return np.array([_odds(count_transitions(data.states, data.segments, 2))])


def interval(data: Data) -> Floats:
    """The chain of the whole recording, at the end of its interval."""
    return np.array([_far(count_transitions(data.states, data.segments, 2))])


def pooled(data: Data) -> Floats:
    """All stretches of a length together: their log odds differ as normal numbers, without their sampling error."""
    largest = 0.0
    for transition in local_transitions(data.states, data.segments, 2, stretch_lengths(data.states.size)):
        seen = transition.counts + 0.5
        logs = np.log(seen[:, 0, 0] * seen[:, 1, 1] / (seen[:, 0, 1] * seen[:, 1, 0]))
        error = (1.0 / seen).sum(axis=(1, 2))
        weight = 1.0 / error
        middle = float(weight @ logs / weight.sum())
        excess = float(weight @ (logs - middle) ** 2) - (logs.size - 1)
        spread = max(0.0, excess / float(weight.sum() - (weight**2).sum() / weight.sum()))
        weight = 1.0 / (error + spread)
        middle, off = float(weight @ logs / weight.sum()), 1.0 / math.sqrt(float(weight.sum()))
        largest = max(
            largest, abs(middle) + special.ndtri(1 - SHARE) * math.sqrt(spread) + special.ndtri(1 - TAIL) * off
        )
    return np.array([max(math.exp(largest), float(mean_chain(data)[0]))])


def by_time(data: Data, each: Callable[[Data], Floats] = interval) -> Floats:
    """A class for each part of the day of 4 h; that of all of it where one is too short. A day, minute by minute."""
    if (data.blocks < 0).any():
        raise FuguError("no time of the day")
    odds = np.empty(BLOCKS)
    for block in range(BLOCKS):
        inside = data.blocks == block
        borders = np.cumsum(np.diff(inside, prepend=False))
        try:
            odds[block] = each(replace(data, segments=data.segments * len(inside) + borders).part(inside))[0]
        except FuguError:
            odds[block] = each(data)[0]
    return np.repeat(odds, 1440 // BLOCKS)


def regimes(data: Data) -> Floats:
    """The whole recording and the regimes that last half of the shortest stretch, each at the end of its interval."""
    seen = data.states >= 0
    counts = count_transitions(data.states, data.segments, 2)
    visits = counts.sum(axis=1, keepdims=True)
    some = [
        np.rint(visits * regime.share * regime.transition).astype(np.int64)
        for regime in fit_regimes(data.states[seen], data.segments[seen], 2)
        if regime.ticks >= SHORTEST / 2 and regime.share >= SHARE
    ]
    return np.array([max(map(_far, [counts, *some]))])


def wider(factor: float) -> Callable[[Data], Floats]:
    """The covering class with so many times its noise."""
    return lambda data: np.array([(factor * noise(covering(data), data.ticks) - data.ticks + 1.0) ** 2])


CLASSES: dict[str, Callable[[Data], Floats]] = {
    "mean chain": mean_chain,
    "mean chain, its interval": interval,
    "**covering (built)**": covering,
    "pooled sampling error": pooled,
    "4 h of the day, intervals": by_time,
    "4 h of the day, covering": partial(by_time, each=covering),
    "listed slow regimes": regimes,
    "covering, noise x 2": wider(2.0),
    "covering, noise x 4": wider(4.0),
}


def _odds(counts: Ints) -> float:
    seen = np.maximum(counts, 0.5)
    chain = seen / seen.sum(axis=1, keepdims=True)
    return math.exp(largest_log_odds(chain, chain))


def _far(counts: Ints) -> float:
    """The odds ratio at the end of its interval, of rates that are within theirs."""
    ends = []
    for seen, of in ((int(counts[0, 1]), int(counts[0].sum())), (int(counts[1, 0]), int(counts[1].sum()))):
        if not of:
            raise FuguError("a state does not occur")
        ends.append(share_bounds(min(max(seen, 1), of - 1) if of > 1 else 1, of, TAIL))
    (q, _), (r, _) = ends
    return max(1.0, (1 - q) * (1 - r) / (q * r))


def truths(kind: str, rng: np.random.Generator) -> Floats:
    """(n, 2) the probabilities of leaving off and on at each tick of a recording that nobody has."""
    while True:
        logits = special.logit(np.exp(rng.uniform(np.log([0.003, 0.02]), np.log([0.2, 0.4]))))
        rates = special.expit(logits + KINDS[kind](rng))
        if rates.sum(axis=1).max() < 0.95:
            return np.asarray(rates)


def _daily(rng: np.random.Generator) -> Floats:
    hours = np.arange(TICKS)[:, None] // 60 / 24.0
    return np.asarray(np.sin(2.0 * np.pi * (hours + rng.random(2))) * rng.uniform(0.2, 1.0, 2))


def _switched(rng: np.random.Generator) -> Floats:
    signs = np.cumprod(np.where(rng.random(TICKS) < 1.0 / DWELL, -1.0, 1.0))
    return np.asarray(signs[:, None] * rng.normal(0.0, 0.7, 2))


def _drifting(rng: np.random.Generator) -> Floats:
    keep = math.exp(-1.0 / DRIFT)
    steps = rng.normal(0.0, 0.5 * math.sqrt(1.0 - keep * keep), (TICKS, 2))
    steps[0] = rng.normal(0.0, 0.5, 2)
    course = np.empty_like(steps)
    level = np.zeros(2)
    for tick, step in enumerate(steps):
        level = keep * level + step
        course[tick] = level
    return course


KINDS: dict[str, Callable[[np.random.Generator], Floats]] = {
    "constant": lambda _: np.zeros((TICKS, 2)),
    "two regimes": _switched,
    "by the hour": _daily,
    "drifting": _drifting,
}


def simulated(rates: Floats, rng: np.random.Generator) -> Data:
    """A recording of a truth, from any state."""
    leaves = (rng.random(TICKS)[:, None] < rates).tolist()
    states, state = [], int(rng.integers(2))
    for moves in leaves:
        states.append(state)
        state ^= moves[state]
    blocks = np.arange(TICKS) // (1440 // BLOCKS) % BLOCKS
    return Data(np.array(states), np.zeros(TICKS, dtype=np.int64), blocks, 11)


def recordings(file: Path) -> Iterator[tuple[str, str, Data]]:
    """The donors of a file: a name, which others have the same question, and the recording."""
    readings = read_readings(file)
    period = readings.period_seconds
    ticks = protected_ticks(protected_seconds(None, period), period)
    chosen = choose_states(readings, Question())
    states = states_of(chosen.discretiser, readings.values, readings.segments)
    states = np.where(states < 0, -1, np.minimum(states, 1))
    blocks = np.full(states.size, -1)
    if readings.steady and readings.moments is not None and period == 60.0:
        blocks = (readings.moments // (86_400 // BLOCKS) % BLOCKS).astype(np.int64)
    data = Data(states, readings.segments, blocks, ticks)
    name = file.name.split(".")[0]
    with gzip.open(file, "rt") as text:
        people = "subject" in text.readline()
    if not people:
        yield name, "sleepers" if name.startswith("hr_") else name, data
        return
    for person in np.unique(readings.segments).tolist():
        yield f"{name} {person + 1}", name, data.part(readings.segments == person)


class Judged(NamedTuple):
    """The noise of a plan, in ticks, and epsilon by somebody's covering class and by his mean chain."""

    scale: float
    own: float
    mean: float


@cache
def planned(find: Callable[[Data], Floats], data: Data) -> float:
    """The scale of a plan."""
    return noise(find(data), data.ticks)


def judged(find: Callable[[Data], Floats], day_sets: list[Data], other: Data) -> Judged | None:
    """Plan for all that is known, hold it against the other one; None where something tells too little."""
    try:
        scale = max(planned(find, day_set) for day_set in day_sets)
        return Judged(scale, planned(covering, other) / scale, planned(mean_chain, other) / scale)
    except FuguError:
        return None


def share(of: list[bool]) -> str:
    """A share with its 95 % interval."""
    if not of:
        return "-"
    ends = share_bounds(sum(of), len(of), 0.025)
    return f"{sum(of) / len(of):.0%} ({ends[0]:.0%} to {ends[1]:.0%})"


def table(columns: list[str], rows: list[list[str]]) -> None:
    """Print Markdown."""
    print(table_head(columns), *map(table_row, rows), sep="\n", end="\n\n", flush=True)


def simulation(count: int, seed: int) -> None:
    """The share of truths that are inside, and with more than epsilon 1."""
    rows = []
    for kind in KINDS:
        figures_of: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for number in range(count):
            rng = np.random.default_rng([seed, number])
            rates = truths(kind, rng)
            data = simulated(rates, rng)
            odds = ((1.0 - rates) / rates).prod(axis=1)
            need = noise(odds[:1] if kind == "constant" else odds, data.ticks)
            try:
                built = noise(covering(data), data.ticks)
            except FuguError:
                continue
            for name, find in CLASSES.items():
                planned_scale = find(data)
                at = np.resize(planned_scale, TICKS) if planned_scale.size > 1 else planned_scale
                scale = noise(planned_scale, data.ticks)
                figures_of[name].append((float((odds > at * (1 + 1e-9)).mean()), need / scale, scale / built))
        for name, each in figures_of.items():
            outside, epsilons, relative = (np.array(column) for column in zip(*each, strict=True))
            shares = [
                share((outside <= (0.0 if kind == "constant" else SHARE)).tolist()),
                share((epsilons > 1.0).tolist()),
            ]
            middle, most = np.quantile(epsilons, (0.5, 0.9))
            numbers = [f"{middle:.2f}, {most:.2f}", f"{np.median(relative):.2f}"]
            rows.append([f"{kind} ({len(each)})", name, *shares, *numbers])
    table(["truth", "class", "inside", "real epsilon above 1", "median, 90 %", "noise"], rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--truths", type=int, metavar="N", help="simulate N truths of each kind; no recordings")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    say_machine()
    if options.truths:
        simulation(options.truths, options.seed)
        return
    donors = [recording for file in options.files or FILES for recording in recordings(file)]
    later, rows = [], []
    for name, _, data in donors:
        halves = [data.part(half) for half in (slice(0, data.states.size // 2), slice(data.states.size // 2, None))]
        later.append([judged(find, halves[:1], halves[1]) for find in CLASSES.values()])
        cells = [
            "-" if judgement is None else f"{judgement.scale:.0f}: {judgement.own:.2f}, {judgement.mean:.2f}"
            for judgement in later[-1]
        ]
        rows.append([name, *cells])
    print("Noise in ticks of the first half's class: epsilon of the second half by its class, by its mean.\n")
    table(["recording", *CLASSES], rows)
    kinds: dict[str, list[Data]] = defaultdict(list)
    for _, kind, data in donors:
        kinds[kind].append(data)
    pairs = [pair for some in kinds.values() for pair in permutations(some, 2)]
    without = [
        (some[:i] + some[i + 1 :], own_days)
        for some in kinds.values()
        if len(some) > 2
        for i, own_days in enumerate(some)
    ]
    rows = []
    for (name, find), *mine in zip(CLASSES.items(), *later, strict=True):
        others = [judged(find, [donor], other) for donor, other in pairs]
        all_but = [judged(find, donors, other) for donors, other in without]
        built = [row[list(CLASSES).index("**covering (built)**")] for row in later]
        ratio = [judgement.scale / two.scale for judgement, two in zip(mine, built, strict=True) if judgement and two]
        cells = [f"{np.median(ratio):.2f} ({min(ratio):.2f} to {max(ratio):.2f})"]
        for some in (mine, others, all_but):
            classes = [judgement for judgement in some if judgement]
            cells += [
                share([judgement.own > 1.0 for judgement in classes]),
                share([judgement.mean > 1.0 for judgement in classes]),
            ]
        rows.append([name, *cells])
    columns = [f"{who}: {how}" for who in ("later", "others", "all but one") for how in ("by its class", "by its mean")]
    print(
        f"Share with a real epsilon above 1: {len(later)} later parts, {len(pairs)} pairs, {len(without)} left out.\n"
    )
    table(["class", "noise", *columns], rows)
    for who, some in (("later", built), ("others", [judged(covering, [donor], other) for donor, other in pairs])):
        beyond = [judgement.own for judgement in some if judgement and judgement.own > 1.0]
        if beyond:
            print(f"covering (built), {who}, where above 1: median {np.median(beyond):.2f}, largest {max(beyond):.2f}")


if __name__ == "__main__":
    main()
