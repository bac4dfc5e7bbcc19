"""Attacks on measured points: on each point by itself, and on all points of a stream together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from fugu.audit.distributions import inside_distribution
from fugu.audit.outputs import Mechanism, Source
from fugu.audit.witness import told_by_tick, witness
from fugu.chains.arrays import Floats
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import Noise, members
from fugu.contract.measurement import ConstraintSets
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from gateway.audit.access import Audience
from gateway.audit.audiences import LEVEL, Attacked
from gateway.audit.events import attacked, reach

__all__ = ["attack_points"]

_FAR = 40
_MOST = 64
"""States of a chain whose points are attacked together."""


def attack_points(
    policy: MeasurePolicy, audiences: Sequence[Audience], *, seed: int, trials: int, level: float = LEVEL
) -> Iterator[Attacked]:
    """Attack what each audience may read of a stream of points.

    A point by itself is held against the epsilon of states that must be alike, all points against what the policy says
    of the stream. Tables are attacked as if each were used at every tick: so the device may use the fallback, and one
    for the states that are possible in the long run.

    Args:
        audiences, seed, trials, level: as for `attack_audiences`.
    """
    shows = policy.shows or tuple(range(len(policy.coordinates)))
    mine = [one for one in audiences if f"{policy.device}/{policy.stream}" in one.symbols]
    possible, lasting = _possible(policy)
    tables = [(one, _emission(policy, one.noise)) for one in policy.measure_tables]
    tables = [(one, distribution) for one, distribution in tables if one.constraint in (0, lasting)]
    share = level / max(1, 2 * len(mine)) / len(tables)
    for number, audience in enumerate(mine):
        generator = np.random.default_rng([seed, number])
        stream = policy.stream_loss
        certified = math.inf if stream.epsilon is None else stream.epsilon
        promised, adversary = (certified, stream.adversary) if audience.site else audience[2:4]
        rows = [("points", promised, certified, False)]
        rows += [("one point", policy.epsilon, policy.epsilon, True)] if audience.site else []
        for heard, epsilon, bound, single in rows:
            joined = _joined(policy, possible) if single else None
            found = []
            for table, distribution in tables:
                alone = Mechanism(1, 0, len(distribution), (Source(distribution, shows, True),), (), policy.shows)
                chain = _chain(policy)
                event = attacked(lambda _: alone, [chain], generator, trials, None, share, joined)  # noqa: B023
                told, apart = told_by_tick(alone), joined or list(permutations(dict.fromkeys(shows), 2))
                shown = max(float(told[shows.index(x), shows.index(z)]) for x, z in apart)
                if not single and len(distribution) <= _MOST and not policy.changes:
                    far = min(_FAR, reach(chain, 12.0))
                    long = alone._replace(ticks=2 * far + 1, secret=far)
                    shown = max(shown, witness(long, chain, knows=adversary != "ignorant").epsilon)
                found.append((event, shown, table))
            event, _, table = max(found, key=lambda one: one[0].least)
            words = "nothing could be counted"
            if event.states is not None:
                names = [policy.discretiser.states[state] for state in event.states]
                words = f"{' rather than '.join(names)}, table {table.number}"
            yield Attacked(
                *(audience.name, heard, epsilon, bound, adversary, max(shown for _, shown, _ in found), None),
                *("simulated", event.least, event.trials, event.hits, event.alarms, words),
            )


def _possible(policy: MeasurePolicy) -> tuple[int, int]:
    """The states that are possible at any tick, and those that are at every tick in the long run; 0 if that changes."""
    found = ConstraintSets(policy.measurement)
    every = found.all()
    last = every[found.start :]
    united = 0
    for one in every:
        united |= one
    return united, last[0] if len(last) == 1 else 0


def _joined(policy: MeasurePolicy, possible: int) -> set[tuple[int, int]]:
    near = policy.measurement.neighbours
    return {(x, z) for x in members(possible) for z in members(near[x] & possible) if x != z}


def _chain(policy: MeasurePolicy) -> MarkovChain:
    matrix = np.array(policy.matrix)
    try:
        found = MarkovChain.stationary(matrix)
        assert found.initial is not None
        if (found.initial > 0).all():
            return found
    except ChainClassError:
        pass
    return MarkovChain.stationary(np.full(matrix.shape, 1.0 / len(matrix)))  # of a tick by itself


def _emission(policy: MeasurePolicy, noise: Noise) -> Floats:
    """(n, m) probabilities of points, for each state of the chain; all on the border of a staircase's box are one."""
    shows = list(policy.shows or range(len(policy.coordinates)))
    if isinstance(noise, NoiseTable):
        return np.array(noise.weights(), dtype=np.float64)[shows] / SCALE
    distributions = [inside_distribution(noise, centre) for centre in policy.measurement.centres(noise.likely)]
    points = {
        point: n for n, point in enumerate(dict.fromkeys(point for numbers, _ in distributions for point in numbers))
    }
    found = np.zeros((len(distributions), len(points) + 1))
    for own, (numbers, distribution) in zip(found, distributions, strict=True):
        own[[points[point] for point in numbers]] = distribution[:-1]
        own[-1] = distribution[-1]
    return found[shows]
