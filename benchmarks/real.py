"""Histograms of real recordings under four mechanisms: python benchmarks/real.py.

The settings of tables 1 and 3 of Song, Wang, Chaudhuri: Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD
2017). Recordings are of people and of a household. There is one histogram an hour, and one of everything. Prints
Markdown.

A histogram changes by at most 2 with one state: discrete Laplace noise of scale 2 s in every bin, where s is the scale
of a count. Errors are exact expectations, the sum over bins of |noise| over the number of readings:
bins / sinh(1 / scale) / readings. So they depend on the chain and not on the readings that are released.

The same promise in every column, for everything that is released. GroupDP takes all readings as one. MQM takes all
readings as one release, or for hourly releases noise for an endless stream (adjacent windows then compose for free).
Ours is one epsilon for ever, over all hours that will ever come. The chain is believed to have run for ever; MQMApprox,
as printed, covers every start.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from figures import say_machine, table_head, table_row

from fugu.chains.arrays import Ints
from fugu.contract.losses import Adversary
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilts import group_dp_scale, mqm_approx, mqm_exact
from fugu.privacy.transitions import count_transitions, transition_matrix
from fugu_cli.demo.evaluation import RECORDINGS

sys.path.insert(0, str(Path(__file__).parents[1]))

from papers import recordings

Scales = dict[str, list[float]]  # by mechanism, then by released part

EPSILONS = (0.2, 1.0, 5.0)
PER_BIN = 2.0  # the scale of a bin of a histogram over that of a count
LEGEND = """\
Errors: the expected sum of |noise| over all bins, relative to the readings of an hour or of everything. The promise is
the same in every column. GroupDP takes all readings of the recording as one group. MQM takes them as one release, or
for hourly releases has the noise that an endless stream needs. Ours is one epsilon for ever, for all hours together."""
FEW_STATES = 4  # the most for which the informed adversary is accounted for within a minute


class Recording(NamedTuple):
    """A question to a recording, and the belief behind it.

    Attributes:
        title: of the table.
        fit: in words.
        believed: the fitted chain of every released part; all parts have one length.
        released: the chain of every released part itself, fitted afterwards; empty if it was fitted at first.
        ticks: readings of a part.
        hour: ticks of an hour.
    """

    title: str
    fit: str
    believed: tuple[MarkovChain, ...]
    released: tuple[MarkovChain, ...]
    ticks: int
    hour: int


def fitted(states: Ints, segments: Ints | None = None, *, k: int) -> MarkovChain:
    """The most likely chain, started stationary.

    Raises:
        SystemExit: a state is not entered, or not left again: the recording says nothing about what follows.
    """
    counts = count_transitions(states, np.zeros_like(states) if segments is None else segments, k)
    chain = MarkovChain.stationary(transition_matrix(counts))
    if not (counts.sum(axis=0).all() and counts.sum(axis=1).all() and chain.stationary_distribution.all()):
        raise SystemExit("a state is not entered or not left again: fit on another part")
    return chain


def halves(title: str, fit: str, states: Ints, hour: int) -> Recording:
    """A recording that is fitted on its first half, and released on the second."""
    first, second = np.array_split(states, 2)
    k = int(states.max()) + 1
    return Recording(title, fit, (fitted(first, k=k),), (fitted(second, k=k),), len(second), hour)


def heart_rate() -> Recording:
    """Two states, fitted on the first half of the night."""
    title = "Heart rate, asleep (2 states; an hour is 4,500 beats)"
    fit = "fitted on the first half of the night, released on the second"
    return halves(title, fit, recordings.heart(RECORDINGS, "N10").states, 4500)


def activity() -> Recording:
    """Four states, fitted on the other four people."""
    states, people = recordings.activity(RECORDINGS, cut=False)[0]
    everyone = np.unique(people)
    return Recording(
        "Activity (4 states; 5 people, a week each)",
        "for each person fitted on the other four; means over the five",
        tuple(fitted(states[people != person], people[people != person], k=4) for person in everyone),
        tuple(fitted(states[people == person], k=4) for person in everyone),
        len(states) // len(everyone),
        60,
    )


def power() -> Recording:
    """All steps of power that occur; some occur in one half only, so that the fit is on everything."""
    states = recordings.power(RECORDINGS).states
    k = int(states.max()) + 1
    return Recording(
        f"Household power ({k} of 51 states of 200 W occur; 90 days)",
        "fitted on the whole recording: the second half has states that the first never sees",
        (fitted(states, k=k),),
        (),
        len(states),
        60,
    )


def coarse_power() -> Recording:
    """Everything from 5 kW on is one state, so that a half can be fitted."""
    title = "Household power, 5 kW and above as one state (26 states; 45 days)"
    states = np.minimum(recordings.power(RECORDINGS).states, 25)
    return halves(title, "fitted on the first half, released on the second", states, 60)


def error(scale: float, bins: int, readings: int) -> float:
    """The expected sum of |noise| over all bins, relative to the number of readings."""
    return bins / math.sinh(1.0 / scale) / readings


def our_scales(accountants: list[ChainAccountant], epsilon: float) -> Scales:
    """The scales of a bin that hold for ever."""
    adversaries: dict[str, Adversary] = {"ours": "ignorant"}
    if accountants[0].states <= FEW_STATES:
        adversaries["ours, informed"] = "informed"
    return {
        name: [PER_BIN / accountant.allowance(epsilon, adversary) for accountant in accountants]
        for name, adversary in adversaries.items()
    }


def their_scales(recording: Recording, length: int | None, epsilon: float) -> Scales:
    """The scales of a bin of the other mechanisms, for one release of that length or for an endless stream."""
    chains = recording.believed
    return {
        "GroupDP": [PER_BIN * group_dp_scale(recording.ticks, epsilon)] * len(chains),
        "MQMApprox": [PER_BIN * _approx_scale(chain, length, epsilon) for chain in chains],
        "MQMExact": [PER_BIN * mqm_exact((chain,), length, epsilon).scale for chain in chains],
    }


def _approx_scale(chain: MarkovChain, length: int | None, epsilon: float) -> float:
    """The scale of MQMApprox; not a number if the chain has no eigengap."""
    try:
        return mqm_approx((chain,), length, epsilon).scale
    except ChainClassError:
        return math.nan


def table(recording: Recording) -> str:
    """The table of a recording, and what is to be said about it, in Markdown."""
    k, hour, ticks = recording.believed[0].states, recording.hour, recording.ticks
    accountants = [ChainAccountant((chain,)) for chain in recording.believed]
    ours = {epsilon: our_scales(accountants, epsilon) for epsilon in EPSILONS}
    hourly = {epsilon: their_scales(recording, None, epsilon) | ours[epsilon] for epsilon in EPSILONS}
    once = {epsilon: their_scales(recording, ticks, epsilon) | ours[epsilon] for epsilon in EPSILONS}
    extra = list(hourly[1.0])[4:]
    header = ["release", "eps", "GroupDP", "MQMApprox", "MQMExact", "ours", "MQMExact/ours", *extra]
    alone = [_text(100.0 * error(PER_BIN * group_dp_scale(hour, epsilon), k, hour), " %") for epsilon in EPSILONS]
    lines = [
        f"**{recording.title}**, {recording.fit}.",
        "",
        table_head(header),
        *_rows("hourly, scale of a bin", hourly, lambda scale: scale, ""),
        *_rows("hourly, error", hourly, lambda scale: 100.0 * error(scale, k, hour), " %"),
        *_rows("everything once, error", once, lambda scale: 100.0 * error(scale, k, ticks), " %"),
        "",
        f"GroupDP for one hour alone, which promises nothing about two hours, has errors of {', '.join(alone)}.",
    ]
    if recording.released:
        pairs = zip(recording.released, ours[1.0]["ours"], strict=True)
        losses = [ChainAccountant((chain,)).loss(PER_BIN / scale).epsilon for chain, scale in pairs]
        lines.append(
            f"Under the chain of what was released, eps 1 of ours is {' / '.join(f'{loss:.3g}' for loss in losses)}."
        )
    return "\n".join(lines)


def _rows(name: str, scales: dict[float, Scales], value: Callable[[float], float], unit: str) -> list[str]:
    """Lines of a table, one per epsilon: means over the released parts."""
    lines = []
    for epsilon, mechanisms in scales.items():
        means = [float(np.mean([value(scale) for scale in mechanism])) for mechanism in mechanisms.values()]
        cells = [_text(mean, unit) for mean in means]
        cells.insert(4, f"{means[2] / means[3]:.2f}")
        lines.append(table_row([name, f"{epsilon:g}", *cells]))
    return lines


def _text(value: float, unit: str) -> str:
    """Three digits or more, without an exponent."""
    if math.isnan(value):
        return "none"
    return (f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}") + unit


def main() -> None:
    """Print a table for every recording."""
    say_machine()
    print(LEGEND, end="\n\n")
    for recording in (heart_rate, activity, power, coarse_power):
        print(table(recording()), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
