"""Draws that a device and a gateway have really made, taken from what was published and what is known of it.

Given the true state, a symbol is a draw of the table's row; given the true count, the rest is a draw of noise. Put on
other paths, each used once, they are what the same device would have published of those. So the chain that makes a
class worst is attacked with the randomness of the real device. What the gateway counts are symbols: where these are
recorded, its noise is known without any truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from fugu.audit.outputs import Counted, Mechanism, Source
from fugu.chains.arrays import Ints
from fugu.contract.policy import Policy
from fugu.contract.release_frames import ReleaseFrame
from fugu.contract.window_frames import WindowFrame
from fugu.privacy.chain_class import MarkovChain
from gateway.audit.told import Definition
from gateway.releases.amplification import noise_problems
from gateway.releases.statistics import two_valued

__all__ = ["Recorded", "distribution_problems", "release_noise", "window_noise"]

_WHOLE = 1e-3
"""What a count of symbols may be from a whole number, after the arithmetic of its estimate."""


class Recorded:
    """Draws by the state that they were made in, and by the count whose noise they are.

    Args:
        drawn: for each state, the symbols that were drawn in it, in their order.
        noises: by name of a count.
    """

    def __init__(self, drawn: Sequence[Ints], noises: Mapping[str, Ints]) -> None:
        self.drawn, self.noises = tuple(drawn), dict(noises)
        self.rewind()

    def rewind(self) -> None:
        """Begin with the first draws again."""
        self._symbols = [0] * len(self.drawn)
        self._noise = dict.fromkeys(self.noises, 0)

    def trials(self, made: Mechanism, chain: MarkovChain) -> int:
        """About how many trials of each of two states the draws are enough for."""
        most = min((self.noises[one.name].size // (2 * made.uses(one.name)) for one in made.counts), default=10**9)
        for n in made.drawn:
            assert chain.initial is not None
            distribution = np.bincount(made.sources[n].shows, chain.initial)
            needed = 2 * np.maximum(made.ticks * distribution, 1.0)
            most = min(most, *(int(own.size / each) for own, each in zip(self.drawn, needed, strict=True)))
        return most

    def enough(self, made: Mechanism, *states: Ints) -> int:
        """For how many of the paths (trials, ticks) of each of some hypotheses the draws are enough."""
        most = len(states[0])
        for one in made.counts:
            most = min(most, self.noises[one.name].size // (len(states) * made.uses(one.name)))
        for n, (x, own) in product(made.drawn, enumerate(self.drawn)):
            shown = np.array(made.sources[n].shows)
            used = np.cumsum(sum((shown[each] == x).sum(axis=1) for each in states))
            most = min(most, int(np.searchsorted(used, own.size, side="right")))
        return most

    def symbols(self, states: Ints, source: Source) -> Ints:
        """A symbol for each state of the chain, in the same shape."""
        found, shown = np.empty_like(states), np.array(source.shows)[states]
        for x in range(len(self.drawn)):
            at = shown == x
            begin, number = self._symbols[x], int(at.sum())
            found[at] = self.drawn[x][begin : begin + number]
            self._symbols[x] += number
        return found

    def noise(self, count: Counted, trials: int) -> Ints:
        """(trials,) noise of a count."""
        begin = self._noise[count.name]
        self._noise[count.name] += trials
        return self.noises[count.name][begin : begin + trials]


def window_noise(definition: Definition, frames: Iterable[WindowFrame], states: Ints, begin: int) -> dict[str, Ints]:
    """The noise of a device's counts, of which every tick was counted and has a state, by name of the count.

    Args:
        states: (n,) true states from the tick `begin` of the wall clock on, -1 where there is none.
    """
    found: list[list[int]] = [[] for _ in definition.groups]
    for frame in sorted(frames, key=lambda one: one.index):
        low = frame.first - frame.shift - begin
        inside = states[low : low + frame.length] if low >= 0 else states[:0]
        if frame.observed != frame.length or inside.size != frame.length or (inside < 0).any():
            continue
        for own, group, count in zip(found, definition.groups, frame.counts, strict=True):
            own.append(count - int(np.isin(inside, group).sum()))
    return {name: np.array(own, np.int64) for name, own in zip(definition.names, found, strict=True) if own}


def release_noise(
    policy: Policy, definition: Definition, frames: Iterable[ReleaseFrame], symbols: Ints, begin: int
) -> dict[str, Ints]:
    """The noise of a gateway's counts of the symbols of one device, if all these symbols were heard.

    Args:
        symbols: (n,) from the tick `begin` of the wall clock on, -1 where none was heard.
    """
    found = []
    for frame in sorted(frames, key=lambda one: one.entry):
        low = frame.first - begin
        inside = symbols[low : low + frame.length] if low >= 0 else symbols[:0]
        missing = frame.length - frame.observed
        if definition.part or frame.devices != 1 or inside.size != frame.length or (inside < 0).sum() != missing:
            continue
        labels = policy.discretiser.states
        rule = None
        if policy.table is not None and frame.query in ("count", "frequency") and definition.symbols:
            rule = two_valued(policy.table, tuple(map(labels.index, frame.states)))
        if rule is None or frame.observed == 0:
            continue
        value = frame.values[0] * (frame.observed if frame.query == "frequency" else 1)
        count = (value - rule.b * frame.observed) / rule.a
        if abs(count - round(count)) < _WHOLE:
            found.append(round(count) - int(np.isin(inside, definition.groups[0]).sum()))
    return {definition.names[0]: np.array(found, np.int64)} if found else {}


def distribution_problems(recorded: Mapping[str, Ints], definitions: Iterable[Definition]) -> list[str]:
    """What of the noise cannot be that of its scale, by its mean size: as for ledgers, one in 10^9 without a fault."""
    found = []
    for one in definitions:
        sizes = [recorded[name] for name in one.names if name in recorded]
        if sizes and one.terms == 1:
            drawn = np.concatenate(sizes)
            problems = noise_problems({Fraction(one.scale): (drawn.size, int(np.abs(drawn).sum()))})
            found += [f"{one.names[0].rpartition(' ')[0]}: {problem}" for problem in problems]
    return found
