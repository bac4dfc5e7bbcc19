"""Attacking what a recording would have released with the noise that a class of chains asks for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from fugu.attackers.evaluation import attack
from fugu.attackers.outputs import Outputs, release_counts, release_symbols
from fugu.chains.arrays import Ints
from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.discretisers import Baseline, Discretiser, Thresholds
from fugu.contract.losses import Adversary
from fugu.planning.errors import PlanningError
from fugu.planning.recorded_policy import Trial
from fugu.planning.states import states_of
from fugu.privacy.covering_class import covering_class
from fugu.privacy.randomised_response import allowed_ratios, calibrate
from fugu.recordings.readings import Readings

__all__ = ["attack_classes", "class_of_halves", "two_states"]

WINDOW_TICKS = 300


def two_states(readings: Readings, baseline: int | None) -> tuple[str, Ints]:
    """Two states of a recording of numbers (-1: none): above its running mean, or above its mean.

    The baseline is in ticks, `None` for the mean of the recording. PlanningError if the readings are names.
    """
    if readings.has_names:
        raise PlanningError(f"{readings.source}: column {readings.column} holds names, not numbers")
    present = readings.values[readings.present]
    discretiser: Discretiser
    if baseline is not None:
        low, high = math.floor(present.min()), math.ceil(present.max())
        discretiser = Baseline(baseline_ticks=baseline, lowest=low, highest=max(high, low + 1))
        name = f"above the running mean of {baseline}"
    else:
        discretiser = Thresholds(edges=(float(present.mean()),), states=("below", "above"))
        name = "above its own mean"
    return name, states_of(discretiser, readings.values, readings.segments)


def class_of_halves(states: Ints, segments: Ints) -> BinaryChains:
    """The class that holds the mean chain of a recording and of its halves: what slow regimes are not in."""
    half = states.size // 2
    parts = [(states, segments), (states[:half], segments[:half]), (states[half:], segments[half:])]
    means = []
    for part, where in parts:
        before, after = part[:-1], part[1:]
        follows = (before >= 0) & (after >= 0) & (where[:-1] == where[1:])
        for x in (0, 1):
            moves = after[follows & (before == x)] != x
            if not 0 < moves.sum() < moves.size:
                raise PlanningError(f"a half of the recording never leaves state {x}, or never stays in it")
            means.append(float(moves.mean()))
    return BinaryChains(q=(min(means[::2]), max(means[::2])), r=(min(means[1::2]), max(means[1::2])))


def attack_classes(source: str, states: Ints, segments: Ints, epsilon: float) -> Iterator[tuple[str, Trial]]:
    """Attack symbols and counts of 300 ticks, with the noise for independent readings, the mean chain, every stretch.

    Each trial comes with the name of the class. `states` are (n,), -1 where there is none.

    Raises:
        FuguError: the recording is too short to tell, or no noise has this epsilon.
    """
    informed: Adversary = "informed"
    classes: list[tuple[str, BinaryChains | BoundedChains, Adversary]] = [
        ("independent readings", BinaryChains(q=(0.5, 0.5), r=(0.5, 0.5)), informed),
        ("mean chain", class_of_halves(states, segments), informed),
        ("every stretch", covering_class(states, segments, 2).chains, "universal"),
    ]
    for name, chains, adversary in classes:
        table = calibrate(chains, epsilon, adversary)
        scale = Fraction(math.ceil(100 / math.log(min(allowed_ratios(chains, epsilon, adversary)))), 100)
        generator = np.random.default_rng(1)
        symbols = release_symbols(states, table.table, generator)
        counts = release_counts(states, segments, WINDOW_TICKS, scale, ((1,),), generator, k=2)
        releases: list[tuple[str, float, Outputs]] = [("symbols", max(table.rho0, table.rho1), symbols)]
        if counts.counts.size:
            releases.append((f"counts of {WINDOW_TICKS}", float(scale), counts))
        for released, noise, outputs in releases:
            attacks = attack(states, segments, outputs, epsilon)
            yield name, Trial(source, released, noise, epsilon, attacks)
